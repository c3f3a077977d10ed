"""What is integrated: dx/dt = f(t, x; context), with everything besides (t, x) said in the context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError

if TYPE_CHECKING:
    from odeum.fields.evolved import Anchor


class Cache:
    """Keys and values of past positions, one slot an evaluation, in evaluation order.

    An RK4 layer attends four times, so it has four slots; the order of evaluations is the same in each
    forward pass, so a cursor is all that is needed to find the slot again.
    """

    def __init__(self) -> None:
        self.slots: list[tuple[Tensor, ...]] = []
        self.cursor = 0
        self.length = 0

    def begin(self) -> None:
        """Call before each forward pass."""
        self.cursor = 0

    def advance(self, positions: int) -> None:
        """Call after each forward pass with the number of positions that it added."""
        self.length += positions

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Append along the length axis (-2) of the next slot and return all positions."""
        if self.cursor == len(self.slots):
            self.slots.append(new)
        else:
            past = self.slots[self.cursor]
            self.slots[self.cursor] = tuple(torch.cat(pair, dim=-2) for pair in zip(past, new, strict=True))
        self.cursor += 1
        return self.slots[self.cursor - 1]

    def constant(self, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The next slot, made once: for what does not grow (an encoder's memory)."""
        if self.cursor == len(self.slots):
            self.slots.append(make())
        self.cursor += 1
        return self.slots[self.cursor - 1]

    def reorder(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order: beam search, finished sentences."""
        self.slots = [tuple(x.index_select(0, rows) for x in slot) for slot in self.slots]


class Rotary(NamedTuple):
    """Positions told by rotating queries and keys (Su et al. 2021)."""

    positions: Tensor
    base: float = 10_000.0


class Source(NamedTuple):
    """What one attention reads; constant during a solve."""

    mask: Tensor | None = None  # True where a query may look; broadcasts to [batch, heads, queries, keys]
    causal: bool = False  # so that the fused causal kernel is used and no n×n mask is built
    memory: Tensor | None = None  # None: the evolving state itself
    anchor: Anchor | None = None  # measured at the block's start (TransEvolve)
    cache: Cache | None = None  # incremental decoding
    rotary: Rotary | None = None


class Noise:
    """The dropout masks of one step, drawn at its first stage and replayed at the others.

    A Runge–Kutta step evaluates one field several times; with fresh masks it would evaluate several fields.
    """

    def __init__(self) -> None:
        self.masks: list[Tensor] = []
        self.cursor = 0

    def draw(self, make: Callable[[], Tensor]) -> Tensor:
        if self.cursor == len(self.masks):
            self.masks.append(make())
        self.cursor += 1
        return self.masks[self.cursor - 1]


class Context(NamedTuple):
    """All that a field may read besides (t, x)."""

    own: Source = Source()
    other: Source = Source()
    noise: Noise | None = None


class Field(nn.Module):
    """dx/dt = f(t, x; context) with x of shape [batch, length, width]."""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define forward(t, x, context)")

    @property
    def terms(self) -> tuple[Field, ...]:
        """What a splitting may treat apart."""
        return (self,)

    @property
    def projects(self) -> bool:
        """Whether a finished step is moved by `project`."""
        return False

    def project(self, x: Tensor) -> Tensor:
        """Where a finished step lands: post-norm."""
        return x

    def observe(self, x: Tensor) -> Tensor:
        """The part of the state on which an adaptive solver measures its error."""
        return x

    def formula(self, x: str) -> str:
        """The field as people write it."""
        return f"{type(self).__name__}({x})"


def lands(field: Field) -> bool:
    """Whether a step through the field, or through one of its terms at any depth, ends in a projection."""
    return field.projects or any(lands(term) for term in field.terms if term is not field)


class Dropout(nn.Module):
    """Dropout whose mask is frozen across the stages of a step."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise OdeumError(f"dropout is a probability from 0 to below 1, not {rate}")
        self.rate = rate

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if noise is None:
            return nn.functional.dropout(x, self.rate)
        return x * noise.draw(lambda: nn.functional.dropout(torch.ones_like(x), self.rate))

    def extra_repr(self) -> str:
        return f"{self.rate}"
