"""Bidirectional text models of transformers: BERT, RoBERTa, DistilBERT and ALBERT.

They are post-norm and sequential. ALBERT uses one layer, or a few, at several depths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.interop.reading import Config, Converted, NamedWeights, Names
from odeum.models.pretrained import EmbeddingSettings, Pretrained
from odeum.models.settings import Classification, MaskedLanguage

NEW_HEAD = "the source has no head for masked tokens; the head is new and untrained"


@dataclass(frozen=True)
class Family:
    """One family of bidirectional text models."""

    layers: str
    """name of the list of layers"""
    names: Names
    """of the parts of a layer"""
    head: dict[str, str]
    """names of the parts of the head for masked tokens: dense, norm, decoder, bias"""
    pooler: str
    """name of the linear map between the first position and the classifier"""
    classifier: str = "classifier"
    activation: tuple[str, str] = ("hidden_act", "gelu")
    pooler_activation: str = "tanh"
    heads: str = "num_attention_heads"
    dropout: tuple[str, str] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    skips_padding: bool = False
    """whether positions count only tokens that are not padding, starting after the index of the padding token"""
    always_gelu: bool = False
    """whether the head uses GELU independently of the activation of the layers"""


BERT_LAYER: Names = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": "attention.output.dense",
    "attention.norm": "attention.output.LayerNorm",
    "feedforward.up": "intermediate.dense",
    "feedforward.down": "output.dense",
    "feedforward.norm": "output.LayerNorm",
}
FAMILIES: dict[str, Family] = {
    "bert": Family(
        "encoder.layer",
        BERT_LAYER,
        {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "decoder": "cls.predictions.decoder",
            "bias": "cls.predictions.bias",
        },
        "pooler.dense",
    ),
    "roberta": Family(
        "encoder.layer",
        BERT_LAYER,
        {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "decoder": "lm_head.decoder", "bias": "lm_head.bias"},
        "classifier.dense",
        "classifier.out_proj",
        skips_padding=True,
        always_gelu=True,
    ),
    "distilbert": Family(
        "transformer.layer",
        {
            "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.out": "attention.out_lin",
            "attention.norm": "sa_layer_norm",
            "feedforward.up": "ffn.lin1",
            "feedforward.down": "ffn.lin2",
            "feedforward.norm": "output_layer_norm",
        },
        {
            "dense": "vocab_transform",
            "norm": "vocab_layer_norm",
            "decoder": "vocab_projector",
            "bias": "vocab_projector.bias",
        },
        "pre_classifier",
        activation=("activation", "gelu"),
        pooler_activation="relu",
        heads="n_heads",
        dropout=("dropout", "attention_dropout"),
    ),
    "albert": Family(
        "encoder.albert_layer_groups",
        {
            "attention.qkv": ("attention.query", "attention.key", "attention.value"),
            "attention.out": "attention.dense",
            "attention.norm": "attention.LayerNorm",
            "feedforward.up": "ffn",
            "feedforward.down": "ffn_output",
            "feedforward.norm": "full_layer_layer_norm",
        },
        {
            "dense": "predictions.dense",
            "norm": "predictions.LayerNorm",
            "decoder": "predictions.decoder",
            "bias": "predictions.bias",
        },
        "pooler",
        activation=("hidden_act", "gelu_new"),
    ),
}


def _read(family: Family, config: Config, weights: NamedWeights) -> Converted:
    config.must("position_embedding_type", "absolute", why="its positions are relative")
    config.must("is_decoder", False, why="its attention is causal")
    config.must("add_cross_attention", False, why="it has attention to an encoder")
    inner = ".albert_layers.0" if config.family == "albert" else ""
    count, layers = weights.layers("stack.layers", family.layers, family.names, inner=inner)
    depth, groups = count, None
    out = {
        "embedding.weight": weights.take("embeddings.word_embeddings.weight"),
        "positions.table.weight": weights.take("embeddings.position_embeddings.weight"),
        **weights.norm("embedding_norm", "embeddings.LayerNorm"),
        **layers,
    }
    if "embeddings.token_type_embeddings.weight" in weights:
        out["types.weight"] = weights.take("embeddings.token_type_embeddings.weight")
    if config.family == "albert":
        depth, groups = int(config.number("num_hidden_layers", default=12)), count
        config.must("inner_group_num", 1, why="its groups have several layers each")
        if depth % groups:
            raise OdeumError(
                f"num_hidden_groups={groups} of this albert cannot be imported: it does not divide its {depth} layers"
            )
        out |= weights.linear("projection", "encoder.embedding_hidden_mapping_in")
    architecture = Layered(norm="post", independent=groups)
    if f"{family.classifier}.weight" in weights:
        if any("MultipleChoice" in name for name in config.values.get("architectures") or ()):
            raise OdeumError(
                f"a {config.family} for multiple choice cannot be imported: it chooses among several texts and has no "
                "classes"
            )
        if f"{family.pooler}.weight" not in weights:
            raise OdeumError(
                f"the classifier of this {config.family} reads every token, because there is no pooler; only "
                "classifiers of whole texts can be imported"
            )
        out |= weights.linear("head", family.classifier) | weights.linear("pooler", family.pooler)
        classes = out["head.weight"].shape[0]
        settings: Any = Classification(classes=classes, **_settings(config, family, out, depth))
        return Converted(settings, architecture, out, config.notes)
    new_head = not _masked_head(config, weights, family, out)
    if new_head:
        config.notes.append(NEW_HEAD)
    weights.taken |= {f"{name}.{part}" for name in (family.pooler, "pooler.dense") for part in ("weight", "bias")}
    masked = MaskedLanguage(**_settings(config, family, out, depth))
    return Converted(masked, architecture, out, config.notes, new_head)


def _settings(config: Config, family: Family, out: dict[str, Tensor], depth: int) -> dict[str, Any]:
    plain, special = config.activation(family.activation[0], default=family.activation[1])
    padding = int(config.number("pad_token_id", default=1)) if family.skips_padding else None
    rows = out["positions.table.weight"].shape[0]
    if padding is not None and not 0 <= padding < rows - 1:
        raise OdeumError(f"pad_token_id={padding} of this {config.family} leaves no positions for tokens ({rows} rows)")
    config.known("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "type_vocab_size")
    config.known("max_position_embeddings", "tie_word_embeddings", "embedding_size", "num_hidden_groups")
    config.known("dim", "hidden_dim", "n_layers", "sinusoidal_pos_embds", "seq_classif_dropout", "qa_dropout")
    size = out["stack.layers.0.attention.out.weight"].shape[0]
    embedding = EmbeddingSettings(
        tied="output.weight" not in out,
        width=out["embedding.weight"].shape[1] if config.family == "albert" else None,
        types=out["types.weight"].shape[0] if "types.weight" in out else 0,
        norm=True,
        padding=padding,
    )
    pooler: Any = family.pooler_activation
    return {
        "width": size,
        "heads": config.heads(size, family.heads),
        "depth": depth,
        "hidden": out["stack.layers.0.feedforward.up.weight"].shape[0],
        "activation": plain,
        "norm_eps": float(config.number("layer_norm_eps", default=1e-12)),
        "dropout": config.dropout(family.dropout[:1], family.dropout[1:]),
        "vocabulary": out["embedding.weight"].shape[0],
        "length": rows if padding is None else rows - padding - 1,
        "positions": "learned",
        "pretrained": Pretrained(config.family, special, embedding=embedding, pooler=pooler),
    }


def _masked_head(config: Config, weights: NamedWeights, family: Family, out: dict[str, Tensor]) -> bool:
    """Add the head for masked tokens to `out`; returns whether there is one."""
    names = family.head
    if f"{names['dense']}.weight" not in weights:
        return False
    if family.always_gelu:
        config.must(family.activation[0], "gelu", "gelu_python", why="its head uses GELU and its layers do not")
    out |= weights.linear("transform", names["dense"]) | weights.norm("transform_norm", names["norm"])
    decoder_bias = f"{names['decoder']}.bias"
    out["bias"] = weights.take(decoder_bias if decoder_bias in weights else names["bias"])
    decoder = f"{names['decoder']}.weight"
    if decoder in weights:
        matrix = weights.take(decoder)
        if not config.get("tie_word_embeddings", default=True) or not matrix.equal(out["embedding.weight"]):
            out["output.weight"] = matrix
    weights.taken |= {decoder_bias, names["bias"]}
    return True


READERS = {name: partial(_read, family) for name, family in FAMILIES.items()}
