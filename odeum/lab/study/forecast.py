"""Estimated cost before training: a comparison from measured steps, a paper's table from counted MACs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odeum.lab.launch.local import cores
from odeum.lab.study.grid import Grid
from odeum.lab.study.pace import Pace
from odeum.lab.study.prose import count, duration
from odeum.lab.study.runs import Store
from odeum.lab.train.job import Job, facts_of, forward_macs, macs_per_step
from odeum.lab.train.progress import clock_time
from odeum.lab.train.settings import seconds_of
from odeum.lab.train.spec import RunSpec
from odeum.models import OdeumModel, build
from odeum.models.description import describe
from odeum.models.settings import Translation

LOOKS = 10
"""evaluations during a run, unless its training sets another number"""
NOTICEABLY_BUSY = 1.5
"""slowdown by other load from which it is mentioned"""
WORTH_TELLING = 60.0
"""seconds from which the slowdown is mentioned"""
LONG = 2 * 3600.0
"""seconds from which a cheaper comparison is suggested"""


@dataclass(frozen=True)
class Forecast:
    """The estimated cost of the missing runs."""

    runs: int
    there: int
    """finished runs"""
    seconds: float
    """for all runs, `jobs` at a time"""
    dearest: tuple[str, float]
    """the row with the longest run, and its seconds"""
    memory: int
    """bytes per process"""
    jobs: int
    at_most: bool
    """whether decided rows will stop earlier"""
    busy: float = 1.0
    """slowdown by the current load of other processes"""
    tuning: Forecast | None = None
    """forecast of the tuning runs before any widening, which come first"""
    widened: int = 0
    """tuning runs at most"""
    baseline: float = 0.0
    """seconds of training of one run of the baseline"""

    def lines(self) -> list[str]:
        """Lines to print: the runs, their cost, and advice if it is high; tuning and evaluation apart."""
        if self.tuning is None:
            return self._lines()
        first, *rest = self.tuning._lines()
        most = (
            f" (up to {self.widened} runs where the best value lies at an end)"
            if self.widened > self.tuning.total
            else ""
        )
        evaluation, *advice = self._lines()
        return [f"tuning: {first}{most}", f"evaluation: {evaluation}", *(advice or rest)]

    @property
    def total(self) -> int:
        """All runs, finished or not."""
        return self.runs + self.there

    def _lines(self) -> list[str]:
        done = f" ({self.there} of them already exist)" if self.there else ""
        total = f"{self.runs + self.there} run{'' if self.runs + self.there == 1 else 's'}{done}"
        if not self.runs:
            return [f"{total}: nothing is left to train"]
        name, longest = self.dearest
        size = f"{self.memory / 1e9:.1f} GB" if self.memory >= 1e9 else f"{self.memory / 1e6:.0f} MB"
        each = f"{size} each, {self.jobs} at once" if self.jobs > 1 else size
        lines = [f"{'up to ' if self.at_most else ''}{total}, about {clock_time(self.seconds)} and {each}"]
        lines[0] += f" (longest run: {name}, {clock_time(longest)})"
        if self.busy >= NOTICEABLY_BUSY and self.busy * self.seconds > WORTH_TELLING:
            lines.append(
                f"other work keeps this machine busy: while it does, this takes about "
                f"{clock_time(self.busy * self.seconds)}; metrics and step times do not depend on it"
            )
        if self.seconds > LONG:
            fit = max(1, round(LONG * self.jobs / self.runs / 60))
            lines.append(
                f"these are hours: --budget {fit}m gives each run {fit} minutes of measured cost, about "
                f"{clock_time(LONG)} in all; fewer --architectures or a smaller model (--model.width, --model.depth) "
                "help too"
            )
        return lines


def forecast(
    runs: Mapping[tuple[str, int], Job],
    pace: Mapping[str, Pace],
    jobs: int,
    again: bool = False,
    at_most: bool = False,
) -> Forecast:
    """The cost of the runs at these costs per step; `again`: finished runs are repeated."""
    left = {key: run for key, run in runs.items() if again or not run.folder.finished}
    each = {key: run_seconds(run, pace[key[0]].seconds) for key, run in left.items()}
    side_by_side = max(1, min(jobs, len(left)))
    longest = max(each, key=lambda key: each[key], default=("", 0))
    seconds = max(sum(each.values()) / side_by_side, each.get(longest, 0.0))
    memory = max((int(pace[name].memory) for name, _ in left), default=0)
    dearest = longest[0], each.get(longest, 0.0)
    busy = _busy(side_by_side)
    return Forecast(len(left), len(runs) - len(left), seconds, dearest, memory, side_by_side, at_most, busy)


def _busy(jobs: int) -> float:
    """The slowdown of processes that share the cores with other load (of the last minute)."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # not available on this system
        return 1.0
    return max(1.0, (max(0.0, load - 1.0) + jobs) / max(cores(), jobs))  # one of the load is this process


