"""The published TransEvolve weights (TensorFlow, Dutta et al. 2021) in our model, dead weights dropped.

The arrays keep the attribute paths of the published classes, such as `encoder.encoder.0.compute_attention.WQ`. Sizes,
blocks, layers, the kind of model and of feed-forward are read off the arrays; only the number of heads is not in them,
and the published code runs with width / heads = 64 alone.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.architectures.transevolve import Evolved
from odeum.errors import OdeumError
from odeum.fields.algebra import PreNorm, Sum, Wrapper
from odeum.fields.base import Context, Source
from odeum.fields.feedforward import FeedForward
from odeum.fields.transevolve.block import Anchored
from odeum.fields.transevolve.evolved_attention import EvolvedAttention
from odeum.fields.transevolve.measure import Measure
from odeum.fields.transevolve.rotation import PublishedRotation, RotationFeedForward
from odeum.flow import Flow, Stack
from odeum.models.embedding import TiedEmbedding, sinusoid
from odeum.models.settings import Shape, Translation
from odeum.models.translation import TranslationModel

EPS = 1e-3  # of Keras's LayerNormalization
PADDING = 0


def load(source: str | Path | Mapping[str, Any], heads: int | None = None) -> nn.Module:
    """The model whose call gives what the published one gave, in evaluation mode.

    `source` is an .npz, an .h5 or a mapping of arrays, with or without `weights/` before the paths. Of an encoder
    `model(source_ids)` gives the states [batch, length, width]; of a classifier the class probabilities (one column
    for two classes); of a translation model `model(source_ids, target_ids)` gives the logits [batch, length, tokens].
    Token 0 is padding. A translation model's `.model` is an ordinary TranslationModel, for decoding and training.
    """
    arrays, config = _read(source)
    heads = heads or _heads(config) or _width(arrays) // 64
    if not heads:
        raise OdeumError(f"the number of heads is not in the arrays of width {_width(arrays)}: give it as heads=")
    if any(re.search(r"(compute|apply)_(decoder|encdec)_attention\.", path) for path in arrays):
        return PublishedTranslation(arrays, heads).eval()
    return PublishedEncoder(arrays, heads).eval()


class PublishedTranslation(nn.Module):
    """(source ids, target ids) ↦ logits."""

    def __init__(self, arrays: dict[str, np.ndarray], heads: int) -> None:
        super().__init__()
        shape, architecture = _describe(arrays, heads)
        if (side := _layers(arrays, "decoder")) != (architecture.blocks, architecture.depth):
            raise OdeumError(
                f"the published weights hold {side[0]} × {side[1]} decoder layers, but "
                f"{architecture.blocks} × {architecture.depth} encoder layers; the published model has "
                "equally many of both"
            )
        vocabulary = _ending(arrays, "tiedEmbedding.shared_weights").shape[0]
        sizes = {name: getattr(shape, name) for name in ("width", "heads", "depth", "hidden", "activation", "norm_eps")}
        self.model = TranslationModel(Translation(vocabulary=vocabulary, length=10_000, **sizes), architecture)
        _fill(self.model.embedding.weight, _ending(arrays, "tiedEmbedding.shared_weights"), "tiedEmbedding")
        _fill_stack(self.model.encoder, arrays, "compute_attention")
        _fill_stack(self.model.decoder, arrays, "compute_decoder_attention")

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        source, target = (self._embed(_ids(ids)) for ids in (source_ids, target_ids))
        keep, known = (_keep(_ids(ids))[:, None, None] for ids in (source_ids, target_ids))
        memory = self.model.encoder(source, Context(own=Source(mask=keep)))
        other = Source(mask=keep, memory=memory)
        states = self.model.decoder(target, Context(own=Source(mask=known, causal=True), other=other))
        return self.model.embedding.logits(states)

    def _embed(self, ids: Tensor) -> Tensor:
        return _positioned(self.model.embedding, ids)


class PublishedEncoder(nn.Module):
    """Source ids ↦ states, or class probabilities where the arrays hold a classifier's head."""

    def __init__(self, arrays: dict[str, np.ndarray], heads: int) -> None:
        super().__init__()
        shape, architecture = _describe(arrays, heads)
        table = _ending(arrays, "tiedEmbedding.shared_weights")
        self.embedding = TiedEmbedding(*table.shape)
        _fill(self.embedding.weight, table, "tiedEmbedding")
        self.encoder = stack(architecture, shape)
        _fill_stack(self.encoder, arrays, "compute_attention")
        for module in list(self.encoder.modules()):
            if isinstance(module, PreNorm) and isinstance(module.field, EvolvedAttention):
                module.field = MeanForMaskedQueries(module.field)
        self.norm, self.head = None, None
        if any(path.endswith("dense_layer.kernel") for path in arrays):
            kernel = _ending(arrays, "dense_layer.kernel")
            self.norm = nn.LayerNorm(shape.width, eps=EPS)
            self.head = nn.Linear(*kernel.shape)
            _fill_norm(self.norm, arrays, _path_ending(arrays, "out_norm.gamma").removesuffix("gamma"))
            _fill(self.head.weight, kernel.T, "dense_layer.kernel")
            _fill(self.head.bias, _ending(arrays, "dense_layer.bias"), "dense_layer.bias")

    def forward(self, source_ids: Tensor) -> Tensor:
        source_ids = _ids(source_ids)
        keep = _keep(source_ids)
        x = _positioned(self.embedding, source_ids)
        # The published mask also blinds padded queries.
        mask = (keep.unsqueeze(1) & keep.unsqueeze(2)).unsqueeze(1)
        x = self.encoder(x, Context(own=Source(mask=None if bool(keep.all()) else mask)))
        if self.norm is None or self.head is None:
            return x
        logits = self.head(self.norm(x.mean(dim=1)))  # over the padding, too
        return logits.softmax(dim=-1) if logits.shape[-1] > 1 else logits.sigmoid()


