"""Settings that only imported models have; no command offers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class AttentionSettings:
    """Self-attention of an imported model."""

    key_value_heads: int | None = None
    """key-value heads of grouped-query attention (default: as many as query heads)"""
    head_width: int | None = None
    """features per head (default: width / heads)"""
    qk_norm: bool = False
    """an RMS norm on the queries and the keys of each head (Qwen 3)"""
    rotary_base: float = 10_000.0
    """the longest wavelength of rotary positions is about 2π times this"""
    rotary_width: int | None = None
    """features per head that are rotated (default: all)"""


@dataclass(frozen=True)
class EmbeddingSettings:
    """Token embedding and output matrix of an imported model."""

    scaled: bool = False
    """whether embedded tokens are multiplied by √width"""
    tied: bool = True
    """one matrix for input and output"""
    bias: bool = False
    """bias of an untied output matrix"""
    width: int | None = None
    """width of the table, projected to the model's width (default: the model's width)"""
    types: int = 0
    """number of token types (BERT's segments)"""
    norm: bool = False
    """whether embedded tokens are normed"""


@dataclass(frozen=True)
class Pretrained:
    """What an imported model has besides its shape; `family` names the source."""

    family: str = ""
    activation: Literal["gelu-tanh", "quick-gelu", "silu", "geglu", "geglu-tanh", "reglu"] | None = None
    """activation of the feed-forward (default: that of the shape)"""
    attention: AttentionSettings = field(default_factory=AttentionSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    tokens: int = 1
    """learned tokens before the patches of an image; the first is the class token"""
    pooled_norm: bool = False
    """whether the last norm follows the mean over the patches"""


def pretrained_from(record: Mapping[str, Any] | Pretrained | None) -> Pretrained | None:
    """The inverse of `dataclasses.asdict`; raises TypeError for an unknown name."""
    if record is None or isinstance(record, Pretrained):
        return record
    groups = {"attention": AttentionSettings, "embedding": EmbeddingSettings}
    values: dict[str, Any] = {
        name: groups[name](**value) if name in groups else value for name, value in record.items()
    }
    return Pretrained(**values)


def details(shape: Any) -> Pretrained:
    """The imported settings of a shape, or the defaults of a model that was not imported."""
    return getattr(shape, "pretrained", None) or PLAIN


PLAIN = Pretrained(embedding=EmbeddingSettings(scaled=True))
NOT_OFFERED = ("pretrained",)
"""fields of model settings that no command offers"""
