"""The published weights: a plain numpy transcription of the published equations, and recorded outputs where present."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from odeum.errors import OdeumError
from odeum.fields.transevolve.rotation import fold
from odeum.interop.transevolve import load

SHARED = Path(os.environ.get("ODEUM_SHARED", Path(__file__).parents[3] / "shared"))
FIXTURES = sorted((SHARED / "fixtures").glob("transevolve_*.npz"))
TIME = 64  # width of the depth vector a head in the published code, where it must equal width / heads


class Transcription:
    """The published model, equation by equation, in float64; the random matrices' angles in float32, as published."""

    def __init__(
        self, kind: str, heads: int, projection: str, blocks: int, layers: int, classes: int = 3, seed: int = 0
    ):
        self.kind, self.heads, self.projection, self.classes = kind, heads, projection, classes
        self.d, self.blocks, self.layers, self.vocabulary = heads * TIME, blocks, layers, 30
        self.random = np.random.default_rng(seed)
        self.w: dict[str, np.ndarray] = {}
        self.prefix = "encoder." if kind == "classifier" else ""
        self.add(f"{self.prefix}tiedEmbedding.shared_weights", (self.vocabulary, self.d), self.d**-0.5)
        sides = ["encoder", "decoder"] if kind == "encdec" else ["encoder"]
        for side in sides:
            for block in range(blocks):
                self.make_block(side, f"{self.prefix}{side}.{side}.{block}.")
        if kind == "classifier":
            self.norm_weights("out_norm.")
            outputs = classes if classes > 2 else 1
            self.add("dense_layer.kernel", (self.d, outputs), 1.0)
            self.add("dense_layer.bias", (outputs,), 0.1)

    def add(self, name: str, shape: tuple[int, ...], scale: float) -> None:
        self.w[name] = (self.random.standard_normal(shape) * scale).astype(np.float32)

    def norm_weights(self, path: str) -> None:
        self.add(path + "gamma", (self.d,), 1.0)
        self.add(path + "beta", (self.d,), 0.3)

    def make_block(self, side: str, path: str) -> None:
        total = self.d + self.heads * TIME
        measures = (
            ["compute_attention"] if side == "encoder" else ["compute_decoder_attention", "compute_encdec_attention"]
        )
        attentions = ["apply_attention"] if side == "encoder" else ["apply_decoder_attention", "apply_encdec_attention"]
        for name in measures:
            self.add(f"{path}{name}.WQ", (total, total), 1.3 * total**-0.5)
            self.add(f"{path}{name}.WK", (total, total), 1.3 * total**-0.5)
        for layer in range(self.layers):
            here = f"{path}{side}.{layer}."
            for name in attentions:
                self.add(f"{here}{name}.coeffs", (self.d,), 2 * self.d**-0.5)
                self.add(f"{here}{name}.WO", (self.d, self.d), self.d**-0.5)
                self.norm_weights(f"{here}{name}.norm_layer.")
            self.norm_weights(f"{here}apply_projection.norm_layer.")
            for name, size, out in (("linear_1", self.d, 4 * self.d), ("linear_2", 4 * self.d, self.d)):
                self.add(f"{here}apply_projection.{name}.bias", (out,), 0.1)
                if self.projection == "full":
                    self.add(f"{here}apply_projection.{name}.kernel", (size, out), size**-0.5)
                else:
                    self.add(f"{here}apply_projection.{name}.svals", (size, 1), 3.0)
                    self.add(f"{here}apply_projection.{name}.coeffs", (size, size // 2), size)
                    self.add(f"{here}apply_projection.{name}.phases", (out, out // 2), out)
        self.norm_weights(f"{path}output_normalization.")

    def __call__(self, source: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
        pad = source == 0
        x = self.run("encoder", self.embed(source), None, (pad[:, None, :] | pad[:, :, None])[:, None], None)
        if self.kind == "encoder":
            return x
        if self.kind == "classifier":
            logits = self.norm(x.mean(axis=1), "out_norm.") @ self.w["dense_layer.kernel"] + self.w["dense_layer.bias"]
            return softmax(logits) if self.classes > 2 else 1 / (1 + np.exp(-logits))
        assert target is not None
        empty = target == 0
        later = np.triu(np.ones((target.shape[1], target.shape[1]), bool), 1)
        own = ((empty[:, None, :] | empty[:, :, None]) | later)[:, None]
        x = self.run("decoder", self.embed(target), x, own, (empty[:, :, None] | pad[:, None, :])[:, None])
        return x @ self.w["tiedEmbedding.shared_weights"].T

    def embed(self, ids: np.ndarray) -> np.ndarray:
        table = self.w[f"{self.prefix}tiedEmbedding.shared_weights"].astype(np.float64)
        half = self.d // 2
        rates = np.exp(-np.arange(half) * np.log(10_000.0) / (half - 1))
        angles = np.arange(ids.shape[1])[:, None] * rates
        return table[ids] * (ids != 0)[..., None] * np.sqrt(self.d) + np.concatenate(
            (np.sin(angles), np.cos(angles)), axis=1
        )

    def run(
        self, side: str, x: np.ndarray, memory: np.ndarray | None, own: np.ndarray, other: np.ndarray | None
    ) -> np.ndarray:
        for block in range(self.blocks):
            path = f"{self.prefix}{side}.{side}.{block}."
            name = "compute_attention" if side == "encoder" else "compute_decoder_attention"
            mine = self.measure(x, x, f"{path}{name}.")
            cross = None if memory is None else self.measure(x, memory, f"{path}compute_encdec_attention.")
            for i in range(self.layers):
                here = f"{path}{side}.{i}."
                apply = "apply_attention" if side == "encoder" else "apply_decoder_attention"
                x = x + self.attention(mine, x, i, own, f"{here}{apply}.")
                if cross is not None:
                    assert memory is not None and other is not None
                    x = x + self.attention(cross, memory, i, other, f"{here}apply_encdec_attention.")
                x = x + self.project(x, i, f"{here}apply_projection.")
            x = self.norm(x, f"{path}output_normalization.")
        return x

    def measure(self, x: np.ndarray, keys: np.ndarray, path: str) -> tuple[np.ndarray, ...]:
        wq, wk = (self.w[path + name].astype(np.float64) for name in ("WQ", "WK"))
        q, k = x @ wq[:, : self.d].T, keys @ wk[:, : self.d].T
        qh, kh = (y.reshape(*y.shape[:2], self.heads, -1) for y in (q, k))
        a0 = np.einsum("bshd,blhd->bhsl", qh, kh) / np.sqrt(qh.shape[-1])
        tq, tk = (w[:, self.d :].reshape(-1, self.heads, TIME) for w in (wq, wk))
        return (
            a0,
            np.einsum("dnt,bld->bnlt", tk, q),
            np.einsum("dnt,bld->bnlt", tq, k),
            np.einsum("dnt,dnt->nt", tq, tk),
        )

    def attention(
        self, a: tuple[np.ndarray, ...], values: np.ndarray, i: int, mask: np.ndarray, path: str
    ) -> np.ndarray:
        p = np.arange(self.d // 2) * (i * np.pi / 64)
        t = (np.concatenate((np.sin(p), np.cos(p))) * self.w[path + "coeffs"]).reshape(self.heads, TIME)
        scores = a[0] + (a[1] * t[:, None]).sum(-1)[..., None] + (a[2] * t[:, None]).sum(-1)[:, :, None]
        scores = scores + (a[3] * t * t).sum(-1)[:, None, None]
        # In float32 what is left of a score beside −10⁹ is a multiple of 64.
        blind = (scores.astype(np.float32) + np.float32(-1e9)).astype(np.float64)
        weights = softmax(np.where(mask, blind, scores))
        v = self.norm(values, path + "norm_layer.").reshape(*values.shape[:2], self.heads, -1)
        return np.einsum("bnlk,bknd->blnd", weights, v).reshape(a[0].shape[0], -1, self.d) @ self.w[path + "WO"]

    def project(self, x: np.ndarray, i: int, path: str) -> np.ndarray:
        h = np.maximum(self.linear(self.norm(x, path + "norm_layer."), i, path + "linear_1."), 0)
        return self.linear(h, i, path + "linear_2.")

    def linear(self, x: np.ndarray, i: int, path: str) -> np.ndarray:
        if self.projection == "full":
            return x @ self.w[path + "kernel"] + self.w[path + "bias"]
        coeffs, phases, svals = (self.w[path + name] for name in ("coeffs", "phases", "svals"))
        size, out = coeffs.shape[0], phases.shape[0]
        frames = []
        for matrix in (coeffs, phases):
            rate = np.float32(i) * np.float32(np.pi / matrix.shape[0])
            angles = ((rate * np.arange(matrix.shape[1], dtype=np.float32)) * matrix).astype(np.float64)
            frames.append(np.concatenate((np.sin(angles), np.cos(angles)), axis=1) / np.sqrt(out))
        return x @ (frames[0] @ (np.eye(size, out) * svals) @ frames[1]) + self.w[path + "bias"]

    def norm(self, x: np.ndarray, path: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-3) * self.w[path + "gamma"] + self.w[path + "beta"]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def ids(rng: np.random.Generator, lengths: tuple[int, ...]) -> np.ndarray:
    out = np.zeros((len(lengths), max(lengths)), dtype=np.int64)
    for row, length in zip(out, lengths, strict=True):
        row[:length] = rng.integers(1, 30, length)
    return out


CASES = [
    ("encoder", 1, "full", 2, 2, 3),
    ("encoder", 2, "random", 1, 3, 3),
    ("classifier", 1, "full", 1, 2, 4),
    ("classifier", 2, "full", 2, 1, 2),
    ("classifier", 1, "random", 2, 3, 3),
    ("encdec", 1, "full", 2, 2, 3),
    ("encdec", 2, "random", 2, 2, 3),
]


@pytest.mark.parametrize(("kind", "heads", "projection", "blocks", "layers", "classes"), CASES)
def test_the_importer_gives_what_the_published_equations_give(
    kind: str, heads: int, projection: str, blocks: int, layers: int, classes: int, tmp_path: Path
) -> None:
    published = Transcription(kind, heads, projection, blocks, layers, classes)
    rng = np.random.default_rng(1)
    source, target = ids(rng, (7, 4, 6)), ids(rng, (5, 6, 2))
    right = published(source, target)
    file = tmp_path / "weights.npz"
    np.savez(file, config=f"kind={kind} num_head={heads}", **{f"weights/{k}": v for k, v in published.w.items()})
    model = load(file)
    with torch.no_grad():
        inputs = [torch.tensor(x) for x in ((source, target) if kind == "encdec" else (source,))]
        ours = model(*inputs).numpy()
        assert ours.shape == right.shape
        keep = np.ones(len(ours), bool) if kind == "classifier" else (target if kind == "encdec" else source) != 0
        np.testing.assert_allclose(ours[keep], right[keep], atol=1e-4)
        fold(model)
        np.testing.assert_allclose(model(*inputs).numpy()[keep], right[keep], atol=1e-4)


def test_a_mapping_without_prefix_and_heads_is_enough() -> None:
    published = Transcription("encoder", 2, "full", 1, 1)
    source = ids(np.random.default_rng(1), (5, 3))
    with torch.no_grad():
        ours = load(published.w)(source).numpy()
    np.testing.assert_allclose(ours[source != 0], published(source)[source != 0], atol=1e-4)


def test_an_h5_is_read_by_its_paths(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    published = Transcription("encoder", 1, "full", 1, 1)
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        for name, array in published.w.items():
            file["weights/" + name] = array
    source = ids(np.random.default_rng(1), (5, 3))
    with torch.no_grad():
        assert torch.equal(load(tmp_path / "weights.h5")(source), load(published.w)(source))
    (tmp_path / "text.h5").write_text("not weights")
    with pytest.raises(OdeumError, match=r"text.h5' is not a readable .h5"):
        load(tmp_path / "text.h5")


def test_an_imported_random_model_is_saved_with_its_matrices() -> None:
    """Nobody has the seed of the published code."""
    model = load(Transcription("encoder", 1, "random", 1, 2, seed=3).w)
    other = load(Transcription("encoder", 1, "random", 1, 2, seed=4).w)
    other.load_state_dict(model.state_dict())
    source = ids(np.random.default_rng(1), (5, 3))
    with torch.no_grad():
        assert torch.equal(other(source), model(source))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    arrays = Transcription("encoder", 1, "full", 1, 1).w
    with pytest.raises(OdeumError, match="WO"):
        load(
            {k: v for k, v in arrays.items() if not k.endswith("beta")}
            | {"encoder.encoder.0.encoder.0.apply_attention.WO": np.ones(3)}
        )
    del arrays["encoder.encoder.0.compute_attention.WK"]
    with pytest.raises(OdeumError, match=r"lack the array 'encoder\.encoder\.0\.compute_attention\.WK'"):
        load(arrays)
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(OdeumError, match="not a readable"):
        load(tmp_path / "text.npz")
    with pytest.raises(OdeumError, match="no published TransEvolve weights"):
        load({"weights/x": np.ones(3)})


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("projection", ["full", "random"])
def test_arrays_and_models_of_other_precisions(projection: str, dtype: type) -> None:
    arrays = {name: array.astype(dtype) for name, array in Transcription("encoder", 1, projection, 1, 2).w.items()}
    source = ids(np.random.default_rng(1), (5, 3))
    with torch.no_grad():
        for model in (load(arrays), load(arrays).double(), load(arrays).bfloat16()):
            assert model(source).isfinite().all()


@pytest.mark.parametrize(
    "config", ["num_head=1 kind=encoder", '{"num_head": 1, "tied": true}', "{'num_head': 1}", b"num_head=1,", None]
)
def test_the_config_may_be_written_in_several_ways(config: object, tmp_path: Path) -> None:
    arrays = Transcription("encoder", 1, "full", 1, 1).w
    np.savez(tmp_path / "weights.npz", **arrays, **({} if config is None else {"config": np.array(config)}))
    assert load(tmp_path / "weights.npz")(ids(np.random.default_rng(1), (5, 3))).isfinite().all()


def test_weights_that_do_not_belong_together_are_refused() -> None:
    arrays = Transcription("encdec", 1, "random", 1, 2).w

    def refused(sentence: str, change: dict[str, np.ndarray], without: str = "nothing") -> None:
        with pytest.raises(OdeumError, match=sentence):
            load({path: array for path, array in (arrays | change).items() if without not in path})

    layer = {path.replace(".decoder.1.", ".decoder.2."): array for path, array in arrays.items()}
    refused(r"1 × 3 decoder layers, but 1 × 2 encoder layers", layer)
    refused(r"lack the array 'decoder\.decoder\.0\.compute_encdec_attention\.WQ'", {}, "compute_encdec_attention")
    refused(r"lack the array 'encoder\.encoder\.0\.encoder\.0\.apply_attention\.WO'", {}, "apply_attention")
    start = "encoder.encoder.0.encoder.0.apply_projection.linear_1."
    refused("fixed phases of the random feed-forward", {start + "phases": np.ones((3, 2))})
    refused(r"svals' has shape \(9, 1\)", {start + "svals": np.ones((9, 1))})
    refused(r"WK' has shape \(7,\)", {"encoder.encoder.0.compute_attention.WK": np.ones(7)})
    refused(r"shared_weights' has shape \(7,\)", {"tiedEmbedding.shared_weights": np.ones(7)})
    refused("holds object, not numbers", {start + "bias": np.array([None])})
    refused("num_head .* not 'two'", {"config": np.array("num_head=two")})
    refused("the number of heads is not in the arrays", {"tiedEmbedding.shared_weights": np.ones((30, 32))})
    with pytest.raises(OdeumError, match=r"token ids are \[batch, length\]"):
        load(Transcription("encoder", 1, "full", 1, 1).w)([1, 2, 3])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"array"])
def test_files_that_are_no_weights_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "weights.npz").write_bytes(content)
    if content == b"array":
        np.save(tmp_path / "weights.npz.npy", np.ones(3))
        (tmp_path / "weights.npz.npy").rename(tmp_path / "weights.npz")
    with pytest.raises(OdeumError, match=r"weights.npz' is not a readable .npz"):
        load(tmp_path / "weights.npz")


@pytest.mark.skipif(not FIXTURES, reason="no recorded outputs beside this checkout")
@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_recorded_outputs_of_the_published_code(path: Path) -> None:
    model, recorded = load(path), np.load(path)
    inputs = [torch.tensor(recorded[name]) for name in ("source_ids", "target_ids") if name in recorded.files]
    with torch.no_grad():
        ours = model(*inputs).numpy()
    keep = inputs[-1].numpy() != 0 if recorded["output"].ndim == 3 else slice(None)
    np.testing.assert_allclose(ours[keep], recorded["output"][keep], atol=1e-5)
