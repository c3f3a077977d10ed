"""Translation models of transformers: Marian, as in the OPUS-MT models."""

from __future__ import annotations

import torch
from torch import Tensor

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.interop.reading import Config, Converted, NamedWeights, Names
from odeum.models.pretrained import EmbeddingSettings, Pretrained
from odeum.models.settings import Translation

ENCODER: Names = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": "self_attn.out_proj",
    "attention.norm": "self_attn_layer_norm",
    "feedforward.up": "fc1",
    "feedforward.down": "fc2",
    "feedforward.norm": "final_layer_norm",
}
DECODER: Names = {
    **ENCODER,
    "cross.q": "encoder_attn.q_proj",
    "cross.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out": "encoder_attn.out_proj",
    "cross.norm": "encoder_attn_layer_norm",
}
MUST: dict[str, tuple[object, str]] = {
    "share_encoder_decoder_embeddings": (True, "source and target have different embeddings"),
    "normalize_before": (False, "it is pre-norm"),
    "normalize_embedding": (False, "its embedding has a norm"),
    "add_final_layer_norm": (False, "it has a norm after the last layer"),
    "tie_word_embeddings": (True, "the output matrix is not the embedding"),
}


def sines(length: int, width: int) -> Tensor:
    """Marian's positions: [sin ‖ cos] with wavelengths 2π · 10000^(2 k / width)."""
    steps = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * 10_000.0**-steps
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :width].float()


def marian(config: Config, weights: NamedWeights) -> Converted:
    """Post-norm encoder and decoder, one embedding, logits with bias; positions are stored as a learned table."""
    for name, (allowed, why) in MUST.items():
        config.must(name, allowed, why=why)
    table = weights.take("shared.weight")
    vocabulary, width = table.shape
    config.must("decoder_vocab_size", vocabulary, why=MUST["share_encoder_decoder_embeddings"][1])
    length = int(config.number("max_position_embeddings", default=1024))
    out = {"embedding.weight": table, "positions.table.weight": sines(length, width)}
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        if name in weights and not torch.equal(weights.take(name), table):
            raise OdeumError(f"'{name}' of this marian differs from its embedding; it cannot be imported")
    for name in ("encoder.embed_positions.weight", "decoder.embed_positions.weight"):
        if name in weights and not torch.allclose(weights.take(name), out["positions.table.weight"], atol=1e-4):
            raise OdeumError(f"'{name}' of this marian is not the sinusoidal table; it cannot be imported")
    bias = "final_logits_bias" in weights
    if bias:
        out["embedding.bias"] = weights.take("final_logits_bias").flatten()
    depths = {}
    for side, names in (("encoder", ENCODER), ("decoder", DECODER)):
        depths[side], layers = weights.layers(f"{side}.layers", f"{side}.layers", names)
        out |= layers
    heads = config.heads(width, "encoder_attention_heads")
    hidden = out["encoder.layers.0.feedforward.up.weight"].shape[0]
    config.must("decoder_attention_heads", heads, why=f"its encoder has {heads} heads")
    config.must("decoder_ffn_dim", hidden, why=f"the feed-forward of its encoder has {hidden} features")
    plain, special = config.activation("activation_function", default="gelu")
    settings = Translation(
        width=width,
        heads=heads,
        depth=depths["encoder"],
        decoder_depth=depths["decoder"],
        hidden=hidden,
        activation=plain,
        norm_eps=1e-5,
        dropout=config.dropout(("dropout",), ("attention_dropout",)),
        vocabulary=vocabulary,
        length=length,
        positions="learned",
        pretrained=Pretrained(
            "marian",
            special,
            embedding=EmbeddingSettings(scaled=bool(config.get("scale_embedding", default=False)), bias=bias),
        ),
    )
    config.known("d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "vocab_size", "num_hidden_layers")
    config.known("encoder_layerdrop", "decoder_layerdrop", "init_std", "static_position_embeddings", "add_bias_logits")
    return Converted(settings, Layered(norm="post"), out, config.notes)
