"""The fields of a layer, in the sizes of a shape."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import nn

from odeum.architectures.parts.norms import place_norms
from odeum.errors import OdeumError
from odeum.fields import CrossAttention, FeedForward, Field, Increment, SelfAttention
from odeum.fields.algebra import Wrapper
from odeum.integrators import LieTrotter
from odeum.models.pretrained import details
from odeum.models.settings import Shape
from odeum.registry.names import FIELDS


def attention(shape: Shape) -> Field:
    """Returns self-attention."""
    extra = details(shape).attention
    return SelfAttention(
        shape.width,
        shape.heads,
        bias=shape.bias,
        dropout=shape.dropout,
        key_value_heads=extra.key_value_heads,
        head_width=extra.head_width,
        head_norm=partial(nn.RMSNorm, eps=shape.norm_eps) if extra.qk_norm or extra.joint_qk_norm else None,
        joint_norm=extra.joint_qk_norm,
    )


def linear_attention(shape: Shape) -> Field:
    """Returns linear attention."""
    from odeum.fields.alternatives import LinearAttention

    return LinearAttention(shape.width, shape.heads, bias=shape.bias, dropout=shape.dropout)


def synthesized_attention(shape: Shape) -> Field:
    """Returns a dense Synthesizer for the longest text of the model."""
    from odeum.fields.alternatives import SynthesizedAttention

    length = getattr(shape, "length", None)
    if length is None:
        raise OdeumError("attention=synthesizer needs a model with a longest length, such as one of texts")
    return SynthesizedAttention(shape.width, shape.heads, length, bias=shape.bias, dropout=shape.dropout)


def cross_attention(shape: Shape) -> Field:
    """Returns attention to an encoder's memory."""
    return CrossAttention(shape.width, shape.heads, bias=shape.bias, dropout=shape.dropout)


def feed_forward(shape: Shape) -> Field:
    """Returns the feed-forward network."""
    hidden = shape.hidden or 4 * shape.width
    activation = details(shape).activation or shape.activation
    return FeedForward(shape.width, hidden, activation=activation, bias=shape.bias, dropout=shape.dropout)


def halved(shape: Shape) -> Shape:
    """Returns the shape with half the feed-forward width: two of them have the parameters and work of one."""
    hidden = (shape.hidden or 4 * shape.width) // 2
    if not hidden:
        raise OdeumError(f"hidden must be at least 2, one for each of 2 feed-forwards, not {shape.hidden}")
    return replace(shape, hidden=hidden)


def make_field(name: str, shape: Shape) -> Field:
    """Returns the registered field of that name."""
    field = FIELDS[name](shape)
    if not isinstance(field, Field):
        raise OdeumError(f"the field '{name}' must be made as an odeum.Field, not {type(field).__name__}")
    return field


def attentions(shape: Shape, cross: bool, name: str = "attention") -> list[Field]:
    """Returns self-attention and, in a decoder, cross-attention."""
    return [make_field(name, shape), *([cross_attention(shape)] if cross else [])]


def innermost(term: Field) -> Field:
    """Returns the field inside all wrappers: norms, factors, stochastic depth."""
    while isinstance(term, Wrapper):
        term = term.field
    return term


def is_feed_forward(term: Field) -> bool:
    """Whether a term acts on each position alone, as the feed-forward does."""
    return getattr(innermost(term), "symbol", None) == FeedForward.symbol


def is_self_attention(term: Field) -> bool:
    """Whether a term lets positions act on each other: neither the feed-forward nor cross-attention."""
    return not is_feed_forward(term) and not isinstance(innermost(term), CrossAttention)


def terms(shape: Shape, cross: bool = False, norm: str = "pre") -> tuple[Field, ...]:
    """Returns the terms of the ordinary transformer layer, each with its norm: attention, (cross,) feed-forward.

    Arguments: the shape of the stack; whether to attend to an encoder's memory; where the norms stand, one of pre,
    post, peri and branch.
    """
    return place_norms([*attentions(shape, cross), feed_forward(shape)], norm, shape, shape.stochastic_depth).terms


def whole_layer(shape: Shape, cross: bool = False) -> Field:
    """Returns the increment of a whole sequential pre-norm layer as one field."""
    fields = [*attentions(shape, cross), feed_forward(shape)]
    return Increment(LieTrotter(), place_norms(fields, "pre", shape, shape.stochastic_depth))
