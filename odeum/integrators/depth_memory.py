"""Attention that reads earlier layers: it adds their values (value residual) or attends to their keys (MoDA).

A step of any method without history; around it, keys and values pass from layer to layer. They are those of the same
positions, so decoding with a cache needs nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.attention import SelfAttention, split_heads
from odeum.fields.base import Context, Field, Past
from odeum.integrators import capabilities
from odeum.integrators.base import Method, get_carry


class DepthMemory(Method):
    """Base: passes a `Past` to the attention of each step and keeps what it notes."""

    history = "depth-memory"

    def __init__(self, inner: Method) -> None:
        super().__init__()
        capabilities.check("a memory of earlier layers", inner)
        self.inner = inner
        self.order = inner.order
        self.splitting = inner.splitting

    def check(self, field: Field) -> None:
        if sum(isinstance(part, SelfAttention) for part in field.modules()) != 1:
            raise OdeumError(
                f"{type(self).__name__} passes keys and values from layer to layer and needs one self-attention per "
                f"layer, but {field.formula('x')} has another number; use attention=attention"
            )
        self.inner.check(field)

    def past(self, state: tuple[Tensor, ...]) -> Past:
        """Returns what the attention reads."""
        raise TypeError(f"{type(self).__name__} must define past(state)")

    def kept_state(self, state: tuple[Tensor, ...], keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        """Returns the state with what the attention noted."""
        raise TypeError(f"{type(self).__name__} must define kept_state(state, keys, values)")

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "depth-memory").state = ()
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "depth-memory")
        past = self.past(carry.state)
        x = self.inner.step(field, t, dt, x, context._replace(own=context.own._replace(past=past)))
        assert past.noted is not None
        carry.state = self.kept_state(carry.state, *past.noted)
        return x


class DepthAttention(DepthMemory):
    """MoDA: one softmax over the positions and over the keys of all earlier layers at the query's position."""

    def past(self, state: tuple[Tensor, ...]) -> Past:
        return Past(state[::2], state[1::2])

    def kept_state(self, state: tuple[Tensor, ...], keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        return *state, keys, values

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        return [*self.inner.scheme(field, share), "G also attends to the keys of earlier layers at its own position"]


class ValueResidual(DepthMemory):
    """v ← v + g v₁ with v₁ the values of the first layer; or v ← v + g W x₀, a value embedding of the stack's input.

    g starts at 0: the plain layer. The first layer has no value to add, and no g, unless it reads the input.
    """

    order = None

    def __init__(self, inner: Method, layers: Sequence[int], embedding: tuple[int, int, int] | None = None) -> None:
        super().__init__(inner)
        self.order = None
        self.heads = 0
        self.gain = nn.Parameter(torch.zeros(())) if embedding or tuple(layers) != (0,) else None
        if embedding:
            width, values, self.heads = embedding
            self.embedding = nn.Linear(width, values, bias=False)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "depth-memory").state = (x,) if self.heads else ()
        return x

    def past(self, state: tuple[Tensor, ...]) -> Past:
        if self.gain is None or not state:
            return Past()
        (first,) = state
        value = split_heads(self.embedding(first), self.heads) if self.heads else first
        return Past(added=self.gain.to(value.dtype) * value)

    def kept_state(self, state: tuple[Tensor, ...], keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        return state or (values,)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        added = "W x₀" if self.heads else "v₁"
        return [*self.inner.scheme(field, share), f"values of G: v + g {added}"]
