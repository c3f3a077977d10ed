"""Matching of rows (equal length of training, or size of the model) and variation between seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.study.design import Study
from odeum.lab.study.forecast import run_seconds
from odeum.lab.study.pace import Pace
from odeum.lab.tasks import Task, open_task
from odeum.lab.train.distributed.world import join
from odeum.lab.train.job import Job, facts_of, macs_per_step
from odeum.lab.train.settings import Training, seconds_of
from odeum.models.description import describe
from odeum.models.settings import Model


def paces(study: Study, runs: Mapping[str, Job]) -> Mapping[str, Pace]:
    """Cost per step of each row: as planned before, or measured now, interleaved.

    Rows that were added later are measured together with a known one, so that all costs have one reference.
    """
    planned = study.pace or {}
    if runs.keys() <= planned.keys():
        return planned
    from odeum.lab.study.measuring import measure

    limit = study.seeds.limit if study.seeds else 1

    def whole(steps: Mapping[str, float]) -> float:
        return limit * sum(run_seconds(runs[label], seconds) for label, seconds in steps.items())

    anchor = next((label for label in (study.reference, *runs) if label in planned), study.reference)
    measured = measure(runs, anchor, join(runs[anchor].training), whole)
    if anchor in planned:
        measured = {label: pace.relative_to(planned[anchor]) for label, pace in measured.items()}
    return {**measured, **planned}


def matched_training(study: Study, runs: Mapping[str, Job]) -> dict[str, Training]:
    """The training of each row; where time or MACs are held equal, its length differs."""
    return {label: _matched(study, runs, label) for label in runs}


def _matched(study: Study, runs: Mapping[str, Job], label: str) -> Training:
    """The baseline's number of steps, times what a step of the baseline costs over one of this row.

    A warm-up in steps is scaled with the length, so that every row has its own complete schedule.
    """
    reference, run, pace = runs[study.reference], runs[label], study.pace or {}
    training, budget = run.training, run.training.budget
    if budget is not None:  # by the measured cost, whatever the machine's clock will say
        training = replace(training, budget=None, steps=pace[study.reference].steps_in(seconds_of(budget)))
    if training.macs is not None:  # the reference's number of steps for so many MACs
        training = replace(training, macs=None, steps=max(1, round(training.macs / _macs_per_step(reference))))
    if study.match not in ("macs", "time") or label == study.reference:
        return training
    steps = training.steps or round(training.epochs * run.task.steps_per_epoch(training.batch_size))
    if study.match == "time":
        cost = pace[study.reference].seconds / pace[label].seconds
    else:
        cost = _macs_per_step(reference) / _macs_per_step(run)
    warmup = training.warmup if training.warmup < 1 else max(1.0, training.warmup * cost)
    steps = pace[label].steps_in(seconds_of(budget)) if budget is not None and study.match == "time" else steps * cost
    return replace(training, steps=max(1, round(steps)), warmup=warmup)


def _macs_per_step(run: Job) -> float:
    return macs_per_step(run, facts_of(run))


def matched_model(run: Job, reference: Job) -> Model:
    """The model with the width (a multiple of the heads, even per head) whose parameter count comes nearest."""
    if run.architecture == reference.architecture:
        return run.model
    wanted = describe(reference.architecture, reference.model, detail=False)["parameters"]
    unit = 2 * run.model.heads
    ratio = (run.model.hidden or 4 * run.model.width) / run.model.width

    def sized(width: int) -> Model:
        return replace(run.model, width=width, hidden=round(ratio * width))

    def count(width: int) -> int:
        return describe(run.architecture, sized(width), detail=False)["parameters"]

    low, high = 1, 1
    while count(high * unit) < wanted:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle * unit) < wanted else (low, middle)
    best = min((low, high), key=lambda n: abs(count(n * unit) - wanted))
    return sized(best * unit)


class Folds:
    """The data of each seed if every seed has its own split; each is opened once.

    Training parts of such splits overlap, so seeds are not independent and a plain interval is too narrow. Nadeau and
    Bengio (2003) add test / training examples to 1 / n in the variance of the mean; `differences` calls it
    `overlap`.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.base: int | None = asdict(task.options).get("fold")
        self.opened = {0: task}
        if self.base is None:
            raise OdeumError(
                f"--vary split needs data without fixed parts; {task.name} ({task.kind}) has only one split"
            )
        if self.of(1).fingerprint() == task.fingerprint():
            raise OdeumError(f"--vary split: another fold of {task.name} ({task.kind}) holds out the same examples")

    def of(self, seed: int) -> Task:
        """The data of a seed: that of seed 0 is the usual one."""
        if seed not in self.opened:
            options: dict[str, Any] = {**asdict(self.task.options), "fold": (self.base or 0) + seed}
            self.opened[seed] = open_task(*self.task.source, kind=self.task.kind, **options)
        return self.opened[seed]

    @property
    def overlap(self) -> float:
        """Test over training examples."""
        sizes = self.task.sizes()
        if not sizes.get("train") or not sizes.get("test"):
            raise OdeumError(f"--vary split needs a known number of examples; {self.task.name} does not define it")
        return sizes["test"] / sizes["train"]
