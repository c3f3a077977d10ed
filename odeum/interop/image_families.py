"""Vision transformers of others: ViT and DeiT of transformers, and those of timm."""

from __future__ import annotations

import torch
from torch import Tensor

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.interop.reading import (
    Config,
    Converted,
    NamedWeights,
    activation,
    dropout_of,
    heads_of,
    linear,
    norm,
    stacked,
)
from odeum.models.pretrained import Pretrained
from odeum.models.settings import Vision

NO_HEAD = "the source has no classifier: the head is new, and not trained"


def _settings(
    config: Config, out: dict[str, Tensor], depth: int, family: str, heads: int, pooling: str, pooled_norm: bool = False
) -> Vision:
    patch = out["patch.weight"]
    width, channels, height, wide = patch.shape
    tokens = out["token"].shape[1] if "token" in out else 0
    side = round((out["position"].shape[1] - tokens) ** 0.5)
    size = config.get("image_size", default=side * height)
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if not all(isinstance(value, int) for value in sides) or len(sides) != 2:
        raise OdeumError(f"image_size={size!r} in the configuration of this {family} must be a number, or two")
    if side**2 + tokens != out["position"].shape[1] or height != wide or sides != (side * height, side * height):
        raise OdeumError(
            f"image_size={size} of this {family} cannot be imported, with patches of {height} × {wide}: images are "
            "square here, and a whole number of patches, which are square too"
        )
    plain, special = activation(config, "hidden_act", default="gelu")
    config.read |= {"hidden_size", "num_hidden_layers", "intermediate_size", "patch_size", "image_size", "num_channels"}
    classes = out["head.weight"].shape[0] if "head.weight" in out else 2
    if "head.weight" not in out:
        config.notes.append(NO_HEAD)
    return Vision(
        width=width,
        heads=heads,
        depth=depth,
        hidden=out["stack.layers.0.feedforward.up.weight"].shape[0],
        activation=plain,  # ty: ignore[invalid-argument-type]
        norm_eps=float(config.number("layer_norm_eps", default=1e-6 if family == "timm_vit" else 1e-12)),
        dropout=dropout_of(config, ("hidden_dropout_prob",), ("attention_probs_dropout_prob",)),
        image_size=side * height,
        patch_size=height,
        channels=channels,
        pooling=pooling,  # ty: ignore[invalid-argument-type]
        classes=classes,
        pretrained=Pretrained(family, special, tokens=tokens, pooled_norm=pooled_norm),
    )


def vit(config: Config, weights: NamedWeights) -> Converted:
    """ViT and DeiT of transformers, under the names of their files or of the modules; the class token is read."""
    if "distillation_classifier.weight" in weights:
        raise OdeumError(
            "a DeiT with two classifiers cannot be imported: their mean is read off two tokens; take "
            "DeiTForImageClassification, which has one"
        )
    new = "layers.0.attention.q_proj.weight" in weights
    depth = weights.count(r"layers\.(\d+)\." if new else r"encoder\.layer\.(\d+)\.")
    token = weights.take("embeddings.cls_token")
    if "embeddings.distillation_token" in weights:
        token = torch.cat((token, weights.take("embeddings.distillation_token")), dim=1)
    out = {"token": token, "position": weights.take("embeddings.position_embeddings")}
    out |= linear(weights, "patch", "embeddings.patch_embeddings.projection")
    for i in range(depth):
        ours, theirs = f"stack.layers.{i}", f"layers.{i}" if new else f"encoder.layer.{i}"
        three = (
            [f"{theirs}.attention.{name}_proj" for name in "qkv"]
            if new
            else [f"{theirs}.attention.attention.{name}" for name in ("query", "key", "value")]
        )
        out |= norm(weights, f"{ours}.attention.norm", f"{theirs}.layernorm_before")
        out |= norm(weights, f"{ours}.feedforward.norm", f"{theirs}.layernorm_after")
        out |= stacked(weights, f"{ours}.attention.qkv", three)
        out |= linear(weights, f"{ours}.attention.out", f"{theirs}.attention.{'o_proj' if new else 'output.dense'}")
        out |= linear(weights, f"{ours}.feedforward.up", f"{theirs}.{'mlp.fc1' if new else 'intermediate.dense'}")
        out |= linear(weights, f"{ours}.feedforward.down", f"{theirs}.{'mlp.fc2' if new else 'output.dense'}")
    out |= norm(weights, "stack.norm", "layernorm")
    if "classifier.weight" in weights:
        out |= linear(weights, "head", "classifier")
    weights.taken |= {"pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"}
    heads = heads_of(config, token.shape[-1], "num_attention_heads")
    config.read |= {"qkv_bias"}
    return Converted(_settings(config, out, depth, config.family, heads, "token"), Layered(), out, config.notes)


TIMM_REFUSED = {
    ".attn.q_norm": "qk_norm",
    "norm_pre": "pre_norm",
    ".attn.norm": "scale_attn_norm",
    ".mlp.norm": "scale_mlp_norm",
    "attn_pool": "global_pool='map'",
    ".mlp.fc1_g": "mlp_layer=SwiGLU",
    "head_dist": "a second classifier (distilled)",
}
"""by what names of weights a setting of timm is known that would make another model"""


