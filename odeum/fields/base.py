"""What is integrated: dx/dt = f(t, x; context), with everything besides (t, x) said in the context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from odeum.fields.noise import Noise

if TYPE_CHECKING:
    from odeum.fields.transevolve.evolved import Anchor


class Cache:
    """Keys and values of past positions, one slot an evaluation, in evaluation order.

    An RK4 layer attends four times, so it has four slots; the order of evaluations is the same in each
    forward pass, so a cursor is all that is needed to find the slot again. A slot is a view of a buffer that
    doubles when it is full, so that n tokens cost O(n) copies and not O(n²).
    """

    def __init__(self) -> None:
        self.slots: list[tuple[Tensor, ...]] = []
        self.buffers: list[tuple[Tensor, ...]] = []
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
        index = self.cursor
        if index == len(self.slots):
            return self._open(new)
        self.cursor += 1
        past = self.slots[index]
        if torch.is_grad_enabled() and any(x.requires_grad for x in new):
            # A buffer written in place could not be differentiated.
            buffers = slot = tuple(torch.cat(pair, dim=-2) for pair in zip(past, new, strict=True))
        else:
            grown = (_append(*three) for three in zip(self.buffers[index], past, new, strict=True))
            buffers, slot = zip(*grown, strict=True)
        self.buffers[index], self.slots[index] = buffers, slot
        return slot

    def constant(self, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The next slot, made once: for what does not grow (an encoder's memory)."""
        if self.cursor == len(self.slots):
            return self._open(make())
        self.cursor += 1
        return self.slots[self.cursor - 1]

    def reorder(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order: beam search, finished sentences."""
        for i, (buffers, slot) in enumerate(zip(self.buffers, self.slots, strict=True)):
            moved = (_select(buffer, x, rows) for buffer, x in zip(buffers, slot, strict=True))
            self.buffers[i], self.slots[i] = zip(*moved, strict=True)

    def _open(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.slots.append(new)
        self.buffers.append(new)
        self.cursor += 1
        return new


def _append(buffer: Tensor, past: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The buffer, a larger one if need be, and its view of past and new positions."""
    old, length = past.shape[-2], past.shape[-2] + new.shape[-2]
    if buffer.shape[-2] < length:
        buffer = past.new_empty(*past.shape[:-2], max(2 * old, length, 16), past.shape[-1])
        buffer.narrow(-2, 0, old).copy_(past)
    buffer.narrow(-2, old, length - old).copy_(new)
    return buffer, buffer.narrow(-2, 0, length)


def _select(buffer: Tensor, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of x in a buffer with as much room as before."""
    if buffer.shape == x.shape:
        x = x.index_select(0, rows)
        return x, x
    buffer = buffer.new_empty(rows.shape[0], *buffer.shape[1:])
    view = buffer.narrow(-2, 0, x.shape[-2])
    torch.index_select(x, 0, rows, out=view)
    return buffer, view


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


class Carry:
    """What a method remembers from step to step and layer to layer of one pass: past evaluations, streams, a velocity.

    A stack opens one for each layer with what the layer before handed on, so nothing outlives the pass, however it
    ends. It belongs to the method; fields do not look at it. What is put into `state` may carry gradients. With a
    cache it holds the new positions alone, so a beam that is reordered between two passes has nothing to reorder here.
    """

    def __init__(self, state: Any = None, *, opens: bool = True, closes: bool = True) -> None:
        self.state = state
        self.opens = opens
        """whether the layer is the first of those that share this history"""
        self.closes = closes
        """whether it is the last"""
        self.handed: Any = None
        """the state at the layer's end; `state` stays what it began with, so that the layer may be recomputed"""


class Context(NamedTuple):
    """All that a field may read besides (t, x), and what its method remembers."""

    own: Source = Source()
    other: Source = Source()
    noise: Noise | None = None
    carry: Carry | None = None


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
