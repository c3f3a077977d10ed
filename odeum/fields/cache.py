"""Incremental decoding: what attention keeps of the positions that it has read."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from odeum.errors import OdeumError

REMEDY = "a solver and its steps stay as they are while a cache is in use: begin with a new one"


class Cache:
    """Keys and values of past positions, one slot per evaluation, in evaluation order.

    An RK4 layer attends four times, so it has four slots; the order of evaluations is the same in each
    forward pass, so a cursor is all that is needed to find the slot again. A pass that takes another way, since the
    solver or its steps were changed in mid-decode, is refused. A slot is a view of a buffer, which is made once if the
    cache knows how much `room` will be needed; one that is full is doubled, so that n tokens cost O(n) copies and not
    O(n²). Tensors of one shape, keys and values as a rule, lie in one buffer, a `whole`, side by side along axis 1.
    """

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.beams = 1  # rows in a row that hold the same: translations of one source
        self.slots: list[tuple[Tensor, ...]] = []
        self.buffers: list[tuple[Tensor, ...]] = []
        self.wholes: list[Tensor | None] = []
        self._spares: dict[int, Tensor] = {}  # wholes of before the last reordering, to be written to in the next
        self.cursor = 0
        self.length = 0
        self._solvers: list[object] = []
        self._layer = 0
        self._filled = False  # by a first pass, which decides how many slots there are
        self._open = False  # between begin and advance

    def begin(self) -> None:
        """Call before each forward pass."""
        if self._open and self.cursor:
            raise OdeumError(f"the last pass with this decoding cache did not complete; {REMEDY}")
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
        """Called by each layer, whose slots must belong to the same solver, or a copy of it, in every pass."""
        solver = getattr(solver, "__dict__", {}).get("stands_for", solver)
        if not self._filled:
            self._solvers.append(solver)
        elif self._layer == len(self._solvers) or self._solvers[self._layer] is not solver:
            raise OdeumError(
                f"layer {self._layer + 1} has a different solver from the one that filled its cache; {REMEDY}"
            )
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
            self.wholes[index] = None
        else:
            length = past[0].shape[-2] + new[0].shape[-2]
            buffers = self.buffers[index]
            if buffers[0].shape[-2] < length:
                room = self.room if length <= self.room else max(2 * length, 16)
                self.wholes[index], buffers = _grow(past, room)
            slot = tuple(map(_write, buffers, past, new))
        self.buffers[index], self.slots[index] = buffers, slot
        return slot

    def extend_together(self, new: Tensor) -> tuple[Tensor, ...]:
        """`extend` by tensors of equal shape that are adjacent along axis 1: one copy instead of one per tensor."""
        index = self.cursor
        whole = self.wholes[index] if index < len(self.wholes) else None
        if whole is None or torch.is_grad_enabled():
            return self.extend(*new.unbind(1))
        old, more = self.slots[index][0].shape[-2], new.shape[-2]
        if whole.shape[-2] < old + more:
            return self.extend(*new.unbind(1))
        self.cursor += 1
        whole.narrow(-2, old, more).copy_(new)
        slot = self.slots[index] = whole.narrow(-2, 0, old + more).unbind(1)
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
            whole = self.wholes[i]
            if whole is not None:
                moved, past = _select(whole, whole.narrow(-2, 0, slot[0].shape[-2]), rows, self._spares.get(i))
                self._spares[i] = whole
                self.wholes[i], self.buffers[i], self.slots[i] = moved, moved.unbind(1), past.unbind(1)
                continue
            moved = (_select(buffer, x, rows) for buffer, x in zip(buffers, slot, strict=True))
            self.buffers[i], self.slots[i] = zip(*moved, strict=True)

    def _append(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if self._filled:
            raise OdeumError(f"this pass needs more than the {len(self.slots)} slots of its decoding cache; {REMEDY}")
        self.slots.append(new)
        self.buffers.append(new)
        self.wholes.append(None)
        self.cursor += 1
        return new


def _grow(past: tuple[Tensor, ...], room: int) -> tuple[Tensor | None, tuple[Tensor, ...]]:
    """Buffers with so much room, which begin with the past; and the one tensor that they are parts of, if it can be."""
    first, count = past[0], len(past)
    if count > 1 and all(x.shape == first.shape and x.dtype == first.dtype for x in past):
        whole = first.new_empty(first.shape[0], count, *first.shape[1:-2], room, first.shape[-1])
        buffers = whole.unbind(1)
    else:
        whole, buffers = None, tuple(x.new_empty(*x.shape[:-2], room, x.shape[-1]) for x in past)
    for buffer, x in zip(buffers, past, strict=True):
        buffer.narrow(-2, 0, x.shape[-2]).copy_(x)
    return whole, buffers


def _write(buffer: Tensor, past: Tensor, new: Tensor) -> Tensor:
    """The buffer's view of past and new positions."""
    old, more = past.shape[-2], new.shape[-2]
    buffer.narrow(-2, old, more).copy_(new)
    return buffer.narrow(-2, 0, old + more)


def _select(buffer: Tensor, x: Tensor, rows: Tensor, spare: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Rows of x in a buffer with as much room as before: in the spare one, if it is of the right size."""
    if buffer.shape == x.shape and spare is None:
        x = x.index_select(0, rows)
        return x, x
    size = (rows.shape[0], *buffer.shape[1:])
    buffer = spare if spare is not None and spare.shape == size else buffer.new_empty(size)
    view = buffer.narrow(-2, 0, x.shape[-2])
    torch.index_select(x, 0, rows, out=view)
    return buffer, view
