"""Vision transformers: ViT, DeiT, DINOv2 and CLIP of transformers, and the VisionTransformer of timm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.interop.reading import Config, Converted, NamedWeights, Names
from odeum.models.pretrained import EmbeddingSettings, Pretrained
from odeum.models.settings import Vision

NEW_HEAD = "the source has no classifier; the head is new and untrained"


def _converted(
    config: Config,
    out: dict[str, Tensor],
    depth: int,
    heads: int,
    pooling: Literal["mean", "token"],
    form: Family | None = None,
) -> Converted:
    """The model of these weights, whose sizes it has."""
    patch = out["patch.weight"]
    width, channels, height, wide = patch.shape
    tokens = out["token"].shape[1] if "token" in out else 0
    side = round((out["position"].shape[1] - tokens) ** 0.5)
    size = config.get("image_size", default=side * height)
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if not all(isinstance(value, int) for value in sides) or len(sides) != 2:
        raise OdeumError(f"image_size={size!r} in the configuration of this {config.family} must be one number or two")
    if side**2 + tokens != out["position"].shape[1] or height != wide or sides != (side * height, side * height):
        raise OdeumError(
            f"image_size={size} of this {config.family} cannot be imported, with patches of {height} × {wide}: images "
            "must be square and consist of a whole number of square patches"
        )
    maps = (out[f"stack.layers.0.feedforward.{name}.weight"].shape for name in ("up", "down"))
    rows, hidden = (shape[i] for i, shape in enumerate(maps))
    plain, special = config.activation("hidden_act", default="gelu" if form is None else form.activation)
    if rows != hidden:  # the weights show that it is gated
        plain, special = "swiglu", None
    config.known("hidden_size", "num_hidden_layers", "intermediate_size", "patch_size", "image_size", "num_channels")
    classes = out["head.weight"].shape[0] if "head.weight" in out else 2
    if "head.weight" not in out:
        config.notes.append(NEW_HEAD)
    settings = Vision(
        width=width,
        heads=heads,
        depth=depth,
        hidden=hidden,
        activation=plain,
        norm_eps=float(config.number("layer_norm_eps", default=1e-6 if form is None else form.eps)),
        dropout=config.dropout(("hidden_dropout_prob",), ("attention_probs_dropout_prob",)),
        image_size=side * height,
        patch_size=height,
        channels=channels,
        pooling=pooling,
        classes=classes,
        pretrained=Pretrained(
            config.family,
            special,
            embedding=EmbeddingSettings(norm="embedding_norm.weight" in out),
            tokens=tokens,
            pooled_norm="norm.weight" in out,
        ),
    )
    return Converted(settings, Layered(), out, config.notes, "head.weight" not in out)


def _scale_outputs(
    weights: NamedWeights, layers: str, scaled: tuple[tuple[str, str], ...], optional: bool = False
) -> None:
    """Multiply the factors of LayerScale into the linear maps whose output they scale."""
    for i in range(weights.count(layers)):
        for linear, factor in scaled:
            if optional and f"{layers}.{i}.{factor}" not in weights:
                continue
            scale = weights.take(f"{layers}.{i}.{factor}")
            weights.change(rf"{re.escape(f'{layers}.{i}.{linear}')}\..*", lambda x, scale=scale: (x.T * scale).T)


@dataclass(frozen=True)
class Family:
    """One family of vision transformers: pre-norm, sequential, the class token is the output."""

    layers: str
    """name of the list of layers"""
    names: Names
    """of the parts of a layer"""
    norm: str
    """name of the last norm"""
    patch: str
    positions: str
    tokens: tuple[str, ...]
    """names of the tokens before the patches that have a position; the class token is the first"""
    unplaced: str | None = None
    """name of the tokens after the class token that have no position"""
    first_norm: str | None = None
    """name of a norm before the first layer"""
    head: str = "classifier"
    pooled_norm: bool = False
    """whether the last norm is applied to the class token alone"""
    activation: str = "gelu"
    eps: float = 1e-12
    renamed: tuple[tuple[str, str], ...] = ()
    """patterns of the names in modules, and their replacements, the names in files"""
    scaled: tuple[tuple[str, str], ...] = ()
    """linear maps of a layer, and the factor of their output (LayerScale)"""


VIT_QKV = tuple(f"attention.attention.{name}" for name in ("query", "key", "value"))
RENAMED = (
    *((rf"attention\.{short}_proj\.", f"{long}.") for short, long in zip("qkv", VIT_QKV, strict=True)),
    (r"attention\.o_proj\.", "attention.output.dense."),
)
VIT = Family(
    "encoder.layer",
    {
        "attention.norm": "layernorm_before",
        "attention.qkv": VIT_QKV,
        "attention.out": "attention.output.dense",
        "feedforward.norm": "layernorm_after",
        "feedforward.up": "intermediate.dense",
        "feedforward.down": "output.dense",
    },
    "layernorm",
    "embeddings.patch_embeddings.projection",
    "embeddings.position_embeddings",
    ("embeddings.cls_token", "embeddings.distillation_token"),
    renamed=(
        (r"^layers\.", "encoder.layer."),
        (r"mlp\.fc1\.", "intermediate.dense."),
        (r"mlp\.fc2\.", "output.dense."),
        *RENAMED,
    ),
)
DINO = Family(
    "encoder.layer",
    {
        "attention.norm": "norm1",
        "attention.qkv": VIT_QKV,
        "attention.out": "attention.output.dense",
        "feedforward.norm": "norm2",
        "feedforward.up": "mlp.fc1",
        "feedforward.down": "mlp.fc2",
    },
    "layernorm",
    "embeddings.patch_embeddings.projection",
    "embeddings.position_embeddings",
    ("embeddings.cls_token",),
    unplaced="embeddings.register_tokens",
    eps=1e-6,
    renamed=(*RENAMED, (r"mlp\.weights_in\.", "mlp.fc1."), (r"mlp\.(weights_out|down_proj)\.", "mlp.fc2.")),
    scaled=(("attention.output.dense", "layer_scale1.lambda1"), ("mlp.fc2", "layer_scale2.lambda1")),
)
FAMILIES: dict[str, Family] = {
    "vit": VIT,
    "deit": VIT,
    "dinov2": DINO,
    "dinov2_with_registers": DINO,
    "clip_vision_model": Family(
        "encoder.layers",
        {
            "attention.norm": "layer_norm1",
            "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attention.out": "self_attn.out_proj",
            "feedforward.norm": "layer_norm2",
            "feedforward.up": "mlp.fc1",
            "feedforward.down": "mlp.fc2",
        },
        "post_layernorm",
        "embeddings.patch_embedding",
        "embeddings.position_embedding.weight",
        ("embeddings.class_embedding",),
        first_norm="pre_layrnorm",
        head="visual_projection",
        pooled_norm=True,
        activation="quick_gelu",
        eps=1e-5,
    ),
}


def _read(family: Family, config: Config, weights: NamedWeights) -> Converted:
    """Read a family of transformers, with the names of files or of modules."""
    if "distillation_classifier.weight" in weights:
        raise OdeumError(
            "a DeiT with two classifiers cannot be imported; use DeiTForImageClassification, which has one"
        )
    for pattern, name in family.renamed:
        weights.tensors = {re.sub(pattern, name, key): tensor for key, tensor in weights.tensors.items()}
    _scale_outputs(weights, family.layers, family.scaled)
    width = weights.take(f"{family.patch}.weight").shape[0]
    tokens = [weights.take(name).view(1, -1, width) for name in family.tokens if name in weights]
    position = weights.take(family.positions).view(1, -1, width)
    if family.unplaced is not None and family.unplaced in weights:
        tokens.append(weights.take(family.unplaced))
        position = torch.cat((position[:, :1], torch.zeros_like(tokens[-1]), position[:, 1:]), dim=1)
    out = {"token": torch.cat(tokens, dim=1), "position": position, **weights.linear("patch", family.patch)}
    names = dict(family.names)
    if f"{family.layers}.0.mlp.gate_proj.weight" in weights:
        names["feedforward.up"] = ("mlp.gate_proj", "mlp.up_proj")
    depth, layers = weights.layers("stack.layers", family.layers, names)
    out |= layers
    out |= weights.norm("norm" if family.pooled_norm else "stack.norm", family.norm)
    if family.first_norm is not None:
        out |= weights.norm("embedding_norm", family.first_norm)
    if f"{family.head}.weight" in weights:
        out |= weights.linear("head", family.head)
        if out["head.weight"].shape[1] != width:
            raise OdeumError(
                f"the classifier of this {config.family} cannot be imported: it reads the class token and the mean of "
                "the patches; import the model without classifier"
            )
    weights.taken |= {"pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"}
    heads = config.heads(width, "num_attention_heads")
    config.known("qkv_bias", "mlp_ratio", "layerscale_value", "drop_path_rate", "use_swiglu_ffn", "use_mask_token")
    config.known("num_register_tokens", "projection_dim", "apply_layernorm", "reshape_hidden_states")
    config.known("out_features", "out_indices", "stage_names")
    return _converted(config, out, depth, heads, "token", family)


READERS = {name: partial(_read, family) for name, family in FAMILIES.items()}


TIMM_LAYER: Names = {
    "attention.norm": "norm1",
    "attention.qkv": "attn.qkv",
    "attention.out": "attn.proj",
    "feedforward.norm": "norm2",
    "feedforward.up": "mlp.fc1",
    "feedforward.down": "mlp.fc2",
}
TIMM_REFUSED = {
    ".attn.q_norm": "qk_norm",
    "norm_pre": "pre_norm",
    ".attn.norm": "scale_attn_norm",
    ".mlp.norm": "scale_mlp_norm",
    "attn_pool": "global_pool='map'",
    ".mlp.fc1_g": "mlp_layer=SwiGLU",
    "head_dist": "a second classifier (distilled)",
}
"""parts of weight names: the setting of timm that causes them and cannot be imported"""


def _refuse_timm(config: Config, weights: NamedWeights) -> None:
    for part, setting in TIMM_REFUSED.items():
        if name := next((name for name in weights.tensors if part in name), None):
            raise OdeumError(f"{setting} of this timm model cannot be imported: '{name}' has no counterpart")
    for name, setting in (("pos_embed", "pos_embed='none'"), ("blocks.0.mlp.fc1.weight", "mlp_layer")):
        if name not in weights:
            raise OdeumError(f"{setting} of this timm model cannot be imported: there is no '{name}'")
    if "norm.weight" not in weights and "fc_norm.weight" not in weights:
        raise OdeumError("final_norm=False of this timm model cannot be imported: there is no last norm")
    hidden, read = (weights.tensors[f"blocks.0.mlp.fc{i}.weight"].shape[i - 1] for i in (1, 2))
    if hidden != read:
        raise OdeumError(
            f"mlp_layer of this timm model cannot be imported: it is gated ({hidden} features become {read})"
        )
    config.must("block", "Block", why="only plain blocks with two norms are supported")
    config.must("pool_include_prefix", False, why="the mean is over the patches, without class token and registers")


def _timm_places(config: Config, weights: NamedWeights, prefix: int, patch: Tensor) -> Tensor:
    """Positions of the patches and of the tokens before them; zeros for tokens without position."""
    places, size = weights.take("pos_embed"), config.values.get("image_size")
    size = size if isinstance(size, int | list | tuple) else None
    height, wide = (size if isinstance(size, list | tuple) else (size or 0, size or 0))[:2]
    known = None if size is None else (height // patch.shape[2]) * (wide // patch.shape[3])
    counts = {places.shape[1]: prefix, places.shape[1] - prefix: 0}  # patches, and how many zeros are needed
    fitting = [n for n in counts if (round(n**0.5) ** 2 == n if known is None else n == known)]
    if len(fitting) != 1:
        raise OdeumError(
            f"the {places.shape[1]} positions of this timm model with {prefix} tokens before the patches do not "
            "determine a square of patches"
        )
    return torch.cat((torch.zeros(1, counts[fitting[0]], places.shape[2]), places), dim=1)


def timm_vit(config: Config, weights: NamedWeights) -> Converted:
    """The plain VisionTransformer of timm; LayerScale is multiplied into the preceding linear maps."""
    _refuse_timm(config, weights)
    _scale_outputs(weights, "blocks", (("attn.proj", "ls1.weight"), ("mlp.fc2", "ls2.weight")), optional=True)
    depth, layers = weights.layers("stack.layers", "blocks", TIMM_LAYER)
    out = layers | weights.linear("patch", "patch_embed.proj")
    tokens = [weights.take(name) for name in ("cls_token", "reg_token") if name in weights]
    if tokens:
        out["token"] = torch.cat(tokens, dim=1)
    prefix = sum(token.shape[1] for token in tokens)
    out["position"] = _timm_places(config, weights, prefix, out["patch.weight"])
    pooled = "fc_norm.weight" in weights
    out |= weights.norm("norm" if pooled else "stack.norm", "fc_norm" if pooled else "norm")
    if "head.weight" in weights:
        out |= weights.linear("head", "head")
    pool = config.get("global_pool", default="avg" if pooled or not tokens else "token")
    if pool not in ("avg", "token"):
        raise OdeumError(
            f"global_pool='{pool}' of this timm model cannot be imported; only token and avg are supported"
        )
    heads = config.heads(out["patch.weight"].shape[0], "num_attention_heads")
    pooling: Literal["mean", "token"] = "mean" if pool == "avg" else "token"
    config.known("architecture", "num_classes", "num_features", "pretrained_cfg", "model_args")
    return _converted(config, out, depth, heads, pooling)
