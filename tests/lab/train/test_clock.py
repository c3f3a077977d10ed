"""A step on a GPU is timed by marks in its queue, which are read later: none is lost, the host is few steps ahead."""

from __future__ import annotations

import itertools

import pytest
import torch

from odeum.lab.train.batches import seed_generators
from odeum.lab.train.clock import AHEAD, QueueClock, StepClock, clock_of, pinned


class Queue:
    """A device that takes a second more for each step, and notes how many marks it was waited for."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, 0

    def event(self) -> Mark:
        return Mark(self)


class Mark:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def record(self) -> None:
        self.at = self.queue.now

    def synchronize(self) -> None:
        self.queue.waits += 1

    def elapsed_time(self, end_event: Mark) -> float:
        return 1e3 * (end_event.at - self.at)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_each_step_is_counted_once_and_late(steps: int) -> None:
    queue = Queue()
    clock = QueueClock(queue.event)
    told = []
    for step in range(1, steps + 1):
        queue.now += 100.0  # what happens between steps is not theirs
        clock.begin()
        queue.now += step
        told.append(clock.end())
        assert queue.waits == max(0, step - AHEAD)
    assert told == [*[0.0] * min(AHEAD, steps), *map(float, range(1, steps - AHEAD + 1))]
    assert [*filter(None, told), *clock.remaining()] == [float(step) for step in range(1, steps + 1)]
    assert clock.remaining() == []


def test_a_cpu_has_computed_when_the_call_returns() -> None:
    clock = clock_of(torch.device("cpu"))
    assert type(clock) is StepClock
    clock.begin()
    assert clock.end() > 0 and clock.remaining() == []


def test_batches_come_as_they_are_where_nothing_is_gained_by_pinning() -> None:
    batches = [{"labels": torch.arange(3)}, {"labels": torch.arange(2)}]
    same = pinned(batches, torch.device("cpu"))
    assert all(a is b for a, b in itertools.zip_longest(batches, same))


def test_seeding_a_step_is_seeding_torch_without_waiting_for_devices_that_are_not_there() -> None:
    queue = len(torch.cuda._queued_calls)
    seed_generators(12345, torch.device("cpu"))
    drawn = torch.rand(3)
    assert len(torch.cuda._queued_calls) == queue
    torch.manual_seed(12345)
    assert torch.equal(torch.rand(3), drawn)