class MeanForMaskedQueries(Wrapper):
    """A query that may look nowhere sees the mean of all values: what a softmax over equal −10⁹ gives.

    It matters in the classifier, whose mean over positions includes the padding.
    """

    field: EvolvedAttention

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        out = self.field(t, x, context)
        if context.own.mask is None:
            return out
        blind = ~context.own.mask.any(dim=-1)[:, 0].unsqueeze(-1)
        return torch.where(blind, self.field.out(x.mean(dim=1, keepdim=True)), out)

    def formula(self, x: str) -> str:
        return self.field.formula(x)


def _read(source: str | Path | Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by published path, and the words of the `config` string."""
    if isinstance(source, Mapping):
        items = dict(source)
    elif Path(source).suffix.lower() in (".h5", ".hdf5"):
        items = _read_h5(Path(source))
    else:
        try:
            with np.load(source, allow_pickle=False) as file:
                items = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise OdeumError(f"'{source}' is not a readable .npz of published TransEvolve weights: {error}") from None
    arrays = {
        name.removeprefix("weights/").replace("/", ".").removesuffix(":0"): np.asarray(value)
        for name, value in items.items()
        if name != "config"
    }
    if not any(path.endswith(".WQ") for path in arrays):
        raise OdeumError("the file contains no published TransEvolve weights: no path ends in compute_attention.WQ")
    for path, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise OdeumError(f"the array '{path}' holds {array.dtype}, not numbers")
    return arrays, _config(items.get("config"))


def _config(value: Any) -> dict[str, Any]:
    """The words of `key=value …`, of a dictionary, or of one written as JSON or Python."""
    if isinstance(value, Mapping):
        return dict(value)
    text = np.asarray("" if value is None else value).item()
    text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    if text.lstrip().startswith("{"):
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError):
                return dict(read(text.strip()))
        raise OdeumError(f"the config of the published weights is not a dictionary: {text}")
    return dict(word.split("=", 1) for word in text.replace(",", " ").split() if "=" in word)


def _heads(config: dict[str, Any]) -> int:
    value = config.get("num_head", 0)
    if str(value).isdecimal():
        return int(value)
    raise OdeumError(f"num_head in the config of the published weights must be an integer, not '{value}'")


def _read_h5(path: Path) -> dict[str, Any]:
    try:
        import h5py
    except ImportError:
        raise OdeumError(
            "reading an .h5 needs h5py; `pip install odeum[h5]`, or give an .npz or a mapping of arrays"
        ) from None
    items: dict[str, Any] = {}

    def keep(name: str, node: object) -> None:
        if isinstance(node, h5py.Dataset):
            items[name] = node[()]

    try:
        with h5py.File(path, "r") as file:
            if "config" in file.attrs:
                items["config"] = file.attrs["config"]
            file.visititems(keep)
    except OSError as error:
        raise OdeumError(f"'{path}' is not a readable .h5 of published TransEvolve weights: {error}") from None
    return items


def _path_ending(arrays: dict[str, np.ndarray], end: str) -> str:
    matches = [path for path in arrays if path == end or path.endswith("." + end)]
    if len(matches) != 1:
        raise OdeumError(f"the published weights must have one array '{end}', not {len(matches)}")
    return matches[0]


def _ending(arrays: dict[str, np.ndarray], end: str) -> np.ndarray:
    return arrays[_path_ending(arrays, end)]


def _width(arrays: dict[str, np.ndarray]) -> int:
    table = _ending(arrays, "tiedEmbedding.shared_weights")
    if table.ndim != 2:
        raise OdeumError(
            f"the array 'tiedEmbedding.shared_weights' has shape {table.shape}, but must be [tokens, width]"
        )
    return table.shape[1]


def _layers(arrays: dict[str, np.ndarray], side: str) -> tuple[int, int]:
    """Blocks and layers a block of the encoder or the decoder."""
    attention = "apply_attention" if side == "encoder" else "apply_decoder_attention"
    matches = [m for p in arrays if (m := re.search(rf"{side}\.(\d+)\.{side}\.(\d+)\.{attention}\.WO$", p))]
    if not matches:
        raise OdeumError(f"the published weights lack the array '{side}.{side}.0.{side}.0.{attention}.WO'")
    blocks, depth = (1 + max(int(match[i]) for match in matches) for i in (1, 2))
    if len(matches) != blocks * depth:
        raise OdeumError(f"the published weights hold {len(matches)} {side} layers, not {blocks} blocks × {depth}")
    return blocks, depth


def _describe(arrays: dict[str, np.ndarray], heads: int) -> tuple[Shape, Evolved]:
    """Sizes and words of the architecture, read off the encoder's arrays."""
    width = _width(arrays)
    blocks, depth = _layers(arrays, "encoder")
    total = _ending(arrays, "encoder.0.compute_attention.WQ").shape[0]
    if width % heads or (total - width) % heads:
        raise OdeumError(f"{heads} heads do not divide the width of {width} and the time part of {total - width}")
    random = any(path.endswith(".svals") for path in arrays)
    hidden = _ending(arrays, "encoder.0.encoder.0.apply_projection.linear_1.bias").shape[0]
    shape = Shape(width, heads, blocks * depth, hidden, activation="relu", norm_eps=EPS)
    architecture = Evolved(
        blocks=blocks, depth=depth, feedforward="random" if random else "full", rotation="published",
        time_width=(total - width) // heads,
    )  # fmt: skip
    return shape, architecture


def _fill_stack(target: nn.Module, arrays: dict[str, np.ndarray], measure: str) -> None:
    """Every block of an encoder or, where the self-attention is measured by another name, of a decoder."""
    assert isinstance(target, Stack)
    side = "encoder" if measure == "compute_attention" else "decoder"
    start = _path_ending(arrays, f"{side}.0.{measure}.WQ").removesuffix(f"0.{measure}.WQ")
    apply = "apply_attention" if side == "encoder" else "apply_decoder_attention"
    for i, block in enumerate(target.flows):
        assert isinstance(block, Anchored) and isinstance(block.body, Stack) and block.norm is not None
        here = f"{start}{i}."
        _fill_measure(block.own, arrays, f"{here}{measure}.")
        if block.other is not None:
            _fill_measure(block.other, arrays, f"{here}compute_encdec_attention.")
        for j, flow in enumerate(block.body.flows):
            assert isinstance(flow, Flow) and isinstance(flow.field, Sum)
            layer = f"{here}{side}.{j}."
            fields = flow.field.fields
            _fill_attention(fields["attention"].field, fields["attention"].norm, arrays, f"{layer}{apply}.")  # ty: ignore
            if block.other is not None:
                _fill_attention(fields["cross"], fields["cross"].norm, arrays, f"{layer}apply_encdec_attention.")  # ty: ignore
            _fill_norm(fields["feedforward"].norm, arrays, f"{layer}apply_projection.norm_layer.")  # ty: ignore
            _fill_projection(fields["feedforward"].field, arrays, f"{layer}apply_projection.")  # ty: ignore
        _fill_norm(block.norm, arrays, f"{here}output_normalization.")


def _fill_measure(measure: Measure, arrays: dict[str, np.ndarray], path: str) -> None:
    """The columns from the width on are W_Q's time part, and in W_K dead."""
    width = measure.q.in_features
    wq, wk = (_get(arrays, path + name, (measure.q.out_features,) * 2) for name in ("WQ", "WK"))
    _fill(measure.q.weight, wq[:, :width], path + "WQ")
    _fill(measure.time, wq[:, width:], path + "WQ")
    _fill(measure.k.weight, wk[:, :width], path + "WK")


def _fill_attention(field: EvolvedAttention, norm: nn.Module, arrays: dict[str, np.ndarray], path: str) -> None:
    _fill(field.coefficients, _get(arrays, path + "coeffs"), path + "coeffs")
    _fill(field.out.weight, _get(arrays, path + "WO").T, path + "WO")
    _fill_norm(norm, arrays, path + "norm_layer.")


def _fill_projection(field: nn.Module, arrays: dict[str, np.ndarray], path: str) -> None:
    if isinstance(field, FeedForward):
        for linear, name in ((field.up, "linear_1"), (field.down, "linear_2")):
            _fill(linear.weight, _get(arrays, f"{path}{name}.kernel").T, f"{path}{name}.kernel")
            _fill(linear.bias, _get(arrays, f"{path}{name}.bias"), f"{path}{name}.bias")
        return
    assert isinstance(field, RotationFeedForward)
    for rotation, name in ((field.up, "linear_1"), (field.down, "linear_2")):
        assert isinstance(rotation, PublishedRotation) and rotation.bias is not None
        svals = _get(arrays, f"{path}{name}.svals", (rotation.size, 1))  # beyond the rank they are dead
        _fill(rotation.singular, svals[: rotation.rank, 0], f"{path}{name}.svals")
        _fill(rotation.bias, _get(arrays, f"{path}{name}.bias"), f"{path}{name}.bias")
        fixed = (torch.tensor(_get(arrays, f"{path}{name}.{part}")) for part in ("coeffs", "phases"))
        rotation.keep(*fixed)


def _fill_norm(norm: nn.Module, arrays: dict[str, np.ndarray], path: str) -> None:
    _fill(norm.weight, _get(arrays, path + "gamma"), path + "gamma")  # ty: ignore
    _fill(norm.bias, _get(arrays, path + "beta"), path + "beta")  # ty: ignore


def _get(arrays: dict[str, np.ndarray], path: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    if path not in arrays:
        raise OdeumError(f"the published weights lack the array '{path}'")
    if shape is not None and arrays[path].shape != shape:
        raise OdeumError(f"the array '{path}' has shape {arrays[path].shape}, but must have shape {shape}")
    return arrays[path]


@torch.no_grad()
def _fill(parameter: Tensor, array: np.ndarray, path: str) -> None:
    if tuple(array.shape) != tuple(parameter.shape):
        raise OdeumError(
            f"the array '{path}' has shape {tuple(array.shape)}, but must have shape {tuple(parameter.shape)}"
        )
    parameter.copy_(torch.tensor(np.ascontiguousarray(array)))


def _ids(ids: Any) -> Tensor:
    ids = torch.as_tensor(ids).long()
    if ids.dim() != 2:
        raise OdeumError(f"token ids are [batch, length], not of shape {list(ids.shape)}")
    return ids


def _keep(ids: Tensor) -> Tensor:
    return ids != PADDING


def _positioned(embedding: TiedEmbedding, ids: Tensor) -> Tensor:
    """Embeddings, zero for padding, plus absolute positions."""
    x = embedding(ids) * _keep(ids).unsqueeze(-1)
    return x + sinusoid(torch.arange(x.shape[1], device=x.device), x.shape[-1]).to(x.dtype)
