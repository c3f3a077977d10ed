"""Settings that only imported models have; no command offers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class RotaryScaling:
    """Slower rotary angles for contexts that are longer than the first training's.

    Linear: every angle is divided by `factor`. With `original` set (Llama 3.1 on): angles of wavelengths above
    original / low are divided, those below original / high are not, and between both the divisor changes smoothly.
    """

    factor: float
    low: float = 0.0
    high: float = 0.0
    original: float = 0.0
    """context length of the first training, in tokens (0: linear)"""


@dataclass(frozen=True)
class AttentionSettings:
    """Self-attention of an imported model."""

    key_value_heads: int | None = None
    """key-value heads of grouped-query attention (default: as many as query heads)"""
    head_width: int | None = None
    """features per head (default: width / heads)"""
    qk_norm: bool = False
    """an RMS norm on the queries and the keys of each head (Qwen 3)"""
    joint_qk_norm: bool = False
    """one RMS norm on the queries of all heads, and one on their keys (OLMo 2)"""
    rotary_base: float = 10_000.0
    """the longest wavelength of rotary positions is about 2π times this"""
    rotary_width: int | None = None
    """features per head that are rotated (default: all)"""
    rotary_scaling: RotaryScaling | None = None
    """slower angles for long contexts (default: not scaled)"""


@dataclass(frozen=True)
class EmbeddingSettings:
    """Token embedding and output matrix of an imported model."""

    scaled: bool = False
    """whether embedded tokens are multiplied by √width"""
    tied: bool = True
    """one matrix for input and output"""
    bias: bool = False
    """bias of the logits: of an untied output matrix, or of a translation model"""
    width: int | None = None
    """width of the table, projected to the model's width (default: the model's width)"""
    types: int = 0
    """number of token types (BERT's segments)"""
    norm: bool = False
    """whether embedded tokens, or patches, are normed"""
    padding: int | None = None
    """positions count the tokens that are not this one, and begin after its number (RoBERTa; default: all tokens)"""


@dataclass(frozen=True)
class Pretrained:
    """Settings of an imported model besides its shape; `family` names the source."""

    family: str = ""
    activation: Literal["gelu-tanh", "quick-gelu", "silu", "geglu", "geglu-tanh", "reglu"] | None = None
    """activation of the feed-forward (default: that of the shape)"""
    attention: AttentionSettings = field(default_factory=AttentionSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    pooler: Literal["tanh", "relu"] = "tanh"
    """activation between the pooler and the classifier of a text"""
    tokens: int = 1
    """learned tokens before the patches of an image; the first is the class token"""
    pooled_norm: bool = False
    """whether the last norm follows the pooling over the patches"""


def pretrained_from(record: Mapping[str, Any] | Pretrained | None) -> Pretrained | None:
    """The inverse of `dataclasses.asdict`; raises TypeError for an unknown name."""
    if record is None or isinstance(record, Pretrained):
        return record
    values = dict(record)
    if "attention" in values:
        attention = dict(values["attention"])
        scaling = attention.pop("rotary_scaling", None)
        scaling = None if scaling is None else RotaryScaling(**scaling)
        values["attention"] = AttentionSettings(**attention, rotary_scaling=scaling)
    if "embedding" in values:
        values["embedding"] = EmbeddingSettings(**values["embedding"])
    return Pretrained(**values)


def details(shape: Any) -> Pretrained:
    """The imported settings of a shape, or the defaults of a model that was not imported."""
    return getattr(shape, "pretrained", None) or PLAIN


PLAIN = Pretrained(embedding=EmbeddingSettings(scaled=True))
NOT_OFFERED = ("pretrained",)
"""fields of model settings that no command offers"""
