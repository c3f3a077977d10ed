"""Causal language models of transformers: the names of their parts, and changes of tensors before they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.interop.reading import Config, Converted, NamedWeights, Names, check_rotary_width
from odeum.models.pretrained import AttentionSettings, EmbeddingSettings, Pretrained
from odeum.models.settings import Language

SIZES = {"hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_key_value_heads", "ffn_dim"}
SIZES |= {"n_embd", "n_layer", "n_positions", "n_inner", "attention_bias", "mlp_bias", "rotary", "enable_bias"}
"""values that the weights determine"""

SEQUENTIAL = Layered()


@dataclass(frozen=True)
class Family:
    """One family of causal language models."""

    layers: str
    """name of the list of layers"""
    names: Names
    """of the parts of a layer"""
    norm: str
    """name of the last norm"""
    table: str = "embed_tokens"
    positions: str | None = None
    """name of the learned table of positions (None: rotary)"""
    output: tuple[str, ...] = ("lm_head",)
    """names of the output matrix; the first that is present is used"""
    tied: bool = False
    """whether the embedding is the output matrix if the configuration does not say"""
    scaled: bool = False
    """whether token embeddings are multiplied by √width"""
    architecture: Layered | Callable[[Config], Layered] = SEQUENTIAL
    norm_kind: Literal["layer", "rms"] = "layer"
    heads: tuple[str, ...] = ("num_attention_heads",)
    activation: tuple[str, ...] = ("hidden_act",)
    default_activation: str = "silu"
    gated: bool = False
    eps: tuple[str, float] = ("layer_norm_eps", 1e-5)
    length: tuple[str, int] = ("max_position_embeddings", 2048)
    dropout: tuple[tuple[str, ...], tuple[str, ...]] = ((), ("attention_dropout",))
    """names of the dropout of the residual branches and of the attention weights"""
    rotary: float = 1.0
    """share of the features of a head that rotary positions turn, if the configuration does not say"""
    own_rotary: Callable[[Config, int], AttentionSettings] | None = None
    """reads rotary settings with other names; the last argument is the width of a head"""
    partial_rotary: bool = False
    """whether the family supports a share below 1"""
    prepare: Callable[[Config, NamedWeights, int], None] | None = None
    """checks the configuration and changes tensors under their own names; the last argument is the number of heads"""


def _attention_width(config: Config, layer: Mapping[str, Tensor], width: int, heads: int) -> tuple[int, int]:
    """Width of a head and number of key-value heads, determined by the weights."""
    size = int(config.number("head_dim", default=width // heads))
    rows, queries = (layer[f"attention.{name}.weight"].shape[i] for i, name in enumerate(("qkv", "out")))
    groups = (rows // size - heads) // 2
    if heads * size != queries or groups < 1 or (heads + 2 * groups) * size != rows:
        raise OdeumError(f"{heads} heads of {size} features do not fit the weights of this {config.family}")
    return size, groups


def _refuse_windows(config: Config, length: int) -> None:
    window = config.number("sliding_window", default=0)
    used = config.values.get("use_sliding_window", True)
    if window and window < length and used:
        raise OdeumError(
            f"sliding_window={window} of this {config.family} cannot be imported: it is shorter than the context of "
            f"{length} tokens"
        )
    named = config.values.get("layer_types") or []
    kinds = set(named if isinstance(named, list) else [str(named)]) - {"full_attention"}
    if kinds and used:
        raise OdeumError(f"layers of the kind {min(kinds)} cannot be imported: only full attention is supported")


def _ends(config: Config, weights: NamedWeights, family: Family) -> tuple[dict[str, Tensor], EmbeddingSettings]:
    """The embedding, and the output matrix if its values differ from it; the configuration does not decide."""
    out, scaled = {"embedding.weight": weights.take(f"{family.table}.weight")}, family.scaled
    head = next((name for name in family.output if f"{name}.weight" in weights or f"{name}.bias" in weights), None)
    if head is None:
        if not config.get("tie_word_embeddings", default=family.tied):
            config.notes.append("the source has no output matrix; the embedding is used as output matrix")
        return out, EmbeddingSettings(tied=True, scaled=scaled)
    config.read.add("tie_word_embeddings")
    matrix = weights.take(f"{head}.weight") if f"{head}.weight" in weights else out["embedding.weight"]
    if bias := f"{head}.bias" in weights:
        out["output.bias"] = weights.take(f"{head}.bias")
    elif torch.equal(matrix, out["embedding.weight"]):
        return out, EmbeddingSettings(tied=True, scaled=scaled)
    out["output.weight"] = matrix
    return out, EmbeddingSettings(tied=False, bias=bias, scaled=scaled)


def _read(family: Family, config: Config, weights: NamedWeights) -> Converted:
    width = weights.take(f"{family.table}.weight").shape[1]
    heads = config.heads(width, *family.heads)
    if family.prepare is not None:
        family.prepare(config, weights, heads)
    out, embedding = _ends(config, weights, family)
    depth, layers = weights.layers("stack.layers", family.layers, family.names, family.norm_kind)
    first = {role.removeprefix("stack.layers.0."): tensor for role, tensor in layers.items()}
    biased = any(name.endswith(".bias") and "norm" not in name for name in weights.tensors if family.layers in name)
    out |= {role: x for role, x in layers.items() if biased or "norm" in role or role.endswith("weight")}
    size, groups = _attention_width(config, first, width, heads)
    out |= weights.norm("stack.norm", family.norm, family.norm_kind)
    length = int(config.number(family.length[0], default=family.length[1]))
    if family.positions is not None:
        out["positions.table.weight"] = weights.take(f"{family.positions}.weight")
        length, attention = out["positions.table.weight"].shape[0], AttentionSettings()
    elif family.own_rotary is not None:
        attention = family.own_rotary(config, size)
    else:
        base, rotated, scaling = config.rotary(size, family.rotary)
        if rotated != size and not family.partial_rotary:
            raise OdeumError(
                f"partial_rotary_factor={rotated / size:g} of this {config.family} cannot be imported: the models of "
                "transformers rotate all features of a head"
            )
        attention = AttentionSettings(
            key_value_heads=None if groups == heads else groups,
            head_width=None if size * heads == width else size,
            qk_norm=first.get("attention.q_norm.weight", torch.ones(0)).shape[0] == size,
            joint_qk_norm=first.get("attention.q_norm.weight", torch.ones(size)).shape[0] != size,
            rotary_base=base,
            rotary_width=rotated,
            rotary_scaling=scaling,
        )
    _refuse_windows(config, length)
    plain, special = config.activation(*family.activation, default=family.default_activation, gated=family.gated)
    settings = Language(
        width=width,
        heads=heads,
        depth=depth,
        hidden=first["feedforward.down.weight"].shape[1],
        activation=plain,
        norm_kind=family.norm_kind,
        norm_eps=float(config.number(family.eps[0], default=family.eps[1])),
        bias=biased,
        dropout=config.dropout(*family.dropout),
        vocabulary=out["embedding.weight"].shape[0],
        length=length,
        positions="rotary" if family.positions is None else "learned",
        pretrained=Pretrained(config.family, special, attention, embedding),
    )
    config.known(*SIZES)
    architecture = family.architecture
    return Converted(settings, architecture(config) if callable(architecture) else architecture, out, config.notes)


# Changes of the tensors of single families


def _prepare_gpt2(config: Config, weights: NamedWeights, heads: int) -> None:
    """Linear maps are stored transposed; the scale of the attention scores is multiplied into the queries."""
    config.must("add_cross_attention", False, why="it has attention to an encoder")
    scaled = config.get("scale_attn_weights", default=True)
    by_layer = config.get("scale_attn_by_inverse_layer_idx", default=False)
    weights.change(r".*\.c_(attn|proj|fc)\.weight", lambda w: w.T)
    width = weights.take("wte.weight").shape[1]
    for i in range(weights.count("h")):
        factor = (1.0 if scaled else (width // heads) ** 0.5) / (i + 1 if by_layer else 1)
        if factor != 1.0:
            weights.change(
                rf"h\.{i}\.attn\.c_attn\..*", lambda x, factor=factor: torch.cat((x[:width] * factor, x[width:]))
            )


def _prepare_neox(config: Config, weights: NamedWeights, heads: int) -> None:
    """Queries, keys and values are stored head by head."""
    weights.change(r".*\.query_key_value\..*", lambda x: x.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2))


def _neox_architecture(config: Config) -> Layered:
    return Layered(method="euler") if config.get("use_parallel_residual", default=True) else Layered()


def _gptj_rotary(config: Config, size: int) -> AttentionSettings:
    rotated = int(config.number("rotary_dim", default=min(64, size)))
    return AttentionSettings(rotary_width=check_rotary_width("rotary_dim", rotated, size, rotated))


def _prepare_gptj(config: Config, weights: NamedWeights, heads: int) -> None:
    """Rotary positions turn neighbouring features, so the features of queries and keys are reordered."""
    size = weights.take("wte.weight").shape[1] // heads
    rotated = _gptj_rotary(config, size).rotary_width
    assert rotated is not None
    order = torch.cat((torch.arange(0, rotated, 2), torch.arange(1, rotated, 2), torch.arange(rotated, size)))
    weights.change(r".*\.attn\.[qk]_proj\..*", lambda x: x.unflatten(0, (heads, size))[:, order].flatten(0, 1))


def _prepare_llama(config: Config, weights: NamedWeights, heads: int) -> None:
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"):
        config.must(name, why="scores or logits would be bounded or scaled")


def _prepare_gemma(config: Config, weights: NamedWeights, heads: int) -> None:
    """A norm multiplies by 1 + its weight."""
    _prepare_llama(config, weights, heads)
    config.must("use_bidirectional_attention", False, why="it attends to later tokens")
    config.must("hidden_activation", "gelu_pytorch_tanh", why="versions of transformers interpret it differently")
    if config.values.get("hidden_act") == "gelu":  # in the first releases, which meant the tanh approximation
        config.values = {**config.values, "hidden_act": "gelu_pytorch_tanh"}
    weights.change(r".*norm\.weight", lambda w: 1.0 + w)


def _prepare_phi(config: Config, weights: NamedWeights, heads: int) -> None:
    config.must("qk_layernorm", False, why="the norms of queries and keys have biases")


def _prepare_opt(config: Config, weights: NamedWeights, heads: int) -> None:
    """The first two rows of the table of positions stand for padding."""
    config.must("do_layer_norm_before", True, why="it norms after each branch (OPT-350m)")
    config.must("layer_norm_elementwise_affine", True, why="its norms have no weights")
    if "decoder.project_in.weight" in weights:
        raise OdeumError(
            "word_embed_proj_dim of this opt cannot be imported: its embedding is narrower than its layers"
        )
    weights.change(r"decoder\.embed_positions\.weight", lambda w: w[2:])


def _prepare_olmo(config: Config, weights: NamedWeights, heads: int) -> None:
    """Its norms have neither weights nor biases."""
    config.must("clip_qkv", why="queries, keys and values would be clipped")
    width = weights.take("embed_tokens.weight").shape[1]
    depth = weights.count("layers")
    for name in ("norm", *(f"layers.{i}.{part}" for i in range(depth) for part in OLMO_NORMS)):
        weights.tensors |= {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}


OLMO_NORMS = ("input_layernorm", "post_attention_layernorm")
LLAMA_LAYER: Names = {
    "attention.norm": "input_layernorm",
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": "self_attn.o_proj",
    "attention.q_norm?": "self_attn.q_norm",
    "attention.k_norm?": "self_attn.k_norm",
    "feedforward.norm": "post_attention_layernorm",
    "feedforward.up": ("mlp.gate_proj", "mlp.up_proj"),
    "feedforward.down": "mlp.down_proj",
}
GPT2_NAMES: dict[str, Any] = {
    "heads": ("n_head", "num_attention_heads"),
    "activation": ("activation_function",),
    "default_activation": "gelu_new",
    "eps": ("layer_norm_epsilon", 1e-5),
    "length": ("n_positions", 2048),
    "dropout": (("resid_pdrop",), ("attn_pdrop",)),
}
LLAMA = Family(
    "layers", LLAMA_LAYER, "norm", norm_kind="rms", gated=True, eps=("rms_norm_eps", 1e-6), prepare=_prepare_llama
)
FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "h",
        {
            "attention.norm": "ln_1",
            "attention.qkv": "attn.c_attn",
            "attention.out": "attn.c_proj",
            "feedforward.norm": "ln_2",
            "feedforward.up": "mlp.c_fc",
            "feedforward.down": "mlp.c_proj",
        },
        "ln_f",
        table="wte",
        positions="wpe",
        tied=True,
        prepare=_prepare_gpt2,
        **GPT2_NAMES,
    ),
    "gpt_neox": Family(
        "layers",
        {
            "attention.norm": "input_layernorm",
            "attention.qkv": "attention.query_key_value",
            "attention.out": "attention.dense",
            "feedforward.norm": "post_attention_layernorm",
            "feedforward.up": "mlp.dense_h_to_4h",
            "feedforward.down": "mlp.dense_4h_to_h",
        },
        "final_layer_norm",
        table="embed_in",
        output=("embed_out", "lm_head"),
        architecture=_neox_architecture,
        default_activation="gelu",
        dropout=(("hidden_dropout",), ("attention_dropout",)),
        rotary=0.25,
        partial_rotary=True,
        prepare=_prepare_neox,
    ),
    "gptj": Family(
        "h",
        {
            "norm": "ln_1",
            "attention.qkv": ("attn.q_proj", "attn.k_proj", "attn.v_proj"),
            "attention.out": "attn.out_proj",
            "feedforward.up": "mlp.fc_in",
            "feedforward.down": "mlp.fc_out",
        },
        "ln_f",
        table="wte",
        architecture=Layered(method="euler", norm="shared"),
        own_rotary=_gptj_rotary,
        prepare=_prepare_gptj,
        **GPT2_NAMES,
    ),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), LLAMA),
    "gemma": Family(
        "layers",
        LLAMA_LAYER,
        "norm",
        tied=True,
        scaled=True,
        norm_kind="rms",
        gated=True,
        default_activation="gelu_pytorch_tanh",
        eps=("rms_norm_eps", 1e-6),
        prepare=_prepare_gemma,
    ),
    "phi3": replace(
        LLAMA,
        names={**LLAMA_LAYER, "attention.qkv": "self_attn.qkv_proj", "feedforward.up": "mlp.gate_up_proj"},
        eps=("rms_norm_eps", 1e-5),
        dropout=(("resid_pdrop",), ("attention_dropout",)),
        partial_rotary=True,
    ),
    "olmo": Family("layers", LLAMA_LAYER, "norm", gated=True, eps=("", 1e-5), prepare=_prepare_olmo),
    "olmo2": replace(
        LLAMA,
        names={
            **{role: name for role, name in LLAMA_LAYER.items() if not role.endswith(".norm")},
            "attention.outer": "post_attention_layernorm",
            "feedforward.outer": "post_feedforward_layernorm",
        },
        architecture=Layered(norm="branch"),
        eps=("rms_norm_eps", 1e-5),
    ),
    "phi": Family(
        "layers",
        {
            "norm": "input_layernorm",
            "attention.qkv": LLAMA_LAYER["attention.qkv"],
            "attention.out": "self_attn.dense",
            "feedforward.up": "mlp.fc1",
            "feedforward.down": "mlp.fc2",
        },
        "final_layernorm",
        architecture=Layered(method="euler", norm="shared"),
        default_activation="gelu_new",
        dropout=(("resid_pdrop",), ("attention_dropout",)),
        rotary=0.5,
        partial_rotary=True,
        prepare=_prepare_phi,
    ),
    "opt": Family(
        "decoder.layers",
        {
            "attention.norm": "self_attn_layer_norm",
            "attention.qkv": LLAMA_LAYER["attention.qkv"],
            "attention.out": "self_attn.out_proj",
            "feedforward.norm": "final_layer_norm",
            "feedforward.up": "fc1",
            "feedforward.down": "fc2",
        },
        "decoder.final_layer_norm",
        table="decoder.embed_tokens",
        positions="decoder.embed_positions",
        tied=True,
        activation=("activation_function",),
        default_activation="relu",
        eps=("", 1e-5),
        dropout=(("dropout",), ("attention_dropout",)),
        prepare=_prepare_opt,
    ),
}
READERS = {name: partial(_read, family) for name, family in FAMILIES.items()}
