"""A trained language or translation model for the CTranslate2 engine, written with its own specification classes.

It takes sequential and parallel layers with pre-norm, rotary, learned or sinusoidal positions, LayerNorm or RMSNorm.
The engine needs neither torch nor Odeum.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from odeum.decode.choice import Choice
from odeum.decode.target import SLACK
from odeum.errors import OdeumError
from odeum.fields.roles import by_role
from odeum.interop.native import (
    ELSEWHERE,
    acting_layers,
    layer_form,
    need_one_matrix,
    position_table,
    refuse_imported,
)
from odeum.models.base import OdeumModel
from odeum.models.language import LanguageModel
from odeum.models.translation import TranslationModel
from odeum.registry.spelling import parse, spell

ACTIVATION_NAMES = {"gelu": "GELU", "relu": "RELU", "swiglu": "SWISH"}


def write_ctranslate2(
    model: OdeumModel,
    directory: Path,
    tokens: Sequence[str],
    *,
    unknown: str,
    start: str,
    end: str,
) -> None:
    """Write a directory that `ctranslate2.Generator` or `ctranslate2.Translator` loads.

    Args:
        model: a language or translation model.
        directory: where the files are written.
        tokens: the vocabulary in the order of its ids.
        unknown: the token for an unknown word.
        start: the token that begins a text.
        end: the token that ends a text.
    """
    refuse_imported(model, "CTranslate2", "ct2-transformers-converter")
    specs = _package("ctranslate2.specs")
    if isinstance(model, LanguageModel):
        spec = _language(model, specs)
        spec.register_vocabulary(list(tokens))
    elif isinstance(model, TranslationModel):
        spec = _translation(model, specs)
        spec.register_source_vocabulary(list(tokens))
        spec.register_target_vocabulary(list(tokens))
        spec.config.decoder_start_token = start
        spec.config.add_source_eos = True
    else:
        raise OdeumError(
            f"CTranslate2 supports language and translation models, not {type(model).__name__}; {ELSEWHERE}"
        )
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unknown, start, end
    spec.config.layer_norm_epsilon = model.settings.norm_eps
    spec.validate()
    spec.save(str(directory))


def _package(name: str) -> Any:
    """A module of the package, if it is installed."""
    try:
        return import_module(name)
    except ImportError:
        raise OdeumError(
            "the CTranslate2 engine needs the package ctranslate2; install it with `pip install odeum[ctranslate2]`"
        ) from None


class CTranslate2:
    """A language or translation model that the CTranslate2 engine computes, in the place of the model itself.

    Its greedy tokens are those of the model. Sampling draws other random numbers than Odeum does.
    """

    def __init__(self, model: OdeumModel) -> None:
        package = _package("ctranslate2")
        self.settings: Any = model.settings
        self.names = [str(number) for number in range(self.settings.vocabulary)]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        start, end = (self.names[number] for number in ((1, 2) if isinstance(model, TranslationModel) else (0, 0)))
        with tempfile.TemporaryDirectory() as place:
            write_ctranslate2(model, Path(place), self.names, unknown=self.names[0], start=start, end=end)
            kind = package.Translator if isinstance(model, TranslationModel) else package.Generator
            self.engine = kind(place, device="cpu", intra_threads=torch.get_num_threads())
        self.set_seed = package.set_random_seed

    def stream(self, ids: Sequence[int], count: int, choice: Choice, seed: int) -> Iterator[int]:
        """Up to `count` tokens after a prompt; the end of a text is for the caller to see."""
        room = self.settings.length - len(ids) + 1  # the last token that is made is not read
        if count > room:
            raise OdeumError(
                f"--engine ctranslate2 does not slide the window of {self.settings.length} tokens, of which the prompt "
                f"has {len(ids)}; give --max_new_tokens {room} or less, or leave out --engine"
            )
        greedy = choice.temperature == 0 or choice.top_k == 1
        drawn = {
            "sampling_topk": 1 if greedy else choice.top_k or 0,
            "sampling_topp": choice.top_p or 1.0,
            "sampling_temperature": 1.0 if greedy else choice.temperature,
        }
        self.set_seed(seed % 2**32)
        nothing = [len(self.names)]  # a token that is not there ends no text
        prompt = [self.names[number] for number in ids]
        if count:
            for step in self.engine.generate_tokens(prompt, max_length=count, end_token=nothing, **drawn):
                yield step.token_id

    def translate(self, sources: Sequence[Sequence[int]], beam: int, length_penalty: float) -> list[list[int]]:
        """The best translation of each source (which holds its end), without start and end.

        With several beams it may be another one than Odeum's: the engine stops at as many finished translations.
        """
        if beam > 1 and length_penalty:
            raise OdeumError(
                f"--engine ctranslate2 normalises by another power of the length than length_penalty="
                f"{length_penalty:g} here; give --length_penalty 0 or --beam 1, or leave out --engine"
            )
        out: list[list[int]] = []
        most = self.settings.length - 1  # the start takes a position too
        for source in sources:
            if self.settings.positions == "sinusoidal" and len(source) + SLACK > most:
                raise OdeumError(
                    f"--engine ctranslate2 has {most} positions for a translation, and a line of {len(source)} tokens "
                    f"may become {len(source) + SLACK}; give shorter lines, or leave out --engine"
                )
            words = [self.names[number] for number in source[:-1]]  # it adds the end itself
            (best,) = self.engine.translate_batch(
                [words],
                beam_size=beam,
                length_penalty=0.0,
                max_decoding_length=min(len(source) + SLACK, most),
                suppress_sequences=[self.names[:1], self.names[1:2]],
            )
            out.append([self.numbers[name] for name in best.hypotheses[0]])
        return out


def _options(model: OdeumModel, specs: Any) -> dict[str, Any]:
    s = model.settings
    kinds = specs.common_spec.Activation
    return {
        "activation": getattr(kinds, ACTIVATION_NAMES[s.activation]),
        "ffn_glu": s.activation == "swiglu",
        "rms_norm": s.norm_kind == "rms",
    }


def _language(model: LanguageModel, specs: Any) -> Any:
    s = model.settings
    need_one_matrix(model, "CTranslate2")
    form = layer_form(model.architecture)
    if form == "post-norm":
        raise OdeumError(f"post-norm language models are not supported for CTranslate2; {ELSEWHERE}")
    options = _options(model, specs)
    if s.positions == "rotary":
        options |= {"rotary_dim": s.width // s.heads, "rotary_interleave": False}
    if form != "sequential":
        if s.norm_kind == "rms":
            raise OdeumError(f"CTranslate2 has no parallel layers with RMSNorm; {ELSEWHERE}")
        options |= {"parallel_residual": True, "shared_layer_norm": form == "shared"}
    spec = specs.TransformerDecoderModelSpec.from_config(s.depth, s.heads, pre_norm=True, **options)
    _ends(spec.decoder, model)
    for target, layer in zip(spec.decoder.layer, acting_layers(model.stack), strict=True):
        _linear(target.self_attention.linear[0], layer, "attention.qkv")
        _linear(target.self_attention.linear[1], layer, "attention.out")
        _feed_forward(target.ffn, layer, gated=s.activation == "swiglu")
        if form == "shared":
            _norm(target.shared_layer_norm, layer, "norm")
        elif form == "parallel":
            _norm(target.input_layer_norm, layer, "attention.norm")
            _norm(target.post_attention_layer_norm, layer, "feedforward.norm")
        else:
            _norm(target.self_attention.layer_norm, layer, "attention.norm")
            _norm(target.ffn.layer_norm, layer, "feedforward.norm")
    return spec


def _ends(spec: Any, model: Any, stack: nn.Module | None = None) -> None:
    """Embedding, positions, final norm and output matrix of a decoder or an encoder."""
    weight = model.embedding.weight
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _array(weight * model.embedding.scale)
    spec.scale_embeddings = False
    if hasattr(spec, "position_encodings"):
        spec.position_encodings.encodings = _array(position_table(model, weight))
    _norm(spec.layer_norm, by_role(stack or model.stack), "norm")
    if hasattr(spec, "projection"):
        spec.projection.weight = _array(weight)


def _translation(model: TranslationModel, specs: Any) -> Any:
    s = model.settings
    if s.positions == "rotary":
        raise OdeumError(f"CTranslate2 has no translation models with rotary positions; {ELSEWHERE}")
    decoder = model.architecture if s.decoder is None else parse(s.decoder)
    for what, architecture in (("architecture", model.architecture), ("decoder", decoder)):
        if layer_form(architecture, what) != "sequential":
            raise OdeumError(
                f"CTranslate2 has no translation models with the {what} '{spell(architecture)}'; {ELSEWHERE}"
            )
    depths = (s.depth, s.decoder_depth or s.depth)
    spec = specs.TransformerSpec.from_config(depths, s.heads, pre_norm=True, **_options(model, specs))
    for target, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        _ends(target, model, stack)
        for place, layer in zip(target.layer, acting_layers(stack), strict=True):
            _linear(place.self_attention.linear[0], layer, "attention.qkv")
            _linear(place.self_attention.linear[1], layer, "attention.out")
            _norm(place.self_attention.layer_norm, layer, "attention.norm")
            if target is spec.decoder:
                for index, name in enumerate(("q", "kv", "out")):
                    _linear(place.attention.linear[index], layer, f"cross.{name}")
                _norm(place.attention.layer_norm, layer, "cross.norm")
            _feed_forward(place.ffn, layer, gated=s.activation == "swiglu")
            _norm(place.ffn.layer_norm, layer, "feedforward.norm")
    return spec


def _feed_forward(spec: Any, layer: dict[str, Tensor], gated: bool) -> None:
    if not gated:
        _linear(spec.linear_0, layer, "feedforward.up")
    else:
        parts = {name: tensor.chunk(2) for name, tensor in layer.items() if name.startswith("feedforward.up")}
        for index, target in enumerate((spec.linear_0, spec.linear_0_noact)):
            _linear(target, {name: both[index] for name, both in parts.items()}, "feedforward.up")
    _linear(spec.linear_1, layer, "feedforward.down")


def _linear(spec: Any, layer: dict[str, Tensor], name: str) -> None:
    spec.weight = _array(layer[f"{name}.weight"])
    if f"{name}.bias" in layer:
        spec.bias = _array(layer[f"{name}.bias"])


def _norm(spec: Any, layer: dict[str, Tensor], name: str) -> None:
    spec.gamma = _array(layer[f"{name}.weight"])
    if f"{name}.bias" in layer:
        spec.beta = _array(layer[f"{name}.bias"])


def _array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().float().contiguous().numpy()
