"""Text models of others that read from both sides: BERT, and ALBERT, whose one layer acts at every depth."""

from __future__ import annotations

from typing import Any

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
from odeum.models.pretrained import EmbeddingSettings, Pretrained
from odeum.models.settings import Classification, MaskedLanguage

HEADLESS = "the source has no head: the one that tells hidden tokens is new, and not trained"
Names = dict[str, str]

BERT_LAYER: Names = {
    "attention.out": "attention.output.dense",
    "attention.norm": "attention.output.LayerNorm",
    "feedforward.up": "intermediate.dense",
    "feedforward.down": "output.dense",
    "feedforward.norm": "output.LayerNorm",
}
ALBERT_LAYER: Names = {
    "attention.out": "attention.dense",
    "attention.norm": "attention.LayerNorm",
    "feedforward.up": "ffn",
    "feedforward.down": "ffn_output",
    "feedforward.norm": "full_layer_layer_norm",
}


def _embedding(weights: NamedWeights) -> dict[str, Tensor]:
    out = {
        "embedding.weight": weights.take("embeddings.word_embeddings.weight"),
        "positions.table.weight": weights.take("embeddings.position_embeddings.weight"),
    }
    if "embeddings.token_type_embeddings.weight" in weights:
        out["types.weight"] = weights.take("embeddings.token_type_embeddings.weight")
    return out | norm(weights, "embedding_norm", "embeddings.LayerNorm")


def _layers(weights: NamedWeights, theirs: list[str], names: Names, attention: str) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    for i, layer in enumerate(theirs):
        ours = f"stack.layers.{i}"
        three = (f"{layer}.{attention}.{name}" for name in ("query", "key", "value"))
        out |= stacked(weights, f"{ours}.attention.qkv", three)
        for mine, name in names.items():
            out |= (norm if mine.endswith("norm") else linear)(weights, f"{ours}.{mine}", f"{layer}.{name}")
    return out


def _refuse(config: Config) -> None:
    config.must("position_embedding_type", "absolute", why="positions are told between pairs of tokens")
    config.must("is_decoder", False, why="it looks at the past alone")
    config.must("add_cross_attention", False, why="it has attention to an encoder")


def _settings(config: Config, out: dict[str, Tensor], depth: int, family: str, width: int | None) -> dict[str, Any]:
    """What all of them have; `width` is that of the tokens where they are projected."""
    plain, special = activation(config, "hidden_act", default="gelu_new" if family == "albert" else "gelu")
    types = out["types.weight"].shape[0] if "types.weight" in out else 0
    tied = "output.weight" not in out
    config.read |= {"hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "type_vocab_size"}
    config.read |= {"max_position_embeddings", "tie_word_embeddings"}
    size = out["stack.layers.0.attention.out.weight"].shape[0]
    return {
        "width": size,
        "heads": heads_of(config, size, "num_attention_heads"),
        "depth": depth,
        "hidden": out["stack.layers.0.feedforward.up.weight"].shape[0],
        "activation": plain,
        "norm_eps": float(config.number("layer_norm_eps", default=1e-12)),
        "dropout": dropout_of(config, ("hidden_dropout_prob",), ("attention_probs_dropout_prob",)),
        "vocabulary": out["embedding.weight"].shape[0],
        "length": out["positions.table.weight"].shape[0],
        "positions": "learned",
        "pretrained": Pretrained(
            family, special, embedding=EmbeddingSettings(tied=tied, width=width, types=types, norm=True)
        ),
    }


def _masked_head(config: Config, weights: NamedWeights, names: Names, out: dict[str, Tensor]) -> bool:
    """The head that tells hidden tokens, if there is one."""
    if f"{names['dense']}.weight" not in weights:
        return False
    out |= linear(weights, "transform", names["dense"]) | norm(weights, "transform_norm", names["norm"])
    own = f"{names['decoder']}.bias"
    out["bias"] = weights.take(own if own in weights else names["bias"])
    decoder = f"{names['decoder']}.weight"
    if decoder in weights:
        matrix = weights.take(decoder)
        if not config.get("tie_word_embeddings", default=True) or not matrix.equal(out["embedding.weight"]):
            out["output.weight"] = matrix
    weights.taken |= {f"{names['decoder']}.bias", names["bias"]}
    return True


def _with_head(
    config: Config,
    weights: NamedWeights,
    out: dict[str, Tensor],
    names: Names,
    make: Any,
    architecture: Layered,
    pooler: str,
) -> Converted:
    """A classifier, a masked model, or an encoder with a head that is new."""
    if "classifier.weight" in weights:
        if any("MultipleChoice" in name for name in config.values.get("architectures") or ()):
            raise OdeumError(
                f"a {config.family} that chooses among several texts cannot be imported: it has no classes"
            )
        if f"{pooler}.weight" not in weights:
            raise OdeumError(
                f"the classifier of this {config.family} reads every token, since there is no pooler; only classifiers "
                "of whole texts can be imported"
            )
        out |= linear(weights, "head", "classifier") | linear(weights, "pooler", pooler)
        classes = out["head.weight"].shape[0]
        return Converted(Classification(classes=classes, **make(out)), architecture, out, config.notes)
    if not _masked_head(config, weights, names, out):
        config.notes.append(HEADLESS)
    weights.taken |= {f"{pooler}.weight", f"{pooler}.bias"}
    return Converted(MaskedLanguage(**make(out)), architecture, out, config.notes)


def bert(config: Config, weights: NamedWeights) -> Converted:
    """Post-norm, sequential."""
    _refuse(config)
    depth = weights.count(r"encoder\.layer\.(\d+)\.")
    out = _embedding(weights)
    out |= _layers(weights, [f"encoder.layer.{i}" for i in range(depth)], BERT_LAYER, "attention.self")
    names = {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
        "decoder": "cls.predictions.decoder",
    }

    def make(found: dict[str, Tensor]) -> dict[str, Any]:
        return _settings(config, found, depth, "bert", None)

    return _with_head(config, weights, out, names, make, Layered(norm="post"), "pooler.dense")


def albert(config: Config, weights: NamedWeights) -> Converted:
    """One post-norm layer (or a few groups) that acts at every depth: a flow over as many units of time."""
    _refuse(config)
    depth = int(config.number("num_hidden_layers", default=12))
    groups = weights.count(r"encoder\.albert_layer_groups\.(\d+)\.")
    config.must("inner_group_num", 1, why="a group has several layers, which act one after the other")
    if depth % groups:
        raise OdeumError(
            f"num_hidden_groups={groups} of this albert cannot be imported: it does not divide its {depth} layers"
        )
    out = _embedding(weights) | linear(weights, "projection", "encoder.embedding_hidden_mapping_in")
    layers = [f"encoder.albert_layer_groups.{i}.albert_layers.0" for i in range(groups)]
    out |= _layers(weights, layers, ALBERT_LAYER, "attention")
    names = {
        "dense": "predictions.dense",
        "norm": "predictions.LayerNorm",
        "bias": "predictions.bias",
        "decoder": "predictions.decoder",
    }
    config.read |= {"embedding_size", "num_hidden_groups"}

    def make(found: dict[str, Tensor]) -> dict[str, Any]:
        return _settings(config, found, depth, "albert", found["embedding.weight"].shape[1])

    return _with_head(config, weights, out, names, make, Layered(norm="post", independent=groups), "pooler")
