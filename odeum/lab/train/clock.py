"""How long steps took, without making the host wait for a device that works through a queue."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

AHEAD = 2
"""steps that the host may be ahead of a GPU: enough to keep it busy, few enough to be stopped soon"""


class StepClock:
    """Of a device that has computed when the call returns."""

    def begin(self) -> None:
        """A step begins."""
        self.begun = time.perf_counter()

    def end(self) -> float:
        """It has ended, and took so long; 0 if no step's time is known yet."""
        return time.perf_counter() - self.begun

    def rest(self) -> list[float]:
        """Of the steps whose time was not known yet, after waiting for them."""
        return []


class QueueMark(Protocol):
    """A mark in a device's queue, as `torch.cuda.Event` is one."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float: ...


class QueueClock(StepClock):
    """Of a GPU: marks before and after a step say how long it took there, and each is read AHEAD steps later."""

    def __init__(self, event: Callable[[], QueueMark]) -> None:
        self.event = event
        self.under_way: deque[tuple[QueueMark, QueueMark]] = deque()

    def begin(self) -> None:
        self.first = self.event()
        self.first.record()

    def end(self) -> float:
        last = self.event()
        last.record()
        self.under_way.append((self.first, last))
        return self._oldest() if len(self.under_way) > AHEAD else 0.0

    def rest(self) -> list[float]:
        return [self._oldest() for _ in range(len(self.under_way))]

    def _oldest(self) -> float:
        first, last = self.under_way.popleft()
        last.synchronize()
        return 1e-3 * first.elapsed_time(last)


def clock_of(device: torch.device) -> StepClock:
    """The clock that tells the truth about steps on this device."""
    if device.type == "cuda":
        return QueueClock(lambda: torch.cuda.Event(enable_timing=True))
    return StepClock()


def pinned(batches: Iterable[dict[str, Tensor]], device: torch.device) -> Iterator[dict[str, Tensor]]:
    """The batches, for a GPU in memory from which they are copied while it computes.

    The host is ahead of a GPU, so the next batch is made while this one is under way: no thread is needed for it.
    """
    for batch in batches:
        yield {key: value.pin_memory() for key, value in batch.items()} if device.type == "cuda" else batch
