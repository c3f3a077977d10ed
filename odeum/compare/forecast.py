"""What a comparison will cost, told before it begins: a few steps of each architecture are taken and timed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from odeum.compare.pace import stepper
from odeum.distributed.world import join
from odeum.models.description import describe
from odeum.settings.training import seconds_of
from odeum.train.job import Job, macs_per_step
from odeum.train.memory import peak_memory, reset_peak_memory
from odeum.train.progress import clock_time

LOOKS = 10
"""evaluations during a run, unless its recipe says another number"""
LONG = 2 * 3600.0
"""seconds from which a cheaper question is suggested"""
LONGEST = 2.0
"""seconds of measured steps of one architecture, beside its first two"""


@dataclass(frozen=True)
class Forecast:
    """The cost of the runs that are not there yet."""

    runs: int
    there: int
    """runs that have ended already"""
    seconds: float
    """of all of them, as many at once as there are jobs"""
    dearest: tuple[str, float]
    """the architecture with the longest run, and its seconds"""
    memory: int
    """bytes of one process"""
    jobs: int
    at_most: bool
    """whether the rows that are decided will stop earlier"""

    def lines(self) -> list[str]:
        """For people: what will be done, what it takes, and what would take less."""
        done = f" ({self.there} of them there already)" if self.there else ""
        total = f"{self.runs + self.there} run{'' if self.runs + self.there == 1 else 's'}{done}"
        if not self.runs:
            return [f"{total}: nothing is left to train"]
        name, longest = self.dearest
        size = f"{self.memory / 1e9:.1f} GB" if self.memory >= 1e9 else f"{self.memory / 1e6:.0f} MB"
        each = f"{size} each, {self.jobs} at once" if self.jobs > 1 else size
        lines = [f"{'up to ' if self.at_most else ''}{total}, about {clock_time(self.seconds)} and {each}"]
        lines[0] += f" (longest run: {name}, {clock_time(longest)})"
        if self.seconds > LONG:
            fit = max(1, round(LONG * self.jobs / self.runs / 60))
            lines.append(
                f"these are hours: --budget {fit}m gives each run {fit} minutes of measured cost, about "
                f"{clock_time(LONG)} in all; fewer --architectures or a smaller model (--model.width, --model.depth) "
                "help too"
            )
        return lines


def forecast(runs: Mapping[tuple[str, int], Job], jobs: int, again: bool = False, at_most: bool = False) -> Forecast:
    """Measure a step of each architecture that has runs to do; `again`: those that have ended are repeated."""
    left = {key: run for key, run in runs.items() if again or not (run.directory / "result.json").exists()}
    first: dict[str, Job] = {}
    for (name, _), run in left.items():
        first.setdefault(name, run)
    device = join(next(iter(runs.values())).training).device
    reset_peak_memory(device)
    whole = {name: run_seconds(run, step_seconds(run)) for name, run in first.items()}
    each = [whole[name] for name, _ in left]
    side_by_side = max(1, min(jobs, len(left)))
    seconds = max(sum(each) / side_by_side, max(each, default=0.0))
    dearest = max(whole.items(), key=lambda item: item[1], default=("", 0.0))
    memory = peak_memory(device) if left else 0
    return Forecast(len(left), len(runs) - len(left), seconds, dearest, memory, side_by_side, at_most)


def step_seconds(job: Job) -> float:
    """Seconds of a step on the batches of the run itself; the first ones allocate and are not counted."""
    training = replace(job.training, tensorboard=False, compile=False, budget=None, macs=None, steps=10**9)
    step = stepper(replace(job, training=training), join(training))
    step()
    times = []
    begin = time.perf_counter()
    while len(times) < 2 or (time.perf_counter() - begin < LONGEST / 10 and len(times) < 20):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
        if sum(times) > LONGEST:
            break
    return min(times)


def run_seconds(job: Job, step: float) -> float:
    """Of a whole run: its steps, and its evaluations, which go forward only: a third of a step for as many examples."""
    training, task = job.training, job.task
    per_epoch = task.steps_per_epoch(training.batch_size)
    steps = training.steps or round(training.epochs * per_epoch)
    if training.budget is not None:
        steps = max(1, int(seconds_of(training.budget) / step))
    elif training.macs is not None:
        facts = job.facts or describe(job.architecture, job.model, detail=False)
        steps = max(1, round(training.macs / macs_per_step(job, facts["macs"])))
    sizes = task.sizes()
    if not sizes:
        return steps * step
    looks = steps / training.evaluate_every if training.evaluate_every else min(LOOKS, steps)
    seen = int(looks) * min(task.quick, sizes["valid"]) + sizes["valid"] + sizes["test"]
    return steps * step + seen * step / 3 * per_epoch / max(1, sizes["train"])