def run_seconds(job: Job, step: float) -> float:
    """Seconds of a whole run: its steps, and its evaluations at a third of a step for as many examples."""
    training, task = job.training, job.task
    per_epoch = task.steps_per_epoch(training.batch_size)
    steps = training.steps or round(training.epochs * per_epoch)
    if training.budget is not None:
        steps = max(1, int(seconds_of(training.budget) / step))
    elif training.macs is not None:
        steps = max(1, round(training.macs / macs_per_step(job, facts_of(job))))
    sizes = task.sizes()
    if not sizes:
        return steps * step
    looks = steps / training.evaluate_every if training.evaluate_every else min(LOOKS, steps)
    seen = int(looks) * min(task.quick, sizes["valid"]) + sizes["valid"] + (sizes["test"] if job.test else 0)
    return steps * step + seen * step / 3 * per_epoch / max(1, sizes["train"])


# a paper's table

FLOPS_PER_MAC = 2.0
EXAMPLES_AT_ONCE = 16
"""batch size with which the speed of this machine is measured"""
FORWARDS = 3.0
"""forward and backward cost as much as three forward passes"""


@dataclass(frozen=True)
class RunCost:
    """The cost of one run of a row."""

    parameters: int
    macs: int
    """MACs per example, forward"""
    steps: int
    training_macs: float


def run_cost(spec: RunSpec, steps_per_epoch: int = 0) -> RunCost:
    """Counted for examples of full length: an upper bound for texts, the same for every architecture."""
    facts, training = describe(spec.architecture, spec.model, detail=False), spec.training
    steps = training.steps or round(training.epochs * steps_per_epoch)
    examples: float = training.batch_size
    if isinstance(spec.model, Translation):  # batches are counted in tokens
        examples = training.batch_size / spec.model.length
    return RunCost(facts["parameters"], facts["macs"], steps, FORWARDS * forward_macs(facts) * examples * steps)


def speed_here(specs: Mapping[str, RunSpec], store: Store) -> float:
    """MACs per second of one run on this machine: of the kept runs or, without any, of a few forward passes."""
    results = [run.result for label, spec in specs.items() for run in store.runs(label, spec, "loss")]
    done = [result for result in results if result and result.get("seconds")]
    if done:
        return sum(float(run["macs"]) for run in done) / sum(float(run["seconds"]) for run in done)
    return _measured_speed(next(iter(specs.values())))


def _measured_speed(spec: RunSpec) -> float:
    import torch

    model = build(spec.architecture, spec.model)
    assert isinstance(model, OdeumModel)
    macs = describe(spec.architecture, spec.model, detail=False)["macs"]
    example = {
        key: value.repeat(EXAMPLES_AT_ONCE, *(1,) * (value.ndim - 1))
        for key, value in model.eval().example("cpu").items()
    }
    model(**example)
    begin, passes = time.process_time(), 0
    with torch.no_grad():
        while time.process_time() - begin < 0.5:
            model(**example)
            passes += 1
    return macs * EXAMPLES_AT_ONCE * passes / (time.process_time() - begin)


def cost_grid(
    specs: Mapping[str, RunSpec], epochs: Mapping[str, int], store: Store, speed: float, teraflops: float
) -> Grid:
    """One line per row: the cost of one run here, at so many MACs per second, and at so many sustained TFLOP/s.

    `epochs` has the steps per epoch by row.
    """
    lines: list[Sequence[str]] = []
    for label, spec in specs.items():
        cost = run_cost(spec, epochs[label])
        there = FLOPS_PER_MAC * cost.training_macs / (1e12 * teraflops)
        lines.append(
            [
                label,
                spec.name,
                count(cost.parameters),
                count(cost.macs),
                count(cost.training_macs),
                str(cost.steps),
                _hours(cost.training_macs / speed),
                _hours(there),
                str(len(store.runs(label, spec, "loss"))),
            ]
        )
    heads = ("row", "architecture", "parameters", "multiply–adds", "of training", "steps", "a run here")
    return Grid.of((*heads, f"at {teraflops:g} TFLOP/s", "seeds kept"), lines, (0, 1))


def _hours(seconds: float) -> str:
    return duration(seconds) if seconds < 7200 else f"{seconds / 3600:,.0f} h"
