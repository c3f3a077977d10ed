"""Vision transformers of others: ViT, DeiT, DINOv2 and CLIP's of transformers, as data, and those of timm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.interop.reading import (
    Config,
    Converted,
    NamedWeights,
    Names,
    activation,
    dropout_of,
    heads_of,
    linear,
    norm,
    take_layer,
)
from odeum.models.pretrained import EmbeddingSettings, Pretrained
from odeum.models.settings import Vision

NO_HEAD = "the source has no classifier: the head is new, and not trained"


def _settings(
    config: Config,
    out: dict[str, Tensor],
    depth: int,
    family: str,
    heads: int,
    pooling: str,
    form: Family | None = None,
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
    maps = (out[f"stack.layers.0.feedforward.{name}.weight"].shape for name in ("up", "down"))
    rows, hidden = (shape[i] for i, shape in enumerate(maps))
    plain, special = activation(config, "hidden_act", default="gelu" if form is None else form.activation)
    if rows != hidden:  # gated, whatever the configuration says
        plain, special = "swiglu", None
    config.read |= {"hidden_size", "num_hidden_layers", "intermediate_size", "patch_size", "image_size", "num_channels"}
    classes = out["head.weight"].shape[0] if "head.weight" in out else 2
    if "head.weight" not in out:
        config.notes.append(NO_HEAD)
    return Vision(
        width=width,
        heads=heads,
        depth=depth,
        hidden=hidden,
        activation=plain,  # ty: ignore[invalid-argument-type]
        norm_eps=float(config.number("layer_norm_eps", default=1e-6 if form is None else form.eps)),
        dropout=dropout_of(config, ("hidden_dropout_prob",), ("attention_probs_dropout_prob",)),
        image_size=side * height,
        patch_size=height,
        channels=channels,
        pooling=pooling,  # ty: ignore[invalid-argument-type]
        classes=classes,
        pretrained=Pretrained(
            family,
            special,
            embedding=EmbeddingSettings(norm="embedding_norm.weight" in out),
            tokens=tokens,
            pooled_norm="norm.weight" in out,
        ),
    )


@dataclass(frozen=True)
class Family:
    """One family of vision transformers; pre-norm, sequential, and the class token is read."""

    layers: str
    """the list of layers"""
    names: Names
    """of the parts of a layer, by our roles"""
    norm: str
    """the last norm"""
    patch: str
    positions: str
    tokens: tuple[str, ...]
    """before the patches: the class token, which has a position, and others, which have one in these families or not"""
    unplaced: str | None = None
    """tokens after the class token that have no position"""
    first_norm: str | None = None
    """a norm of the patches before the first layer"""
    head: str = "classifier"
    pooled_norm: bool = False
    """whether the last norm is applied to the class token alone"""
    activation: str = "gelu"
    eps: float = 1e-12
    renamed: tuple[tuple[str, str], ...] = ()
    """patterns of the names that modules have, and what files call them"""
    scaled: tuple[tuple[str, str], ...] = ()
    """maps of a layer, and the factor of their output (LayerScale)"""


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
    """Under the names of files or of modules."""
    if "distillation_classifier.weight" in weights:
        raise OdeumError(
            "a DeiT with two classifiers cannot be imported: their mean is read off two tokens; take "
            "DeiTForImageClassification, which has one"
        )
    for pattern, name in family.renamed:
        weights.tensors = {re.sub(pattern, name, key): tensor for key, tensor in weights.tensors.items()}
    depth = weights.count(rf"{re.escape(family.layers)}\.(\d+)\.")
    for i in range(depth):
        for map_, factor in family.scaled:
            lengths = weights.take(f"{family.layers}.{i}.{factor}")
            weights.change(rf"{re.escape(f'{family.layers}.{i}.{map_}')}\..*", lambda x, by=lengths: (x.T * by).T)
    width = weights.take(f"{family.patch}.weight").shape[0]
    tokens = [weights.take(name).view(1, -1, width) for name in family.tokens if name in weights]
    position = weights.take(family.positions).view(1, -1, width)
    if family.unplaced is not None and family.unplaced in weights:
        tokens.append(weights.take(family.unplaced))
        position = torch.cat((position[:, :1], torch.zeros_like(tokens[-1]), position[:, 1:]), dim=1)
    out = {"token": torch.cat(tokens, dim=1), "position": position, **linear(weights, "patch", family.patch)}
    names = dict(family.names)
    if f"{family.layers}.0.mlp.gate_proj.weight" in weights:
        names["feedforward.up"] = ("mlp.gate_proj", "mlp.up_proj")
    for i in range(depth):
        layer = take_layer(weights, f"{family.layers}.{i}", names)
        out |= {f"stack.layers.{i}.{name}": tensor for name, tensor in layer.items()}
    out |= norm(weights, "norm" if family.pooled_norm else "stack.norm", family.norm)
    if family.first_norm is not None:
        out |= norm(weights, "embedding_norm", family.first_norm)
    if f"{family.head}.weight" in weights:
        out |= linear(weights, "head", family.head)
        if out["head.weight"].shape[1] != width:
            raise OdeumError(
                f"the classifier of this {config.family} cannot be imported: it reads the class token and the mean of "
                "the patches; take the model without it"
            )
    weights.taken |= {"pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"}
    heads = heads_of(config, width, "num_attention_heads")
    config.read |= {"qkv_bias", "mlp_ratio", "layerscale_value", "drop_path_rate", "use_swiglu_ffn", "use_mask_token"}
    config.read |= {"num_register_tokens", "projection_dim", "apply_layernorm", "reshape_hidden_states"}
    config.read |= {"out_features", "out_indices", "stage_names"}
    settings = _settings(config, out, depth, config.family, heads, "token", family)
    return Converted(settings, Layered(), out, config.notes)


READERS = {name: partial(_read, family) for name, family in FAMILIES.items()}


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
    return Converted(_settings(config, out, depth, "timm_vit", heads, pooling), Layered(), out, config.notes)


def _scaled(weights: NamedWeights, ours: str, theirs: str, gamma: str) -> dict[str, Tensor]:
    out = linear(weights, ours, theirs)
    name = gamma if gamma in weights else gamma.removesuffix(".gamma") + ".weight"  # read as the gain of a norm
    if name not in weights:
        return out
    factor = weights.take(name)
    return {f"{ours}.weight": out[f"{ours}.weight"] * factor[:, None], f"{ours}.bias": out[f"{ours}.bias"] * factor}
