"""The question itself: which layer is worth it here? Every architecture under one recipe, same seeds, same batches."""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odeum.distributed.ranks import is_main
from odeum.errors import Diverged, OdeumError, choose
from odeum.models.description import describe
from odeum.settings.architecture import Architecture
from odeum.settings.model import Model
from odeum.settings.spelling import spell
from odeum.settings.training import Training, seconds_of
from odeum.storage import alone_in, make_directory, read_json, slug, write_json
from odeum.tasks import Task
from odeum.train import Job, macs_per_step, refuse_another, train
from odeum.train.progress import Progress

MATCHES = ("steps", "time", "macs", "params")


@dataclass(frozen=True)
class Comparison:
    """What is compared with what, and what is held equal."""

    task: Task
    model: Model
    training: Training
    architectures: Sequence[Architecture]
    seeds: int
    match: str
    directory: Path
    baseline: Architecture | None = None
    command: str = ""
    overwrite: bool = False
    """begin its runs again"""

    def __post_init__(self) -> None:
        check_plan(self.match, self.seeds, self.architectures, self.training.budget)


def check_plan(match: str, seeds: int, architectures: Sequence[str | Architecture], budget: str | None) -> None:
    """Refuse a plan that cannot be, whatever its data."""
    choose(match, MATCHES, "match")
    if seeds < 1:
        raise OdeumError(f"a comparison needs at least one seed, not {seeds}")
    if not architectures:
        raise OdeumError("a comparison needs at least one architecture, such as sequential,parallel")
    if match == "time" and budget is None:
        raise OdeumError("to match time, say how much: --budget 10m")


def compare(job: Comparison, after_seed: Callable[[], None] | None = None) -> list[str]:
    """Train what is not there yet; returns a sentence for each run that failed.

    Two comparisons must not write one plan, or the one's baseline would be the other's: the second is refused.
    """
    named = {spell(architecture): architecture for architecture in job.architectures}
    baseline = spell(job.baseline) if job.baseline is not None else next(iter(named))
    if baseline not in named:
        raise OdeumError(f"the baseline '{baseline}' must be one of the architectures: {', '.join(named)}")
    plans = {name: _plan(job, name, architecture, named[baseline]) for name, architecture in named.items()}
    with contextlib.ExitStack() as held:
        if is_main():
            make_directory(job.directory)
            held.enter_context(alone_in(job.directory))
            if job.overwrite:
                _forget(job.directory)
        _refuse_another_match(job)
        return _train_all(job, plans, baseline, after_seed)


def _train_all(
    job: Comparison, plans: dict[str, Job], baseline: str, after_seed: Callable[[], None] | None
) -> list[str]:
    training = _recipes(job, plans, baseline)
    runs = []
    for seed in range(job.seeds):  # seed by seed, so that an interrupted comparison has whole pairs
        for name, plan in plans.items():
            directory = plan.directory / f"seed-{seed}"
            runs.append(replace(plan, training=training[name], seed=seed, directory=directory))
    for run in runs:
        refuse_another(run)
    if is_main():
        _write_plan(job, list(plans), baseline)
        size = f"{_several(len(plans), 'architecture')} × {_several(job.seeds, 'seed')}"
        print(f"{size} on {job.task.name}, equal {job.match}; runs in {job.directory}", file=sys.stderr)
    failures = []
    for number, run in enumerate(runs, 1):
        progress = Progress(f"[{run.seed + 1}/{job.seeds}] {spell(run.architecture)}", quiet=not is_main())
        try:
            failures += filter(None, [train(run, progress).get("failed")])
        except Diverged as error:
            failures.append(str(error))
            progress.say(f"failed: {error}")
            # A run that diverged is a result, and would diverge again.
            lost = {job.task.metric: math.nan, "loss": math.nan}
            if is_main():
                write_json(run.directory / "result.json", {"failed": str(error), "valid": lost, "test": lost})
        if after_seed is not None and number % len(plans) == 0 and number < len(runs):
            after_seed()
    return failures


