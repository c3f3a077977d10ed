"""What models of others have that ours do not: settings that only an import sets, and no command offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class AttentionSettings:
    """Of self-attention."""

    key_value_heads: int | None = None
    """heads of keys and values, each read by several heads of queries (none: as many)"""
    head_width: int | None = None
    """features of a head (none: width / heads)"""
    qk_norm: bool = False
    """an RMS norm on the queries and the keys of each head (Qwen 3)"""
    rotary_base: float = 10_000.0
    """the longest wavelength of rotary positions is about 2π times this"""
    rotary_width: int | None = None
    """features of a head that turn (none: all)"""


@dataclass(frozen=True)
class EmbeddingSettings:
    """Of tokens, at both ends."""

    scaled: bool = False
    """multiplied by √width"""
    tied: bool = True
    """one matrix for input and output"""
    bias: bool = False
    """on the logits of an output matrix of its own"""
    width: int | None = None
    """of the table, which a linear map brings to the model's (none: the model's own)"""
    types: int = 0
    """segments that are told apart (BERT's token types)"""
    norm: bool = False
    """a norm on the embedded tokens"""


@dataclass(frozen=True)
class Pretrained:
    """All of them; the family says where a model comes from."""

    family: str = ""
    activation: Literal["gelu-tanh", "quick-gelu", "silu", "geglu", "geglu-tanh", "reglu"] | None = None
    """of the feed-forward (none: the model's own setting)"""
    attention: AttentionSettings = field(default_factory=AttentionSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    tokens: int = 1
    """learned tokens before the patches of an image; the first is the class token"""
    pooled_norm: bool = False
    """the last norm stands after the mean over the patches"""


def pretrained_from(record: Mapping[str, Any] | Pretrained | None) -> Pretrained | None:
    """The inverse of `dataclasses.asdict`; a name that it does not know is a TypeError, as for every settings."""
    if record is None or isinstance(record, Pretrained):
        return record
    groups = {"attention": AttentionSettings, "embedding": EmbeddingSettings}
    values: dict[str, Any] = {
        name: groups[name](**value) if name in groups else value for name, value in record.items()
    }
    return Pretrained(**values)


def details(shape: Any) -> Pretrained:
    """Those of a shape; of one that was not imported, what they are there."""
    return getattr(shape, "pretrained", None) or PLAIN


PLAIN = Pretrained(embedding=EmbeddingSettings(scaled=True))
NOT_OFFERED = ("pretrained",)
"""fields of model settings that are no options of a command"""