def _refuse_timm(config: Config, weights: NamedWeights) -> None:
    for sign, setting in TIMM_REFUSED.items():
        if name := next((name for name in weights.tensors if sign in name), None):
            raise OdeumError(f"{setting} of this timm model cannot be imported: there is no place for '{name}'")
    for name, setting in (("pos_embed", "pos_embed='none'"), ("blocks.0.mlp.fc1.weight", "mlp_layer")):
        if name not in weights:
            raise OdeumError(f"{setting} of this timm model cannot be imported: there is no '{name}'")
    if "norm.weight" not in weights and "fc_norm.weight" not in weights:
        raise OdeumError("final_norm=False of this timm model cannot be imported: there is no last norm")
    hidden, read = (weights.tensors[f"blocks.0.mlp.fc{i}.weight"].shape[i - 1] for i in (1, 2))
    if hidden != read:
        raise OdeumError(
            f"mlp_layer of this timm model cannot be imported: {hidden} features become {read}, so they are gated"
        )
    config.must("block", "Block", why="only plain blocks with two norms are known")
    config.must("pool_include_prefix", False, why="the mean is over the patches, without class token and registers")


def _timm_places(config: Config, weights: NamedWeights, prefix: int, patch: Tensor) -> Tensor:
    """Positions of the tokens before the patches, zeros where they have none, and of the patches."""
    places, size = weights.take("pos_embed"), config.values.get("image_size")
    size = size if isinstance(size, int | list | tuple) else None
    height, wide = (size if isinstance(size, list | tuple) else (size or 0, size or 0))[:2]
    known = None if size is None else (height // patch.shape[2]) * (wide // patch.shape[3])
    counts = {places.shape[1]: prefix, places.shape[1] - prefix: 0}  # patches, and how many zeros are needed
    fitting = [n for n in counts if (round(n**0.5) ** 2 == n if known is None else n == known)]
    if len(fitting) != 1:
        raise OdeumError(
            f"the {places.shape[1]} positions of this timm model with {prefix} tokens before the patches are not those "
            "of a square of patches that could be known for sure"
        )
    return torch.cat((torch.zeros(1, counts[fitting[0]], places.shape[2]), places), dim=1)


def timm_vit(config: Config, weights: NamedWeights) -> Converted:
    """The plain VisionTransformer of timm; a LayerScale is a factor of the maps before it."""
    _refuse_timm(config, weights)
    depth = weights.count(r"blocks\.(\d+)\.")
    out = linear(weights, "patch", "patch_embed.proj")
    tokens = [weights.take(name) for name in ("cls_token", "reg_token") if name in weights]
    if tokens:
        out["token"] = torch.cat(tokens, dim=1)
    prefix = sum(token.shape[1] for token in tokens)
    out["position"] = _timm_places(config, weights, prefix, out["patch.weight"])
    for i in range(depth):
        ours, theirs = f"stack.layers.{i}", f"blocks.{i}"
        out |= norm(weights, f"{ours}.attention.norm", f"{theirs}.norm1")
        out |= norm(weights, f"{ours}.feedforward.norm", f"{theirs}.norm2")
        out |= linear(weights, f"{ours}.attention.qkv", f"{theirs}.attn.qkv")
        out |= _scaled(weights, f"{ours}.attention.out", f"{theirs}.attn.proj", f"{theirs}.ls1.gamma")
        out |= linear(weights, f"{ours}.feedforward.up", f"{theirs}.mlp.fc1")
        out |= _scaled(weights, f"{ours}.feedforward.down", f"{theirs}.mlp.fc2", f"{theirs}.ls2.gamma")
    pooled = "fc_norm.weight" in weights
    out |= norm(weights, "norm" if pooled else "stack.norm", "fc_norm" if pooled else "norm")
    if "head.weight" in weights:
        out |= linear(weights, "head", "head")
    pool = config.get("global_pool", default="avg" if pooled or not tokens else "token")
    if pool not in ("avg", "token"):
        raise OdeumError(f"global_pool='{pool}' of this timm model cannot be imported; only token and avg are known")
    heads = heads_of(config, out["patch.weight"].shape[0], "num_attention_heads")
    pooling = "mean" if pool == "avg" else "token"
    config.read |= {"architecture", "num_classes", "num_features", "pretrained_cfg", "model_args"}
    return Converted(_settings(config, out, depth, "timm_vit", heads, pooling, pooled), Layered(), out, config.notes)


def _scaled(weights: NamedWeights, ours: str, theirs: str, gamma: str) -> dict[str, Tensor]:
    out = linear(weights, ours, theirs)
    name = gamma if gamma in weights else gamma.removesuffix(".gamma") + ".weight"  # read as the gain of a norm
    if name not in weights:
        return out
    factor = weights.take(name)
    return {f"{ours}.weight": out[f"{ours}.weight"] * factor[:, None], f"{ours}.bias": out[f"{ours}.bias"] * factor}
