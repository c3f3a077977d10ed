"""Import of pretrained models: `odeum.interop.load(SOURCE)` is an Odeum model with the weights of another library's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError, choose, notice
from odeum.fields.roles import find
from odeum.interop import causal_families, image_families, text_families, translation_families
from odeum.interop.reading import Config, Converted, NamedWeights, convert_errors
from odeum.interop.sources import PretrainedSource, open_source
from odeum.models import assemble
from odeum.models.base import OdeumModel
from odeum.models.tensors import not_finite

PREFIXES = (
    *("transformer.", "gpt_neox.", "model.", "bert.", "roberta.", "distilbert.", "albert."),
    *("vit.", "deit.", "dinov2.", "dinov2_with_registers.", "vision_model."),
)
IMPORTS: dict[str, Callable[[Config, NamedWeights], Converted]] = {
    **causal_families.READERS,
    **text_families.READERS,
    **image_families.READERS,
    "marian": translation_families.marian,
    "timm_vit": image_families.timm_vit,
}
FAMILY_PREFIXES: tuple[tuple[str, str], ...] = (
    ("encoder.albert_layer_groups.0.", "albert"),
    ("transformer.layer.0.attention.q_lin.", "distilbert"),
    ("roberta.", "roberta"),
    ("lm_head.layer_norm.", "roberta"),
    ("classifier.out_proj.", "roberta"),
    ("encoder.layer.0.attention.self.", "bert"),
    ("embeddings.register_tokens", "dinov2_with_registers"),
    ("encoder.layer.0.layer_scale1.", "dinov2"),
    ("embeddings.class_embedding", "clip_vision_model"),
    ("embeddings.distillation_token", "deit"),
    ("embeddings.patch_embeddings.", "vit"),
    ("blocks.0.attn.qkv.", "timm_vit"),
    ("h.0.attn.c_attn.", "gpt2"),
    ("h.0.attn.q_proj.", "gptj"),
    ("embed_in.", "gpt_neox"),
    ("decoder.layers.0.fc1.", "opt"),
    ("layers.0.self_attn.dense.", "phi"),
    ("layers.0.post_feedforward_layernorm.", "olmo2"),
    ("layers.0.self_attn.qkv_proj.", "phi3"),
    ("layers.0.self_attn.q_norm.", "qwen3"),
    ("layers.0.mlp.gate_proj.", "llama"),
)
"""beginnings of weight names that identify a family, the most specific first"""
_EXPERTS = "its feed-forward networks are mixtures of experts"
_RELATIVE = "its positions are biases of the attention scores"
_SIDES = "its encoder and its decoder have position tables and embedding norms of their own"
MISSING: dict[str, str] = {
    **dict.fromkeys(("bart", "mbart"), _SIDES),
    **dict.fromkeys(("t5", "mt5", "umt5", "bloom", "mpt", "deberta", "deberta-v2"), _RELATIVE),
    **dict.fromkeys(("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v3", "gpt_oss", "phimoe"), _EXPERTS),
    **dict.fromkeys(("mamba", "mamba2", "rwkv", "falcon_mamba"), "its layers have no attention"),
    "gemma2": "attention scores and logits are bounded (softcapping), and every second layer has a sliding window",
    **dict.fromkeys(
        ("gemma3", "gemma3_text"), "most of its layers have a sliding window and rotary positions with another base"
    ),
    **dict.fromkeys(("olmo3", "cohere2"), "most of its layers have a sliding window"),
    "swin": "its attention is limited to shifted windows",
    "odeum": "it is a run of Odeum, written by --to hf; use the run itself, or load it with `import odeum.hf`",
}
"""types that cannot be imported, with the part that Odeum does not have or another reason"""
IGNORED_BUFFERS = r"(attn\.(masked_)?bias|attention\.(masked_)?bias|rotary_emb\.inv_freq|position_ids|embed_positions)"
"""buffers that hold no weights"""
EXTRA_HEADS = re.compile(r"(cls\.(?!predictions\.)\w+|sop_classifier)\..*")
"""heads beside the one for masked tokens, which do not affect its logits"""


class Imported(NamedTuple):
    """An imported model, its source, and notes for the user."""

    model: OdeumModel
    family: str
    notes: list[str]
    source: PretrainedSource
    new_head: bool
    """whether the source has no head, so that the model has an untrained one"""


def load(source: str | Path | nn.Module | Mapping[str, Tensor], family: str | None = None) -> OdeumModel:
    """An Odeum model with the weights of a pretrained one, in evaluation mode and float32.

    Args:
        source: a directory with config.json and weights, a .safetensors or .bin file, a name on the hub, a module of
            transformers or timm, or tensors by name.
        family: the family, if neither the configuration nor the weight names determine it: gpt2, gpt_neox, gptj,
            llama, mistral, qwen2, qwen3, gemma, olmo, olmo2, phi, phi3, opt, bert, roberta, distilbert, albert, vit,
            deit, dinov2, clip_vision_model, marian, timm_vit.

    Differences from the source, such as a new head, are notices.
    """
    imported = read_pretrained(source, family)
    for note in imported.notes:
        notice(note)
    return imported.model


def read_pretrained(source: str | Path | nn.Module | Mapping[str, Tensor], family: str | None = None) -> Imported:
    """Like `load`, with the family, the notes and the source."""
    opened = open_source(source)
    weights = NamedWeights(opened.tensors, PREFIXES)
    kind = _family(opened, weights, family)
    config = Config(opened.config, kind)
    if (named := opened.config.get("model_type")) not in (None, kind):
        config.notes.append(f"the configuration calls this a {named}; it is read as a {kind}, as requested")
    if not opened.config:
        config.notes.append(f"there is no configuration; activation, norms and positions are the defaults of {kind}")
    with convert_errors(f"the configuration of '{opened.name}' cannot be read as a {kind}"):
        converted = IMPORTS[kind](config, weights)
    config.refuse_other_sizes(converted.settings)
    config.note_unknown()
    left = weights.left(IGNORED_BUFFERS)
    if heads := sorted({match[1] for name in left if (match := EXTRA_HEADS.fullmatch(name))}):
        config.notes.append(f"heads that are left out: {', '.join(heads)}")
    if left := [name for name in left if not EXTRA_HEADS.fullmatch(name)]:
        raise OdeumError(
            f"{len(left)} tensors of this {kind} have no counterpart in Odeum, such as '{left[0]}', so this model "
            "cannot be imported"
        )
    return Imported(_build(converted), kind, converted.notes, opened, converted.new_head)


def _family(opened: PretrainedSource, weights: NamedWeights, given: str | None) -> str:
    if given is not None:
        return choose(given, IMPORTS, "family")
    named = opened.config.get("model_type")
    if isinstance(named, str) and named in IMPORTS:
        return named
    if isinstance(named, str) and named in MISSING:
        raise OdeumError(f"a model of the type '{named}' cannot be imported: {MISSING[named]}")
    if named is not None:
        raise OdeumError(
            f"a model of the type '{named}' cannot be imported; known: {', '.join(IMPORTS)} (if its weights have "
            "the names of one of these, give it as --family)"
        )
    for beginning, family in FAMILY_PREFIXES:
        if any(name.startswith(beginning) for name in (*weights.tensors, *opened.tensors)):
            return "olmo" if family == "llama" and "layers.0.input_layernorm.weight" not in weights else family
    raise OdeumError(
        f"'{opened.name}' has no config.json, and its weight names belong to no known family; give it as "
        f"--family: {', '.join(IMPORTS)}"
    )


def _build(converted: Converted) -> OdeumModel:
    if broken := not_finite(converted.weights):
        raise OdeumError(f"the weights contain values that are not finite, in {broken}")
    model = assemble(converted.architecture, converted.settings)
    assert isinstance(model, OdeumModel)
    paths = find(model, converted.weights)
    state = {paths[name]: tensor.contiguous().clone() for name, tensor in converted.weights.items()}
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name, tensor in state.items():
        if wanted.get(name) != tuple(tensor.shape):
            raise OdeumError(
                f"{name} must have the shape {list(wanted.get(name, ()))}, but has {list(tensor.shape)} in the source"
            )
    missing = sorted(wanted.keys() - state.keys())
    heads = ("head.", "transform", "bias", "norm.") if converted.new_head else ()
    if lost := [name for name in missing if not name.startswith(heads or "\0")]:
        raise OdeumError(f"the source has no weights for {lost[0]}")
    with torch.no_grad():
        model.load_state_dict(state, strict=False)
    return model.eval()
