"""What a step costs: all architectures take turns in one process, so that they meet the same neighbours.

A budget of time becomes a number of steps by this measurement, once, before anything is trained. Equal time then means
equal measured cost: a run repeats bit for bit, may go on beside others, and does not depend on who else is at work.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch

from odeum.distributed.world import World
from odeum.launch.worker import Reporting
from odeum.train.job import Job, plan_run

WARM_UP = 2
"""steps that are not counted: the first ones allocate"""
ROUNDS = 7
"""turns of each architecture, at least"""
SHORTEST_TURN = 0.03
"""seconds of a turn; an architecture whose step is shorter takes several"""


@dataclass(frozen=True)
class Pace:
    """Seconds of a step beside the baseline's."""

    seconds: float
    """of the baseline's step × ratio"""
    ratio: float
    """median over the turns of (this architecture / the baseline); 1 where it is a tie"""
    low: float
    high: float
    """quartiles of the ratio over the turns"""

    @property
    def tie(self) -> bool:
        """Whether the machine's noise is larger than the difference."""
        return self.low <= 1.0 <= self.high

    def steps_in(self, budget: float) -> int:
        """How many steps a budget of seconds holds."""
        return max(1, int(budget / self.seconds))

    def record(self) -> dict[str, float]:
        """For the plan."""
        return asdict(self)


def measure(jobs: Mapping[str, Job], baseline: str, world: World, longest: float = 20.0) -> dict[str, Pace]:
    """The pace of each job; `longest` is about how many seconds all of it may take.

    A job of one thread is timed by the process's own time, which neighbours lengthen least.
    """
    threads = {job.threads or torch.get_num_threads() for job in jobs.values()}
    clock = time.process_time if world.device.type == "cpu" and threads == {1} else time.perf_counter
    steppers = {name: stepper(job, world) for name, job in jobs.items()}
    first = {name: _timed(step, WARM_UP, clock) for name, step in steppers.items()}
    counts, rounds = dict.fromkeys(jobs, 1), ROUNDS
    if world.size == 1:  # processes that step together must take equally many
        counts = {name: max(1, round(SHORTEST_TURN / max(seconds, 1e-6))) for name, seconds in first.items()}
        each = sum(first[name] * counts[name] for name in jobs)
        rounds = min(max(ROUNDS, int(longest / each)), 4 * ROUNDS)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds):
        names = list(jobs)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(_timed(steppers[name], counts[name], clock))
    times = {name: [world.agree(seconds) for seconds in own] for name, own in times.items()}
    base = statistics.median(times[baseline])
    return {name: _pace(times[name], times[baseline], base, name == baseline) for name in jobs}


def _pace(own: list[float], baseline: list[float], base: float, is_baseline: bool) -> Pace:
    if is_baseline:
        return Pace(base, 1.0, 1.0, 1.0)
    ratios = sorted(a / b for a, b in zip(own, baseline, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    ratio = 1.0 if low <= 1.0 <= high else middle
    return Pace(base * ratio, ratio, low, high)


def _timed(step: Callable[[], None], count: int, clock: Callable[[], float]) -> float:
    """Seconds of one of `count` steps."""
    begin = clock()
    for _ in range(count):
        step()
    return (clock() - begin) / count


def stepper(job: Job, world: World) -> Callable[[], None]:
    """One optimizer step after another, on the batches of the run itself; nothing is written."""
    from odeum.train.loop import Trainer

    trainer = Trainer(job, world, plan_run(job, world), Reporting(lambda event: None))
    batches = itertools.cycle(list(itertools.islice(trainer.batches(), 8)))

    def step() -> None:
        trainer.take_step(next(batches))

    return step
