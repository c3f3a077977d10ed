"""A step on a GPU is timed by marks in its queue, which are read later: none is lost, the host is few steps ahead."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import small_runs
import torch
from devices import NoWaiting

from odeum.lab.study.measuring import steppers
from odeum.lab.tasks import open_task
from odeum.lab.train.batches import seed_generators
from odeum.lab.train.clock import AHEAD, QueueClock, StepClock, clock_of, pinned
from odeum.lab.train.distributed.world import World
from odeum.lab.train.job import Job
from odeum.lab.train.run import with_changes
from odeum.registry.spelling import parse


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


@pytest.mark.parametrize("kind", ["images", "language"])
def test_a_step_of_training_never_waits_for_the_device(kind: str, tmp_path: Path) -> None:
    """Batch, forward pass, loss, gradients, AdamW and averaged weights; torch does not clip on the meta device."""
    settings = {"clip": 0.0, "ema": 0.9, "label_smoothing": 0.1, "accumulate": 2, "precision": "fp32"}
    if kind == "images":
        job = small_runs.job(tmp_path / "run", **settings)
    else:
        (tmp_path / "words.txt").write_text("the cat sat on the mat and saw the dog\n" * 200)
        task = open_task(tmp_path / "words.txt")
        model = replace(task.model(), depth=2, width=32, heads=4, hidden=64)
        training = with_changes(task.training(), small_runs.TRAINING | settings)
        job = Job.on(task, model, parse("parallel"), training, 0, tmp_path / "run")
    ((step, _),) = steppers(job, World(torch.device("meta")))
    with NoWaiting():
        step()
        step()
