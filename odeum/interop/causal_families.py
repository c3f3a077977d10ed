"""Language models of others: GPT-2, GPT-NeoX and Pythia, GPT-J, and those in the manner of Llama."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.interop.reading import (
    Config,
    Converted,
    NamedWeights,
    activation,
    check_rotary_width,
    dropout_of,
    heads_of,
    linear,
    norm,
    rotary_of,
    stacked,
)
from odeum.models.pretrained import AttentionSettings, EmbeddingSettings, Pretrained
from odeum.models.settings import Language


def _ends(config: Config, weights: NamedWeights, table: str, *heads: str, tied: bool) -> tuple[dict[str, Tensor], Any]:
    """The embedding and the output matrix, if it is another one: the numbers say so, as in transformers.

    `tied` is whether the family's embedding serves at both ends where its configuration does not say it.
    """
    out = {"embedding.weight": weights.take(table)}
    head = next((name for name in heads if f"{name}.weight" in weights or f"{name}.bias" in weights), None)
    if head is None:
        if not config.get("tie_word_embeddings", default=tied):
            config.notes.append("the source has no output matrix: that of the embedding stands in its place")
        return out, EmbeddingSettings(tied=True)
    config.read.add("tie_word_embeddings")
    matrix = weights.take(f"{head}.weight") if f"{head}.weight" in weights else out["embedding.weight"]
    if bias := f"{head}.bias" in weights:
        out["output.bias"] = weights.take(f"{head}.bias")
    elif torch.equal(matrix, out["embedding.weight"]):
        return out, EmbeddingSettings(tied=True)
    out["output.weight"] = matrix
    return out, EmbeddingSettings(tied=False, bias=bias)


def gpt2(config: Config, weights: NamedWeights) -> Converted:
    """Pre-norm, sequential, learned positions; maps are stored the other way round."""
    table, places = weights.take("wte.weight"), weights.take("wpe.weight")
    width, depth = table.shape[1], weights.count(r"h\.(\d+)\.")
    heads = heads_of(config, width, "n_head", "num_attention_heads")
    config.must("add_cross_attention", False, why="it has attention to an encoder")
    scaled = config.get("scale_attn_weights", default=True)
    by_layer = config.get("scale_attn_by_inverse_layer_idx", default=False)
    plain, special = activation(config, "activation_function", default="gelu_new")
    ends, embedding = _ends(config, weights, "wte.weight", "lm_head", tied=True)
    out = {**ends, "positions.table.weight": places}
    for i in range(depth):
        ours, theirs = f"stack.layers.{i}", f"h.{i}"
        out |= norm(weights, f"{ours}.attention.norm", f"{theirs}.ln_1")
        out |= norm(weights, f"{ours}.feedforward.norm", f"{theirs}.ln_2")
        for map_, name in (
            ("attention.qkv", "attn.c_attn"),
            ("attention.out", "attn.c_proj"),
            ("feedforward.up", "mlp.c_fc"),
            ("feedforward.down", "mlp.c_proj"),
        ):
            out[f"{ours}.{map_}.weight"] = weights.take(f"{theirs}.{name}.weight").T.contiguous()
            out[f"{ours}.{map_}.bias"] = weights.take(f"{theirs}.{name}.bias")
        # the factor of the scores stands in the queries
        factor = (1.0 if scaled else (width // heads) ** 0.5) / (i + 1 if by_layer else 1)
        if factor != 1.0:
            for part in ("weight", "bias"):
                qkv = out[f"{ours}.attention.qkv.{part}"].clone()
                qkv[:width] *= factor
                out[f"{ours}.attention.qkv.{part}"] = qkv
    out |= norm(weights, "stack.norm", "ln_f")
    settings = Language(
        width=width,
        heads=heads,
        depth=depth,
        hidden=out["stack.layers.0.feedforward.up.weight"].shape[0],
        activation=plain,  # ty: ignore[invalid-argument-type]
        norm_eps=float(config.number("layer_norm_epsilon", default=1e-5)),
        dropout=dropout_of(config, ("resid_pdrop",), ("attn_pdrop",)),
        vocabulary=table.shape[0],
        length=places.shape[0],
        positions="learned",
        pretrained=Pretrained("gpt2", special, embedding=embedding),
    )
    config.read |= {"n_embd", "n_layer", "n_positions", "n_inner", "vocab_size"}
    return Converted(settings, Layered(), out, config.notes)


def gpt_neox(config: Config, weights: NamedWeights) -> Converted:
    """Parallel or sequential, partly rotary; queries, keys and values are stored head by head."""
    table = weights.take("embed_in.weight")
    width, depth = table.shape[1], weights.count(r"layers\.(\d+)\.")
    heads = heads_of(config, width, "num_attention_heads")
    size = width // heads
    base, turning = rotary_of(config, size, 0.25)
    plain, special = activation(config, "hidden_act", default="gelu")
    ends, embedding = _ends(config, weights, "embed_in.weight", "embed_out", "lm_head", tied=False)
    out = ends
    for i in range(depth):
        ours, theirs = f"stack.layers.{i}", f"layers.{i}"
        out |= norm(weights, f"{ours}.attention.norm", f"{theirs}.input_layernorm")
        out |= norm(weights, f"{ours}.feedforward.norm", f"{theirs}.post_attention_layernorm")
        out |= {
            name: part.unflatten(0, (heads, 3, size)).transpose(0, 1).flatten(0, 2)
            for name, part in linear(weights, f"{ours}.attention.qkv", f"{theirs}.attention.query_key_value").items()
        }
        out |= linear(weights, f"{ours}.attention.out", f"{theirs}.attention.dense")
        out |= linear(weights, f"{ours}.feedforward.up", f"{theirs}.mlp.dense_h_to_4h")
        out |= linear(weights, f"{ours}.feedforward.down", f"{theirs}.mlp.dense_4h_to_h")
    out |= norm(weights, "stack.norm", "final_layer_norm")
    settings = Language(
        width=width,
        heads=heads,
        depth=depth,
        hidden=out["stack.layers.0.feedforward.up.weight"].shape[0],
        activation=plain,  # ty: ignore[invalid-argument-type]
        norm_eps=float(config.number("layer_norm_eps", default=1e-5)),
        dropout=dropout_of(config, ("hidden_dropout",), ("attention_dropout",)),
        vocabulary=table.shape[0],
        length=int(config.number("max_position_embeddings", default=2048)),
        positions="rotary",
        pretrained=Pretrained(
            "gpt_neox", special, AttentionSettings(rotary_base=base, rotary_width=turning), embedding
        ),
    )
    config.read |= {"hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "attention_bias"}
    parallel = config.get("use_parallel_residual", default=True)
    return Converted(settings, Layered(method="euler") if parallel else Layered(), out, config.notes)


def gptj(config: Config, weights: NamedWeights) -> Converted:
    """Parallel under one norm; neighbouring features turn, which is another order of the same features."""
    table = weights.take("wte.weight")
    width, depth = table.shape[1], weights.count(r"h\.(\d+)\.")
    heads = heads_of(config, width, "n_head", "num_attention_heads")
    size = width // heads
    turning = int(config.number("rotary_dim", default=min(64, size)))
    turning = check_rotary_width("rotary_dim", turning, size, turning)
    plain, special = activation(config, "activation_function", default="gelu_new")
    ends, embedding = _ends(config, weights, "wte.weight", "lm_head", tied=False)
    order = torch.cat((torch.arange(0, turning, 2), torch.arange(1, turning, 2), torch.arange(turning, size)))
    out = ends
    for i in range(depth):
        ours, theirs = f"stack.layers.{i}", f"h.{i}"
        out |= norm(weights, f"{ours}.norm", f"{theirs}.ln_1")
        parts = stacked(weights, f"{ours}.attention.qkv", (f"{theirs}.attn.{name}_proj" for name in "qkv"))
        for name, part in parts.items():
            q, k, v = part.unflatten(0, (3, heads, size))
            out[name] = torch.cat((q[:, order].flatten(0, 1), k[:, order].flatten(0, 1), v.flatten(0, 1)))
        out |= linear(weights, f"{ours}.attention.out", f"{theirs}.attn.out_proj")
        out |= linear(weights, f"{ours}.feedforward.up", f"{theirs}.mlp.fc_in")
        out |= linear(weights, f"{ours}.feedforward.down", f"{theirs}.mlp.fc_out")
    out |= norm(weights, "stack.norm", "ln_f")
    settings = Language(
        width=width,
        heads=heads,
        depth=depth,
        hidden=out["stack.layers.0.feedforward.up.weight"].shape[0],
        activation=plain,  # ty: ignore[invalid-argument-type]
        norm_eps=float(config.number("layer_norm_epsilon", default=1e-5)),
        dropout=dropout_of(config, ("resid_pdrop",), ("attn_pdrop",)),
        vocabulary=table.shape[0],
        length=int(config.number("n_positions", default=2048)),
        positions="rotary",
        pretrained=Pretrained("gptj", special, AttentionSettings(rotary_width=turning), embedding),
    )
    config.read |= {"n_embd", "n_layer", "n_inner", "vocab_size", "rotary"}
    return Converted(settings, Layered(method="euler", norm="shared"), out, config.notes)


def llama(config: Config, weights: NamedWeights) -> Converted:
    """RMS norms, a gated feed-forward, rotary positions, and keys and values that several heads share."""
    table = weights.take("embed_tokens.weight")
    width, depth = table.shape[1], weights.count(r"layers\.(\d+)\.")
    heads = heads_of(config, width, "num_attention_heads")
    size = int(config.number("head_dim", default=width // heads))
    queries, keys = (weights.take(f"layers.0.self_attn.{name}_proj.weight").shape[0] for name in "qk")
    groups = keys // size
    if heads * size != queries or groups < 1:
        raise OdeumError(f"{heads} heads of {size} features do not fit the weights of this {config.family}")
    length = int(config.number("max_position_embeddings", default=2048))
    window = config.number("sliding_window", default=0)
    if window and window < length and config.values.get("use_sliding_window", True):
        raise OdeumError(
            f"sliding_window={window} of this {config.family} cannot be imported: its attention looks at fewer tokens "
            f"than the {length} of a text"
        )
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"):
        config.must(name, why="scores or logits would be bounded or scaled")
    named = config.values.get("layer_types") or []
    kinds = set(named if isinstance(named, list) else [str(named)])
    if kinds - {"full_attention"} and config.values.get("use_sliding_window", True):
        raise OdeumError(
            f"layers of the kind {min(kinds - {'full_attention'})} cannot be imported: only full attention is known"
        )
    base, turning = rotary_of(config, size, 1.0)
    if turning != size:
        raise OdeumError(
            f"partial_rotary_factor={turning / size:g} of this {config.family} cannot be imported: transformers turns "
            "all features of a head, and others do not"
        )
    plain, special = activation(config, "hidden_act", default="silu", gated=True)
    ends, embedding = _ends(config, weights, "embed_tokens.weight", "lm_head", tied=False)
    normed = "layers.0.self_attn.q_norm.weight" in weights
    biased = any(name.endswith("_proj.bias") for name in weights.tensors)
    out = ends
    for i in range(depth):
        ours, theirs = f"stack.layers.{i}", f"layers.{i}"
        out[f"{ours}.attention.norm.weight"] = weights.take(f"{theirs}.input_layernorm.weight")
        out[f"{ours}.feedforward.norm.weight"] = weights.take(f"{theirs}.post_attention_layernorm.weight")
        maps = stacked(weights, f"{ours}.attention.qkv", (f"{theirs}.self_attn.{name}_proj" for name in "qkv"))
        maps |= linear(weights, f"{ours}.attention.out", f"{theirs}.self_attn.o_proj")
        maps |= stacked(weights, f"{ours}.feedforward.up", (f"{theirs}.mlp.{name}_proj" for name in ("gate", "up")))
        maps |= linear(weights, f"{ours}.feedforward.down", f"{theirs}.mlp.down_proj")
        out |= {name: part for name, part in maps.items() if biased or name.endswith("weight")}
        if normed:
            for name in "qk":
                out[f"{ours}.attention.{name}_norm.weight"] = weights.take(f"{theirs}.self_attn.{name}_norm.weight")
    out["stack.norm.weight"] = weights.take("norm.weight")
    attention = AttentionSettings(
        key_value_heads=None if groups == heads else groups,
        head_width=None if size * heads == width else size,
        qk_norm=normed,
        rotary_base=base,
        rotary_width=turning,
    )
    settings = Language(
        width=width,
        heads=heads,
        depth=depth,
        hidden=out["stack.layers.0.feedforward.down.weight"].shape[1],
        activation=plain,  # ty: ignore[invalid-argument-type]
        norm_kind="rms",
        norm_eps=float(config.number("rms_norm_eps", default=1e-6)),
        bias=biased,
        dropout=dropout_of(config, (), ("attention_dropout",)),
        vocabulary=table.shape[0],
        length=length,
        positions="rotary",
        pretrained=Pretrained(config.family, special, attention, embedding),
    )
    config.read |= {"hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_key_value_heads"}
    config.read |= {"attention_bias", "mlp_bias"}
    return Converted(settings, Layered(), out, config.notes)
