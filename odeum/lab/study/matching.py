"""What is held equal: the length of each architecture's training, or the size of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from odeum.lab.study.forecast import run_seconds
from odeum.lab.study.pace import Pace
from odeum.lab.train.distributed.world import join
from odeum.lab.train.job import Job, facts_of, macs_per_step
from odeum.lab.train.settings import Training, seconds_of
from odeum.models.description import describe
from odeum.models.settings import Model
from odeum.registry.names import Architecture
from odeum.storage import slug

if TYPE_CHECKING:
    from odeum.lab.study.comparison import Comparison
    from odeum.lab.study.plan import Plan


def sized_run(job: Comparison, name: str, architecture: Architecture, baseline: Architecture) -> Job:
    """A run of the architecture, described once for all seeds: what cannot be built is refused before any training."""
    model = _matched_size(job, architecture, baseline)
    facts = describe(architecture, model, detail=False)
    folder = job.directory / slug(name)
    more = {"command": job.command, "plugins": job.plugins, "facts": facts}
    return Job.on(job.task, model, architecture, job.training, 0, folder, **more)


def paces(plan: Plan, runs: Mapping[str, Job], baseline: str) -> dict[str, Pace]:
    """Cost of a step per architecture: as planned before, or measured now, all of them in turns.

    Architectures that came later are measured beside one whose cost is known, so that all costs have one reference.
    """
    if runs.keys() <= plan.pace.keys():
        return plan.pace
    from odeum.lab.study.measuring import measure

    def whole(steps: Mapping[str, float]) -> float:
        return plan.seeds.limit * sum(run_seconds(runs[name], seconds) for name, seconds in steps.items())

    anchor = next((name for name in (baseline, *runs) if name in plan.pace), baseline)
    measured = measure(runs, anchor, join(runs[anchor].training), whole)
    if anchor in plan.pace:
        measured = {name: pace.after(plan.pace[anchor]) for name, pace in measured.items()}
    return measured | plan.pace


def recipes(job: Comparison, plans: dict[str, Job], baseline: str, pace: Mapping[str, Pace]) -> dict[str, Training]:
    """The recipe of each architecture: the same but for its length, which is what `match` holds equal."""
    training = job.training
    if training.budget is not None:
        seconds = seconds_of(training.budget)
        steps = {name: pace[name].steps_in(seconds) for name in plans}
        training = replace(training, budget=None, steps=steps[baseline])
        if job.match == "time":  # of measured cost, whatever the machine's clock will say
            return {name: replace(training, steps=steps[name]) for name in plans}
    if training.macs is not None:  # and so are theirs for a number of multiply–adds
        each = _macs_per_step(plans[baseline])
        training = replace(training, macs=None, steps=max(1, round(training.macs / each)))
    if job.match != "macs":
        return dict.fromkeys(plans, training)
    macs = {name: _macs_per_step(plan) for name, plan in plans.items()}
    steps = training.steps or round(training.epochs * job.task.steps_per_epoch(training.batch_size))
    return {name: replace(training, steps=max(1, round(steps * macs[baseline] / macs[name]))) for name in plans}


def _macs_per_step(run: Job) -> float:
    return macs_per_step(run, facts_of(run)["macs"])


def _matched_size(job: Comparison, architecture: Architecture, baseline: Architecture) -> Model:
    """To match parameters: the width (a multiple of the heads, even a head) whose count comes nearest."""
    if job.match != "params" or architecture == baseline:
        return job.model
    wanted = describe(baseline, job.model, detail=False)["parameters"]
    unit = 2 * job.model.heads
    ratio = (job.model.hidden or 4 * job.model.width) / job.model.width

    def sized(width: int) -> Model:
        return replace(job.model, width=width, hidden=round(ratio * width))

    def count(width: int) -> int:
        return describe(architecture, sized(width), detail=False)["parameters"]

    low, high = 1, 1
    while count(high * unit) < wanted:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle * unit) < wanted else (low, middle)
    best = min((low, high), key=lambda n: abs(count(n * unit) - wanted))
    return sized(best * unit)
