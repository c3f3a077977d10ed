"""Incremental decoding: what attention keeps of the positions that it has read."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from odeum.errors import OdeumError

REMEDY = "a solver and its steps stay as they are while a cache is in use: begin with a new one"


class Cache:
    """Keys and values of past positions, one slot an evaluation, in evaluation order.

    An RK4 layer attends four times, so it has four slots; the order of evaluations is the same in each
    forward pass, so a cursor is all that is needed to find the slot again. A pass that takes another way, since the
    solver or its steps were changed in mid-decode, is refused. A slot is a view of a buffer, which is made once if the
    cache knows how much `room` will be needed; one that is full is doubled, so that n tokens cost O(n) copies and not
    O(n²).
    """

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.slots: list[tuple[Tensor, ...]] = []
        self.buffers: list[tuple[Tensor, ...]] = []
        self.cursor = 0
        self.length = 0
        self._solvers: list[object] = []
        self._layer = 0
        self._filled = False  # by a first pass, which decides how many slots there are
        self._open = False  # between begin and advance

    def begin(self) -> None:
        """Call before each forward pass."""
        if self._open and self.cursor:
            raise OdeumError(f"the last pass with this decoding cache did not come to its end; {REMEDY}")
        self._filled, self._open = bool(self.slots), True
        self.cursor = self._layer = 0

    def advance(self, positions: int) -> None:
        """Call after each forward pass with the number of positions that it added."""
        if self.cursor != len(self.slots):
            raise OdeumError(
                f"this pass visited {self.cursor} of the {len(self.slots)} slots of its decoding cache, "
                f"so the others lack its positions; {REMEDY}"
            )
        self._open = False
        self.length += positions

    def enter(self, solver: object) -> None:
        """Called by each layer, whose slots must belong to the same solver in every pass."""
        if not self._filled:
            self._solvers.append(solver)
        elif self._layer == len(self._solvers) or self._solvers[self._layer] is not solver:
            raise OdeumError(f"layer {self._layer + 1} has another solver than when its cache was filled; {REMEDY}")
        self._layer += 1

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Append along the length axis (-2) of the next slot and return all positions."""
        index = self.cursor
        if index == len(self.slots):
            return self._append(new)
        self.cursor += 1
        past = self.slots[index]
        if torch.is_grad_enabled() and any(x.requires_grad for x in new):
            # A buffer written in place could not be differentiated.
            buffers = slot = tuple(torch.cat(pair, dim=-2) for pair in zip(past, new, strict=True))
        else:
            length = past[0].shape[-2] + new[0].shape[-2]
            buffers = self.buffers[index]
            if buffers[0].shape[-2] < length:
                room = self.room if length <= self.room else max(2 * length, 16)
                buffers = tuple(_grow(x, room) for x in past)
            slot = tuple(map(_write, buffers, past, new))
        self.buffers[index], self.slots[index] = buffers, slot
        return slot

    def constant(self, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The next slot, made once: for what does not grow (an encoder's memory)."""
        index = self.cursor
        if index == len(self.slots):
            return self._append(make())
        self.cursor += 1
        return self.slots[index]

    def reorder(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order: beam search, finished sentences."""
        for i, (buffers, slot) in enumerate(zip(self.buffers, self.slots, strict=True)):
            moved = (_select(buffer, x, rows) for buffer, x in zip(buffers, slot, strict=True))
            self.buffers[i], self.slots[i] = zip(*moved, strict=True)

    def _append(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if self._filled:
            raise OdeumError(f"this pass needs more than the {len(self.slots)} slots of its decoding cache; {REMEDY}")
        self.slots.append(new)
        self.buffers.append(new)
        self.cursor += 1
        return new


def _grow(past: Tensor, room: int) -> Tensor:
    """A buffer with so much room, which begins with the past."""
    buffer = past.new_empty(*past.shape[:-2], room, past.shape[-1])
    buffer.narrow(-2, 0, past.shape[-2]).copy_(past)
    return buffer


def _write(buffer: Tensor, past: Tensor, new: Tensor) -> Tensor:
    """The buffer's view of past and new positions."""
    old, more = past.shape[-2], new.shape[-2]
    buffer.narrow(-2, old, more).copy_(new)
    return buffer.narrow(-2, 0, old + more)


def _select(buffer: Tensor, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of x in a buffer with as much room as before."""
    if buffer.shape == x.shape:
        x = x.index_select(0, rows)
        return x, x
    buffer = buffer.new_empty(rows.shape[0], *buffer.shape[1:])
    view = buffer.narrow(-2, 0, x.shape[-2])
    torch.index_select(x, 0, rows, out=view)
    return buffer, view
