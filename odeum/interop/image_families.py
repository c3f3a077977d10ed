"""Vision transformers of others: ViT and DeiT of transformers, and those of timm."""

from __future__ import annotations

import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.interop.reading import Config, Converted, NamedWeights, activation, dropout_of, linear, stacked
from odeum.settings.architecture import Layered
from odeum.settings.model import Vision
from odeum.settings.pretrained import Pretrained

NO_HEAD = "the source has no classifier: the head is new, and not trained"


def _settings(
    config: Config, out: dict[str, Tensor], depth: int, family: str, heads: int, pooling: str, pooled_norm: bool = False
) -> Vision:
    patch = out["patch.weight"]
    width, channels, height, wide = patch.shape
    tokens = out["token"].shape[1] if "token" in out else 0
    side = round((out["position"].shape[1] - tokens) ** 0.5)
    if side**2 + tokens != out["position"].shape[1] or height != wide:
        raise OdeumError(f"the patches of this {family} are not square, or not on a square; only those are known")
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
        norm_eps=float(config.get("layer_norm_eps", default=1e-6 if family == "timm_vit" else 1e-12)),
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
        out |= linear(weights, f"{ours}.attention.norm", f"{theirs}.layernorm_before")
        out |= linear(weights, f"{ours}.feedforward.norm", f"{theirs}.layernorm_after")
        out |= stacked(weights, f"{ours}.attention.qkv", three)
        out |= linear(weights, f"{ours}.attention.out", f"{theirs}.attention.{'o_proj' if new else 'output.dense'}")
        out |= linear(weights, f"{ours}.feedforward.up", f"{theirs}.{'mlp.fc1' if new else 'intermediate.dense'}")
        out |= linear(weights, f"{ours}.feedforward.down", f"{theirs}.{'mlp.fc2' if new else 'output.dense'}")
    out |= linear(weights, "stack.norm", "layernorm")
    if "classifier.weight" in weights:
        out |= linear(weights, "head", "classifier")
    weights.taken |= {"pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"}
    heads = int(config.get("num_attention_heads", default=max(1, token.shape[-1] // 64)))
    config.read |= {"qkv_bias"}
    return Converted(_settings(config, out, depth, config.family, heads, "token"), Layered(), out, config.notes)


def timm_vit(config: Config, weights: NamedWeights) -> Converted:
    """The plain VisionTransformer of timm; a LayerScale is a factor of the maps before it."""
    for name in weights.tensors:
        if ".attn.q_norm" in name or name.startswith("norm_pre") or ".attn.norm" in name or "attn_pool" in name:
            raise OdeumError(
                f"'{name}' of this timm model cannot be imported: only plain blocks with two norms are known"
            )
        if "head_dist" in name:
            raise OdeumError("a distilled DeiT of timm has two classifiers, which cannot be imported; take one without")
    if config.values.get("block", "Block") != "Block":
        raise OdeumError(f"blocks of the kind {config.values['block']} of timm cannot be imported; only Block is known")
    depth = weights.count(r"blocks\.(\d+)\.")
    out = linear(weights, "patch", "patch_embed.proj")
    places = weights.take("pos_embed")
    tokens = [weights.take(name) for name in ("cls_token", "reg_token") if name in weights]
    prefix = sum(token.shape[1] for token in tokens)
    if tokens:
        out["token"] = torch.cat(tokens, dim=1)
    if round((places.shape[1]) ** 0.5) ** 2 == places.shape[1] and prefix:  # no positions for the tokens
        places = torch.cat((torch.zeros(1, prefix, places.shape[2]), places), dim=1)
    elif prefix > 1:
        raise OdeumError(
            "this timm model has positions for its class token and not for its registers; that is not known"
        )
    out["position"] = places
    for i in range(depth):
        ours, theirs = f"stack.layers.{i}", f"blocks.{i}"
        out |= linear(weights, f"{ours}.attention.norm", f"{theirs}.norm1")
        out |= linear(weights, f"{ours}.feedforward.norm", f"{theirs}.norm2")
        out |= linear(weights, f"{ours}.attention.qkv", f"{theirs}.attn.qkv")
        out |= _scaled(weights, f"{ours}.attention.out", f"{theirs}.attn.proj", f"{theirs}.ls1.gamma")
        out |= linear(weights, f"{ours}.feedforward.up", f"{theirs}.mlp.fc1")
        out |= _scaled(weights, f"{ours}.feedforward.down", f"{theirs}.mlp.fc2", f"{theirs}.ls2.gamma")
    pooled = "fc_norm.weight" in weights
    out |= linear(weights, "norm" if pooled else "stack.norm", "fc_norm" if pooled else "norm")
    if "head.weight" in weights:
        out |= linear(weights, "head", "head")
    pool = config.get("global_pool", default="avg" if pooled or not tokens else "token")
    if pool not in ("avg", "token"):
        raise OdeumError(f"global_pool='{pool}' of this timm model cannot be imported; only token and avg are known")
    width = out["patch.weight"].shape[0]
    heads = config.get("num_attention_heads")
    if heads is None:
        heads = max(1, width // 64)
        config.notes.append(f"no configuration says how many heads there are; {heads} of 64 features are assumed")
    pooling = "mean" if pool == "avg" else "token"
    config.read |= {"architecture", "num_classes", "num_features", "pretrained_cfg", "model_args"}
    return Converted(
        _settings(config, out, depth, "timm_vit", int(heads), pooling, pooled), Layered(), out, config.notes
    )


def _scaled(weights: NamedWeights, ours: str, theirs: str, gamma: str) -> dict[str, Tensor]:
    out = linear(weights, ours, theirs)
    name = gamma if gamma in weights else gamma.removesuffix(".gamma") + ".weight"  # read as the gain of a norm
    if name not in weights:
        return out
    factor = weights.take(name)
    return {f"{ours}.weight": out[f"{ours}.weight"] * factor[:, None], f"{ours}.bias": out[f"{ours}.bias"] * factor}
