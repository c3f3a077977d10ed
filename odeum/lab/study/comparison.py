"""The question itself: which layer is worth it here? Every architecture under one recipe, same seeds, same batches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from odeum.errors import OdeumError, choose, notice
from odeum.lab.launch.inline import Inline
from odeum.lab.launch.launcher import Launcher, launcher
from odeum.lab.launch.local import jobs_for, threads_for
from odeum.lab.launch.worker import Event, Tell, finish
from odeum.lab.study.folds import VARY, Folds
from odeum.lab.study.forecast import Forecast, forecast
from odeum.lab.study.matching import paces, recipes, sized_run
from odeum.lab.study.metric import metric_named
from odeum.lab.study.plan import Plan, check_plan, forget, make_plan
from odeum.lab.study.seeds import Decision, Seeds, decide, going
from odeum.lab.tasks import KINDS, Task
from odeum.lab.train.distributed import ranks
from odeum.lab.train.distributed.ranks import is_main
from odeum.lab.train.interrupt import Interrupted
from odeum.lab.train.job import Job, refuse_another
from odeum.lab.train.settings import Training
from odeum.models.settings import Model
from odeum.registry.names import Architecture
from odeum.registry.plugins import only_here
from odeum.registry.spelling import spell
from odeum.storage import alone_in, make_directory


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
    jobs: str = "auto"
    """how many runs at once: a number, or auto"""
    on: str | None = None
    """where: none for this machine, ray[:address], slurm[:partition]"""
    vary: str = "seed"
    """what differs from seed to seed: seed, or split"""
    plugins: tuple[str, ...] = ()
    """files or modules that other processes must load too"""
    folds: Folds | None = field(default=None, init=False)
    """the data of each seed (none: the same for all)"""

    def __post_init__(self) -> None:
        check_plan(self.match, self.architectures, self.training.budget)
        choose(self.vary, VARY, "value of --vary")
        if self.vary == "split":  # what cannot be split is refused before there is a directory
            object.__setattr__(self, "folds", Folds(self.task))


Results = dict[str, dict[int, dict[str, Any]]]
"""result.json by architecture and seed"""


class Watch(Protocol):
    """Whom a comparison tells how its runs go."""

    def show(self, runs: Sequence[tuple[str, int]]) -> None: ...

    def tell(self, number: int, event: Event) -> None: ...


def compare(
    job: Comparison,
    watch: Watch,
    after_look: Callable[[], None] | None = None,
    before: Callable[[Forecast], None] | None = None,
) -> list[str]:
    """Plan, train what is not there yet, look at the results when it was planned; what each failed run complains of.

    `before` is told what the runs will cost, and `after_look` is called between two looks.

    Two comparisons must not write one plan, or the one's baseline would be the other's: the second is refused.
    """
    job = _where_names_are_known(job)
    sized, reference = sized_runs(job)  # what cannot be built is refused before there is a directory
    with contextlib.ExitStack() as held:
        if is_main():
            make_directory(job.directory)
            held.enter_context(alone_in(job.directory))
            if job.overwrite:
                forget(job.directory)
        plan = plan_of(job, list(sized), reference)
        if job.training.budget is None or sized.keys() <= plan.pace.keys():  # lengths are known already
            _refuse_others(jobs_of(job, sized, recipes(job, sized, reference, plan.pace)))
        if is_main():
            seeds = f"{'up to ' if job.seeds.auto else ''}{_several(job.seeds.limit, 'seed')}"
            size = f"{_several(len(sized), 'architecture')} × {seeds}"
            print(f"{size} on {job.task.name}, equal {job.match}; runs in {job.directory}", file=sys.stderr)
        plan, runs = prepare(job, plan, sized, reference)
        _refuse_others(runs)
        if is_main():
            plan.write(job.directory)
            if before is not None:
                before(_forecast(job, plan, runs))
        threads = plan.threads or 1
        launch = held.enter_context(launcher(job.on, job.jobs, threads, job.directory))
        if not isinstance(launch, Inline):  # other processes build their own
            for run in runs.values():
                run.built.clear()
        return _train_all(job, plan, runs, launch, watch, after_look)


def _refuse_others(runs: dict[tuple[str, int], Job]) -> None:
    """A sentence if a folder holds a run with other settings, before anything is trained."""
    for run in runs.values():
        refuse_another(run)


def foresee(job: Comparison) -> Forecast:
    """What a comparison would cost here, from a few measured steps; nothing is trained or written."""
    job = _where_names_are_known(job)
    sized, reference = sized_runs(job)
    plan, runs = prepare(job, plan_of(job, list(sized), reference), sized, reference)
    return _forecast(job, plan, runs)


def _where_names_are_known(job: Comparison) -> Comparison:
    """Names that only this program registered are unknown to other processes: then the runs stay in this one."""
    hidden = only_here(job.architectures, (KINDS, job.task.kind))
    if not hidden or (job.jobs == "1" and job.on is None) or ranks.size() > 1:
        return job
    known = f"{hidden[0]} is registered in this process alone, where other processes do not find it"
    remedy = "put it into a file and name that by --plugin"
    if job.on is not None or job.jobs != "auto":
        asked = f"--on {job.on}" if job.on is not None else f"--jobs {job.jobs}"
        raise OdeumError(f"{known}, so there is no {asked}; {remedy}, or leave that out")
    if jobs_for("auto", 1) > 1:
        notice(f"{known}, so the runs go one after the other; {remedy} for runs side by side")
    return replace(job, jobs="1")


def _forecast(job: Comparison, plan: Plan, runs: dict[tuple[str, int], Job]) -> Forecast:
    """Of a cluster's size nothing is known beforehand: its time is told as if the runs came one after the other."""
    at_once = 1 if job.on is not None and job.jobs == "auto" else jobs_for(job.jobs, plan.threads or 1)
    return forecast(runs, plan.pace, at_once, job.overwrite, job.seeds.auto)


