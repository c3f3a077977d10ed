"""Measures step times without synchronising the host with an asynchronous device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

AHEAD = 2
"""how many steps the host may run ahead of a GPU: enough to keep it busy, few enough to stop soon"""


class StepClock:
    """Clock for synchronous devices: the computation is done when the call returns."""

    def begin(self) -> None:
        """Mark the start of a step."""
        self.started = time.perf_counter()

    def end(self) -> float:
        """Mark the end of a step. Returns its duration in seconds, or 0 if no duration is known yet."""
        return time.perf_counter() - self.started

    def remaining(self) -> list[float]:
        """Wait for the steps whose duration is not known yet, and return their durations."""
        return []


class QueueMark(Protocol):
    """An event in a device's queue, such as `torch.cuda.Event`."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float: ...


class QueueClock(StepClock):
    """Clock for GPUs: events before and after each step, read `AHEAD` steps later."""

    def __init__(self, event: Callable[[], QueueMark]) -> None:
        self.event = event
        self.pending: deque[tuple[QueueMark, QueueMark]] = deque()

    def begin(self) -> None:
        self.first = self.event()
        self.first.record()

    def end(self) -> float:
        last = self.event()
        last.record()
        self.pending.append((self.first, last))
        return self._oldest() if len(self.pending) > AHEAD else 0.0

    def remaining(self) -> list[float]:
        return [self._oldest() for _ in range(len(self.pending))]

    def _oldest(self) -> float:
        first, last = self.pending.popleft()
        last.synchronize()
        return 1e-3 * first.elapsed_time(last)


def clock_of(device: torch.device) -> StepClock:
    """Returns the clock that suits this device."""
    if device.type == "cuda":
        return QueueClock(lambda: torch.cuda.Event(enable_timing=True))
    return StepClock()


def pinned(batches: Iterable[dict[str, Tensor]], device: torch.device) -> Iterator[dict[str, Tensor]]:
    """Yields the batches, in pinned memory if the device is a GPU, so that copies overlap with computation.

    The host runs ahead of a GPU, so the next batch is prepared while this one is computed: no thread is needed.
    """
    for batch in batches:
        yield {key: value.pin_memory() for key, value in batch.items()} if device.type == "cuda" else batch
