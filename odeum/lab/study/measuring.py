"""Measure the cost of a training step: all rows take turns in one process, so that other load affects them alike.

It is measured once, before anything is trained, and stands in the plan. By it a budget of time becomes a number of
steps, a comparison says beforehand what it will take, and a table compares step times. Equal time then means equal
measured cost: a run repeats bit for bit, may go on beside others, and does not depend on who else is at work.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch

from odeum.lab.launch.worker import Reporting
from odeum.lab.study.pace import Pace
from odeum.lab.train.distributed.world import World
from odeum.lab.train.job import Job, facts_of, initial_model, plan_run
from odeum.lab.train.memory import memory_now, peak_memory, reset_peak_memory
from odeum.looping import phases
from odeum.models.limits import available_memory

WARM_UP = 2
"""steps before the measurement: the first ones allocate memory"""
FEWEST, MOST = 3, 28
"""turns per row"""
SHORTEST_TURN = 0.03
"""seconds per turn; a row with shorter steps takes several of them"""
LONGEST = 20.0
"""seconds of all turns together, approximately"""
SHARE = 0.05
"""the share of the time of all runs that may be spent on measuring"""
BYTES_A_PARAMETER = 20.0
"""memory per parameter in training: weight, gradient, Adam's two averages, and the initial weight"""


def measure(
    jobs: Mapping[str, Job], baseline: str, world: World, whole: Callable[[Mapping[str, float]], float]
) -> dict[str, Pace]:
    """The cost per step of each job; `whole` returns the seconds of all their runs for given seconds per step.

    A job with one thread is timed by CPU time, which other processes affect least.
    """
    unending = {name: _without_end(job) for name, job in jobs.items()}
    turns = _Turns(unending, world, whole)
    times = turns.take([baseline, *(name for name in jobs if name != baseline)])
    base = statistics.median(times[baseline][0])
    return {name: _pace(*times[name], base, turns.memory[name], name == baseline) for name in jobs}


def _without_end(job: Job) -> Job:
    training = replace(job.training, budget=None, macs=None, steps=10**9, tensorboard=False, track=None)
    return replace(job, training=training)


def _pace(ours: list[float], beside: list[float], base: float, memory: int, is_baseline: bool) -> Pace:
    if is_baseline:
        return Pace(base, 1.0, 1.0, 1.0, memory)
    ratios = sorted(a / b for a, b in zip(ours, beside, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    ratio = 1.0 if low <= 1.0 <= high else middle
    return Pace(base * ratio, ratio, low, high, memory)


class _Turns:
    """Interleaves the jobs: all of them or, if their models do not fit into memory together, in groups."""

    def __init__(self, jobs: Mapping[str, Job], world: World, whole: Callable[[Mapping[str, float]], float]) -> None:
        self.jobs, self.world, self.whole = jobs, world, whole
        self.memory: dict[str, int] = {}
        threads = {job.threads or torch.get_num_threads() for job in jobs.values()}
        one = world.device.type == "cpu" and threads == {1}
        self.clock = time.process_time if one else time.perf_counter

    def take(self, names: Sequence[str]) -> dict[str, tuple[list[float], list[float]]]:
        """Seconds per step of each job by turn; the first job is the baseline."""
        if self._fit(names):
            try:
                times = self._interleaved(names)
                return {name: (each, times[names[0]]) for name, each in times.items()}
            except torch.OutOfMemoryError:
                if len(names) == 1:
                    raise
        first, *others = names
        if len(others) < 2:  # not even two at once: one after the other
            alone = {name: self._interleaved([name])[name] for name in names}
            turns = min(map(len, alone.values()))
            return {name: (each[:turns], alone[first][:turns]) for name, each in alone.items()}
        half = len(others) // 2
        return self.take([first, *others[:half]]) | self.take([first, *others[half:]])

    def _fit(self, names: Sequence[str]) -> bool:
        """Whether the models fit into half of the memory, estimated from parameters; GPUs raise their own error."""
        if len(names) == 1 or self.world.device.type == "cuda":
            return True
        facts = (facts_of(self.jobs[name]) for name in names)
        return sum(BYTES_A_PARAMETER * each["parameters"] for each in facts) <= available_memory() / 2

    def _interleaved(self, names: Sequence[str]) -> dict[str, list[float]]:
        device = self.world.device
        self._timed(steppers(self.jobs[names[0]], self.world), 1)  # loads what no row should be charged for
        taken, first, empty = {}, {}, None
        for name in names:
            gc.collect()
            reset_peak_memory(device)
            before = memory_now(device)
            empty = before if empty is None else empty
            taken[name] = steppers(self.jobs[name], self.world)
            first[name] = min(self._timed(taken[name], 1) for _ in range(WARM_UP))
            self.memory[name] = max(self.memory.get(name, 0), empty + peak_memory(device) - before)
        counts, rounds = self._lengths(first)
        times: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds):
            start = turn % len(names)
            for name in [*names[start:], *names[:start]]:
                times[name].append(self._timed(taken[name], counts[name]))
        return {name: [self.world.broadcast(seconds) for seconds in each] for name, each in times.items()}

    def _lengths(self, first: Mapping[str, float]) -> tuple[dict[str, int], int]:
        """Steps per turn by job, and the number of turns, limited by the length of the runs."""
        if self.world.size > 1:  # processes that step together must take equally many
            return dict.fromkeys(first, 1), FEWEST
        longest = min(LONGEST, SHARE * self.whole(first))
        turn = min(SHORTEST_TURN, longest / (FEWEST * len(first)))
        counts = {name: max(1, round(turn / max(seconds, 1e-6))) for name, seconds in first.items()}
        each = sum(first[name] * counts[name] for name in first)
        return counts, min(max(FEWEST, int(longest / max(each, 1e-9))), MOST)

    def _timed(self, steps: Sequence[tuple[Callable[[], None], float]], count: int) -> float:
        """Seconds per step, averaged over `count` steps and, by their shares, over the phases of training."""
        seconds = 0.0
        for step, share in steps:
            begin = self.clock()
            for _ in range(count):
                step()
            seconds += share * (self.clock() - begin) / count
        return seconds


def steppers(job: Job, world: World) -> list[tuple[Callable[[], None], float]]:
    """Functions that take one optimizer step on the run's own batches; nothing is written.

    One for each phase of training with a schedule of its own, with its share of training.
    """
    from odeum.lab.train.loop import Trainer

    run = plan_run(job, world)
    untouched = initial_model(job)  # for the run itself; what is timed is a copy
    job.put_model(deepcopy(untouched))
    trainer = Trainer(job, world, run, Reporting(lambda event: None))
    job.put_model(untouched)
    batches = itertools.cycle(list(itertools.islice(trainer.batches(), 8)))

    def step(progress: float) -> None:
        trainer.take_step(next(batches), progress)
        if world.device.type == "cuda":
            torch.cuda.synchronize(world.device)  # so that the clock tells the truth

    return [(partial(step, begin), share) for begin, share in phases(trainer.model)]