def sized_runs(job: Comparison) -> tuple[dict[str, Job], str]:
    """A run of each architecture, by its spelling, and the spelling of what the others are matched to."""
    named = {spell(architecture): architecture for architecture in job.architectures}
    reference = spell(job.baseline) if job.baseline is not None else next(iter(named))
    if reference not in named:
        raise OdeumError(f"the baseline '{reference}' must be one of the architectures: {', '.join(named)}")
    return {name: sized_run(job, name, item, named[reference]) for name, item in named.items()}, reference


def prepare(
    job: Comparison, plan: Plan, sized: dict[str, Job], reference: str
) -> tuple[Plan, dict[tuple[str, int], Job]]:
    """The plan with the pace of its architectures, and every run that may be needed by architecture and seed; nothing
    is written yet."""
    sized = {name: replace(run, threads=plan.threads) for name, run in sized.items()}
    plan = replace(plan, pace=paces(plan, sized, reference))
    return plan, jobs_of(job, sized, recipes(job, sized, reference, plan.pace))


def _train_all(
    job: Comparison,
    plan: Plan,
    runs: dict[tuple[str, int], Job],
    launch: Launcher,
    watch: Watch,
    after_look: Callable[[], None] | None,
) -> list[str]:
    architectures = list(dict.fromkeys(name for name, _ in runs))
    results: Results = {name: {} for name in architectures}
    failures: list[str] = []
    active, start = architectures, 0
    for look in job.seeds.looks:
        # Seed by seed, so that an interrupted comparison has whole pairs.
        keys = [(name, seed) for seed in range(start, look.seeds) for name in active]
        watch.show(keys)
        ended = _carry_out([runs[key] for key in keys], launch, watch.tell)
        for (name, seed), event in zip(keys, ended, strict=True):
            if event.kind in ("done", "diverged", "cut off"):
                results[name][seed] = event.content
            failures += _complaint(f"{name} seed {seed}", event)
        if stopped := [event for event in ended if event.kind == "interrupted"]:
            raise Interrupted("stopped; the same command continues", stopped[0].content["code"] - 128)
        if not plan.seeds.auto:
            break
        decisions = decide(scores_of(plan, results), plan.pairs, plan.criterion)
        active, start = [name for name in active if name in going(plan.pairs, decisions)], look.seeds
        if is_main():
            _tell(look.seeds, decisions, active if look.seeds < job.seeds.limit else [])
        if not active:
            break
        if after_look is not None and look.seeds < job.seeds.limit:
            after_look()
    return failures


def _complaint(title: str, event: Event) -> list[str]:
    """What went wrong, if anything did; of what is no mistake of the user's, also where in the code."""
    sentence = event.content.get("failed") or event.content.get("sentence")
    return ["\n".join([f"{title}: {sentence}", *filter(None, [event.content.get("traceback")])])] if sentence else []


def _carry_out(runs: Sequence[Job], launch: Launcher, tell: Tell) -> list[Event]:
    """How each run ended. Those that are there already are read here: no process is begun for them."""
    ended: dict[int, Event] = {}
    for number, run in enumerate(runs):
        if ranks.size() == 1 and run.folder.finished:
            ended[number] = finish(lambda run=run: run, lambda event: None)
            tell(number, ended[number])
    left = [number for number in range(len(runs)) if number not in ended]
    if left:
        new = launch.run([runs[number] for number in left], lambda number, event: tell(left[number], event))
        ended |= dict(zip(left, new, strict=True))
    return [ended[number] for number in range(len(runs))]


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
        threads=None if ranks.size() > 1 else threads_for(len(names) * job.seeds.limit),
        vary=job.vary,
        overlap=job.folds.overlap if job.folds else 0.0,
    )


def jobs_of(job: Comparison, sized: dict[str, Job], training: dict[str, Training]) -> dict[tuple[str, int], Job]:
    """Every run that may be needed, by architecture and seed."""
    runs = {
        (name, seed): replace(
            run,
            training=training[name],
            seed=seed,
            directory=run.directory / f"seed-{seed}",
            built=run.built if seed == run.seed else [],
        )
        for seed in range(job.seeds.limit)
        for name, run in sized.items()
    }
    folds = job.folds
    return runs if folds is None else {key: folds.fit(run, key[1]) for key, run in runs.items()}


def scores_of(plan: Plan, results: Results) -> dict[str, dict[int, float]]:
    """The numbers that decide: of the test part if every run has them, else of the validation part."""
    name = plan.metric.name
    every = [result for row in results.values() for result in row.values()]
    split = "test" if all(name in (result.get("test") or {}) for result in every) else "valid"
    return {
        row: {seed: float(r[split][name]) for seed, r in found.items() if name in (r.get(split) or {})}
        for row, found in results.items()
    }


def _tell(seeds: int, decisions: dict[tuple[str, str], Decision], active: Sequence[str]) -> None:
    """A line for each pair that this look decided, and who goes on."""
    for (ours, theirs), decision in decisions.items():
        if decision.verdict.look == seeds:
            print(f"after {seeds} seeds: {ours} against {theirs}: {decision.verdict.word}", file=sys.stderr)
    if active:
        print(f"after {seeds} seeds: going on with {', '.join(active)}", file=sys.stderr)


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
