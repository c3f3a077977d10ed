"""The question itself: which layer is worth it here? Every architecture under one recipe, same seeds, same batches."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from odeum.compare.matching import recipes, sized_run
from odeum.compare.plan import Plan, check_plan, forget, make_plan
from odeum.compare.seeds import Answer, Seeds, decide, going
from odeum.distributed.ranks import is_main
from odeum.errors import Diverged, OdeumError
from odeum.settings.architecture import Architecture
from odeum.settings.metric import metric_named
from odeum.settings.model import Model
from odeum.settings.spelling import spell
from odeum.settings.training import Training
from odeum.storage import alone_in, make_directory, read_json, slug, write_json
from odeum.tasks import Task
from odeum.train import Job, refuse_another, train
from odeum.train.progress import Progress


@dataclass(frozen=True)
class Comparison:
    """What is compared with what, and what is held equal."""

    task: Task
    model: Model
    training: Training
    architectures: Sequence[Architecture]
    seeds: Seeds
    match: str
    directory: Path
    baseline: Architecture | None = None
    """what the others are compared with and matched to (none: the first)"""
    command: str = ""
    overwrite: bool = False
    """begin its runs again"""
    ranking: bool = False
    """every two are compared; the baseline is only what is matched"""
    judge: str | None = None
    """what decides, `metric` or `loss` (none: as planned before, else the metric)"""
    margin: str | None = None
    """what matters, as the command line spells it (none: as planned before, else the metric's own)"""

    def __post_init__(self) -> None:
        check_plan(self.match, self.architectures, self.training.budget)


Results = dict[str, dict[int, dict[str, Any]]]
"""result.json by architecture and seed"""


def compare(job: Comparison, after_seed: Callable[[], None] | None = None) -> list[str]:
    """Plan, train what is not there yet, look at the results when it was planned; a sentence for each failed run.

    Two comparisons must not write one plan, or the one's baseline would be the other's: the second is refused.
    """
    named = {spell(architecture): architecture for architecture in job.architectures}
    reference = spell(job.baseline) if job.baseline is not None else next(iter(named))
    if reference not in named:
        raise OdeumError(f"the baseline '{reference}' must be one of the architectures: {', '.join(named)}")
    sized = {name: sized_run(job, name, architecture, named[reference]) for name, architecture in named.items()}
    with contextlib.ExitStack() as held:
        if is_main():
            make_directory(job.directory)
            held.enter_context(alone_in(job.directory))
            if job.overwrite:
                forget(job.directory)
        plan = plan_of(job, list(named), reference)
        return _train_all(job, plan, jobs_of(job, sized, recipes(job, sized, reference)), after_seed)


def _train_all(
    job: Comparison, plan: Plan, runs: dict[tuple[str, int], Job], after_seed: Callable[[], None] | None
) -> list[str]:
    architectures = list(dict.fromkeys(name for name, _ in runs))
    for run in runs.values():  # refuse before anything is trained
        refuse_another(run)
    if is_main():
        plan.write(job.directory)
        seeds = f"{'up to ' if job.seeds.auto else ''}{_several(job.seeds.limit, 'seed')}"
        size = f"{_several(len(architectures), 'architecture')} × {seeds}"
        print(f"{size} on {job.task.name}, equal {job.match}; runs in {job.directory}", file=sys.stderr)
    results = stored_results(job.directory, [name for name in plan.architectures if name not in architectures])
    results |= {name: {} for name in architectures}
    failures: list[str] = []
    active, start = architectures, 0
    for look in job.seeds.looks:
        for seed in range(start, look.seeds):  # seed by seed, so that an interrupted comparison has whole pairs
            for name in active:
                progress = Progress(f"[{seed + 1}/{job.seeds.limit}] {name}", quiet=not is_main())
                results[name][seed] = run_job(runs[name, seed], progress)
                failures += filter(None, [results[name][seed].get("failed")])
            if after_seed is not None and seed + 1 < look.seeds:
                after_seed()
        if not plan.seeds.auto:
            break
        answers = decide(scores_of(plan, results), plan.pairs, plan.question)
        here = [
            pair for pair in plan.pairs if {*pair} <= {*architectures}
        ]  # rows of earlier calls are not trained here
        active, start = [name for name in active if name in going(here, answers)], look.seeds
        if is_main():
            _tell(look.seeds, answers, active if look.seeds < job.seeds.limit else [])
        if not active:
            break
        if after_seed is not None and look.seeds < job.seeds.limit:
            after_seed()
    return failures


def plan_of(job: Comparison, names: list[str], reference: str) -> Plan:
    """The question of this call, in agreement with what the directory holds."""
    return make_plan(
        job.directory,
        names,
        baseline=None if job.ranking else reference,
        data=job.task.name,
        match=job.match,
        budget=job.training.budget,
        seeds=job.seeds,
        metric=metric_named(job.task.metric, job.task.higher_is_better),
        judge=job.judge,
        margin=job.margin,
        command=job.command,
    )


def jobs_of(job: Comparison, sized: dict[str, Job], training: dict[str, Training]) -> dict[tuple[str, int], Job]:
    """Every run that may be needed, by architecture and seed."""
    return {
        (name, seed): replace(run, training=training[name], seed=seed, directory=run.directory / f"seed-{seed}")
        for seed in range(job.seeds.limit)
        for name, run in sized.items()
    }


def run_job(run: Job, progress: Progress) -> dict[str, Any]:
    """Train, or find it done. A run that diverged is a result, and would diverge again."""
    try:
        return train(run, progress)
    except Diverged as error:
        progress.say(f"failed: {error}")
        lost = {run.task.metric: math.nan, "loss": math.nan}
        result = {"failed": str(error), "valid": lost, "test": lost}
        if is_main():
            write_json(run.directory / "result.json", result)
        return result


def stored_results(directory: Path, names: Sequence[str]) -> Results:
    """What earlier calls left; a result that cannot be read is none."""
    found: Results = {name: {} for name in names}
    for name in names:
        for path in sorted((directory / slug(name)).glob("seed-*/result.json")):
            number = path.parent.name.removeprefix("seed-")
            with contextlib.suppress(OdeumError):
                if number.isdigit():
                    found[name][int(number)] = read_json(path)
    return found


def scores_of(plan: Plan, results: Results) -> dict[str, dict[int, float]]:
    """The numbers that decide: of the test part if every run has them, else of the validation part."""
    name = plan.metric.name
    every = [result for row in results.values() for result in row.values()]
    split = "test" if all(name in (result.get("test") or {}) for result in every) else "valid"
    return {
        row: {seed: float(r[split][name]) for seed, r in found.items() if name in (r.get(split) or {})}
        for row, found in results.items()
    }


def _tell(seeds: int, answers: dict[tuple[str, str], Answer], active: Sequence[str]) -> None:
    """A line for each pair that this look decided, and who goes on."""
    for (ours, theirs), answer in answers.items():
        if answer.verdict.look == seeds:
            print(f"after {seeds} seeds: {ours} against {theirs}: {answer.verdict.word}", file=sys.stderr)
    if active:
        print(f"after {seeds} seeds: going on with {', '.join(active)}", file=sys.stderr)


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