def _plan(job: Comparison, name: str, architecture: Architecture, baseline: Architecture) -> Job:
    """A run of the architecture, described once for all seeds: what cannot be built is refused before any training."""
    model = _matched_size(job, architecture, baseline)
    facts = describe(architecture, model, detail=False)
    return Job(job.task, model, architecture, job.training, 0, job.directory / slug(name), job.command, facts=facts)


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _refuse_another_match(job: Comparison) -> None:
    """One table has one promise of what was held equal."""
    path = job.directory / "comparison.json"
    before = read_json(path).get("match") if path.exists() else None
    if before not in (None, job.match):
        raise OdeumError(f"'{job.directory}' holds a comparison of equal {before}, not {job.match}; give another --out")


def _forget(directory: Path) -> None:
    """Remove the runs of an earlier comparison, so that one table never shows two recipes; nothing else is touched."""
    for path in [*directory.glob("*/seed-*/run.json"), *directory.glob(".pace/*/run.json")]:
        with alone_in(path.parent):
            shutil.rmtree(path.parent)
    (directory / "comparison.json").unlink(missing_ok=True)


def began_by(command: str, directory: Path) -> bool:
    """Whether this very command began the comparison in a directory."""
    path = directory / "comparison.json"
    return path.is_file() and read_json(path).get("command") == command


def _write_plan(job: Comparison, names: list[str], baseline: str) -> None:
    """comparison.json; architectures of an earlier call with the same directory stay in the table."""
    path = job.directory / "comparison.json"
    before = read_json(path) if path.exists() else {}
    earlier = [name for name in before.get("architectures", []) if name not in names]
    write_json(
        path,
        {
            "architectures": [*names, *earlier],
            "baseline": baseline,
            "data": job.task.name,
            "match": job.match,
            "budget": job.training.budget,
            "seeds": max(job.seeds, before.get("seeds", 0)),
            "command": job.command,
        },
    )


def _recipes(job: Comparison, plans: dict[str, Job], baseline: str) -> dict[str, Training]:
    """The recipe of each architecture: the same but for its length, which is what `match` holds equal."""
    training = job.training
    if job.match == "time":
        return dict.fromkeys(plans, training)
    if training.budget is not None:
        # The baseline's own speed says how many steps fit into the time; all others take their number from it.
        training = replace(training, budget=None, steps=_steps_within(job, plans[baseline]))
    if training.macs is not None:  # and so are theirs for a number of multiply–adds
        each = _macs_per_step(plans[baseline])
        training = replace(training, macs=None, steps=max(1, round(training.macs / each)))
    if job.match != "macs":
        return dict.fromkeys(plans, training)
    macs = {name: _macs_per_step(plan) for name, plan in plans.items()}
    steps = training.steps or round(training.epochs * job.task.steps_per_epoch(training.batch_size))
    return {name: replace(training, steps=max(1, round(steps * macs[baseline] / macs[name]))) for name in plans}


def _macs_per_step(plan: Job) -> float:
    assert plan.facts is not None
    return macs_per_step(plan, plan.facts["macs"])


def _steps_within(job: Comparison, plan: Job) -> int:
    """Steps of the baseline in the budget: its first seed is trained by the clock, once, in a folder of its own."""
    assert job.training.budget is not None
    seconds = seconds_of(job.training.budget)
    short = replace(job.training, budget=f"{min(20.0, seconds / 4):g}s", evaluate_every=10**9)
    what = f"{plan.model} {spell(plan.architecture)} {short} {job.task.fingerprint()}"
    key = hashlib.blake2b(what.encode(), digest_size=8).hexdigest()
    result = train(replace(plan, training=short, directory=job.directory / ".pace" / key), Progress("pace", quiet=True))
    return max(1, int(seconds / result["step_seconds"]))


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
