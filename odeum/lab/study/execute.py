"""Carry out a study: plan it, train the runs that are missing, judge at each planned look."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from odeum.errors import OdeumError, notice
from odeum.lab.launch.inline import Inline
from odeum.lab.launch.launcher import Launcher, launcher
from odeum.lab.launch.local import jobs_for, threads_for
from odeum.lab.launch.worker import Event, Tell, finish
from odeum.lab.study.design import TUNING, Factor, Study, cells, clear
from odeum.lab.study.findings import Findings, judged
from odeum.lab.study.forecast import Forecast, forecast, run_seconds
from odeum.lab.study.judge import Decision, Seeds, judge, undecided
from odeum.lab.study.matching import Folds, matched_model, matched_training, paces
from odeum.lab.study.metric import AUTO, METRICS, metric_named, signal_over_noise
from odeum.lab.study.runs import Store, Tuned, at_rate, timed_together, without_places
from odeum.lab.study.statistics import summarise
from odeum.lab.study.tuning import SEED as TUNING_SEED
from odeum.lab.study.tuning import Point, spell_point
from odeum.lab.tasks import KINDS, Task, open_task
from odeum.lab.train.distributed import ranks
from odeum.lab.train.distributed.ranks import is_main
from odeum.lab.train.distributed.world import join
from odeum.lab.train.interrupt import Interrupted
from odeum.lab.train.job import Job, check_same_run, holds
from odeum.lab.train.provenance import git_revision, versions
from odeum.lab.train.spec import RunSpec
from odeum.models import build
from odeum.models.description import describe
from odeum.registry.plugins import unavailable_elsewhere
from odeum.storage import lock_directory, make_directory, slug

Key = tuple[str, int]
"""row and seed"""
LATE = 4
"""evaluations at the end of a tuning run that tell the noise of a metric"""


class Watch(Protocol):
    """Receives progress events of the runs."""

    def show(self, runs: Sequence[Key], split: str = ...) -> None: ...

    def tell(self, number: int, event: Event) -> None: ...


@dataclass(frozen=True)
class Execution:
    """A comparison as it was asked: the study, the run that its rows are made from, and where they are carried out."""

    study: Study
    """settled with what the directory holds once that is locked"""
    base: Job
    """data, model and training of every row, before its factors"""
    factors: Sequence[Factor]
    directory: Path
    judge: str | None = None
    """a metric of the task, loss or auto (default: as planned before, else the metric of the task)"""
    margin: str | None = None
    """as the command line spells it (default: as planned before, else the metric's own)"""
    jobs: str = "auto"
    """runs at once: a number, or auto"""
    on: str | None = None
    """none for this machine, ray[:address], slurm[:partition]"""
    overwrite: bool = False
    """discard earlier runs"""
    folds: Folds | None = field(default=None, init=False)
    """the data of each seed (default: the same for all)"""

    def __post_init__(self) -> None:
        if self.study.vary == "split":  # data that cannot be split is refused before there is a directory
            object.__setattr__(self, "folds", Folds(self.base.task))

    def settled(self) -> Study:
        threads = None if ranks.size() > 1 else threads_for(len(self.study.rows) * self.seeds.limit)
        overlap = self.folds.overlap if self.folds else 0.0
        study = replace(self.study, threads=threads, overlap=overlap)
        return study.settled(self.directory, self.judge, self.margin, lambda: _reported(self.base))

    @property
    def seeds(self) -> Seeds:
        assert self.study.seeds is not None
        return self.study.seeds


def compare(
    job: Execution,
    watch: Watch,
    after_look: Callable[[], None] | None = None,
    before: Callable[[Forecast], None] | None = None,
    *,
    tuning_only: bool = False,
) -> list[str]:
    """Plan the comparison, train missing runs, judge at each planned look; returns the messages of failed runs.

    `before` receives the estimated cost, and `after_look` is called between two looks. The directory is locked: two
    comparisons in one directory could not both have their baseline. With `tuning_only` it ends with the tuning runs,
    and rows of which all diverge are no error.
    """
    job = _where_names_are_known(job)
    sized = sized_runs(job)  # what cannot be built or asked is refused before there is a directory
    if ranks.size() == 1:
        job.settled()
    with contextlib.ExitStack() as stack:
        if is_main():
            make_directory(job.directory)
            stack.enter_context(lock_directory(job.directory))
            if job.overwrite:
                clear(job.directory)
        study = job.settled()
        measured = study.match == "time" or study.budget is not None
        if not study.tuning and (not measured or sized.keys() <= (study.pace or {}).keys()):  # lengths are known
            _refuse_others(seeded(job, sized, study))
        if is_main():
            seeds = f"{'up to ' if job.seeds.auto else ''}{_several(job.seeds.limit, 'seed')}"
            size = f"{_several(len(sized), 'architecture')} × {seeds}"
            print(f"{size} on {job.study.data}, equal {job.study.match}; runs in {job.directory}", file=sys.stderr)
        study, sized = prepare(job, study, sized)
        _refuse_others(first_tuning_runs(job, study, sized) if study.tuning else seeded(job, sized, study))
        if is_main():
            study.write(job.directory)
            if before is not None:
                before(_forecast(job, study, sized))
        launch = stack.enter_context(launcher(job.on, job.jobs, study.threads or 1, job.directory))
        if not isinstance(launch, Inline):  # other processes build their own
            job.base.built.clear()
        if study.tuning:
            study, sized, failures = tune(job, study, sized, launch, watch, tolerant=tuning_only)
            if is_main():
                study.write(job.directory)
            if failures or tuning_only:
                return failures
        runs = seeded(job, sized, study)
        _refuse_others(runs)
        return _train_all(job, study, runs, launch, watch, after_look)


def _reported(run: Job) -> list[str]:
    """The metrics that the task's evaluation reports, from an untrained model on two examples."""
    return list(run.task.evaluate(build(run.architecture, run.model), "test", limit=2))


def foresee(job: Execution) -> Forecast:
    """The cost of a comparison on this machine, from a few measured steps; nothing is trained or written."""
    job = _where_names_are_known(job)
    study, sized = prepare(job, job.settled(), sized_runs(job))
    return _forecast(job, study, sized)


def _refuse_others(runs: Mapping[Key, Job]) -> None:
    """Raises `OdeumError` if a folder holds a run with other settings, before anything is trained."""
    for run in runs.values():
        check_same_run(run)


def _where_names_are_known(job: Execution) -> Execution:
    """Names that only this program registered are unknown to other processes: then the runs stay in this one."""
    architectures = [run.architecture for run in cells(job.base, job.factors).values()]
    hidden = unavailable_elsewhere(architectures, (KINDS, job.base.kind))
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


def _forecast(job: Execution, study: Study, sized: Mapping[str, Job]) -> Forecast:
    """The size of a cluster is unknown beforehand: its time is estimated as if the runs came one after the other."""
    at_once = 1 if job.on is not None and job.jobs == "auto" else jobs_for(job.jobs, study.threads or 1)
    pace = study.pace or {}
    runs = seeded(job, sized, study)
    evaluation = forecast(runs, pace, at_once, job.overwrite, job.seeds.auto)
    base = run_seconds(runs[study.reference, 0], pace[study.reference].seconds)
    evaluation = replace(evaluation, baseline=base)
    if study.tuning is None:
        return evaluation
    tuning = forecast(first_tuning_runs(job, study, sized), pace, at_once, job.overwrite)
    return replace(evaluation, tuning=tuning, widened=study.tuning.tuning.cap * len(sized))


def sized_runs(job: Execution) -> dict[str, Job]:
    """The run of each row with seed 0, described once for all seeds."""
    runs: dict[str, Job] = cells(job.base, job.factors)
    reference = runs[job.study.reference]
    out = {}
    for label, run in runs.items():
        model = matched_model(run, reference) if job.study.match == "params" else run.model
        facts = describe(run.architecture, model, detail=False)
        out[label] = replace(run, model=model, facts=facts, directory=job.directory / slug(label))
    return out


def prepare(job: Execution, study: Study, sized: Mapping[str, Job]) -> tuple[Study, dict[str, Job]]:
    """The study with the cost per step of its rows, and their runs with its threads; nothing is written yet."""
    sized = {label: replace(run, threads=study.threads) for label, run in sized.items()}
    return replace(study, pace=paces(study, sized)), sized


# tuning: runs of one seed of their own, before the seeds that decide


def tuning_run(job: Execution, study: Study, sized: Mapping[str, Job], label: str, point: Point) -> Job:
    """The run of a row with these settings, as long as the runs of its evaluation."""
    assert study.tuning is not None
    settings = study.tuning.tuning.settings
    name = spell_point(settings, point)
    run = with_settings(sized[label], dict(zip(settings, point, strict=True)))
    training = matched_training(study, {**sized, label: run})[label]
    directory = job.directory / TUNING / slug(label) / name / f"seed-{TUNING_SEED}"
    row = f"{label} {name}"
    run = replace(run, training=training, seed=TUNING_SEED, row=row, directory=directory, test=False)
    return run if job.folds is None else run.moved_to(job.folds.of(TUNING_SEED))


def with_settings(run: Job, changes: Mapping[str, float]) -> Job:
    """The run with other settings of its training or, such as dropout, of its model."""
    names = {item.name for item in fields(run.training)}
    training = replace(run.training, **{name: value for name, value in changes.items() if name in names})
    model = replace(run.model, **{name: value for name, value in changes.items() if name not in names})
    tuned: dict[str, Any] = {"rate_from": "tuning"} if "learning_rate" in changes else {}
    return replace(run, training=training, model=model, **tuned)


def first_tuning_runs(job: Execution, study: Study, sized: Mapping[str, Job]) -> dict[Key, Job]:
    """The tuning runs before any widening, by row and number."""
    points = study.tuning.tuning.points if study.tuning else ()
    return {
        (label, number): tuning_run(job, study, sized, label, point)
        for number, point in enumerate(points)
        for label in sized
    }


def tune(
    job: Execution, study: Study, sized: Mapping[str, Job], launch: Launcher, watch: Watch, *, tolerant: bool = False
) -> tuple[Study, dict[str, Job], list[str]]:
    """Carry out the tuning runs. Returns the study with their values, the rows with the settings that they chose, and
    the messages of failed runs.

    If every tuning run of a row diverged, it is left out (`tolerant`) or `OdeumError` is raised. What to try next
    follows from the values alone, so an interrupted tuning continues where it stopped.
    """
    results = study.tuning
    assert results is not None
    tuning, metric = results.tuning, study.tuned_by
    finals: dict[str, dict[Point, Mapping[str, float]]] = {label: {} for label in sized}
    done: dict[tuple[str, Point], Job] = {}

    def values(label: str) -> dict[Point, float]:
        numbers = {point: valid.get(metric.name) for point, valid in finals[label].items()}
        return {point: math.nan if x is None else float(x) for point, x in numbers.items()}

    while wanted := [
        (label, point) for label in sized for point in tuning.missing(values(label), metric.higher_is_better)
    ]:
        runs = {
            (f"{label} {spell_point(tuning.settings, point)}", TUNING_SEED): tuning_run(job, study, sized, label, point)
            for label, point in wanted
        }
        events = launch_runs(runs, launch, watch, split="valid")
        for (label, point), (key, event) in zip(wanted, events.items(), strict=True):
            if event.kind not in ("done", "diverged"):
                return study, dict(sized), complaint(f"tuning {key[0]}", event)
            finals[label][point] = event.content.get("valid") or {}
            if event.kind == "done" and "failed" not in event.content:
                done[label, point] = runs[key]
        known = [finals[label][point] for label, point in done]
        if any(metric.name not in valid for valid in known):  # BLEU is of the test part alone
            metric, results = METRICS["loss"], replace(results, metric="loss")
    chosen, choices = {}, {}
    for label, run in sized.items():
        cost = run_seconds(tuning_run(job, study, sized, label, tuning.points[0]), (study.pace or {})[label].seconds)
        results = results.with_row(label, values(label), len(finals[label]) * cost)
        try:
            choice = choices[label] = tuning.choose(values(label), metric.higher_is_better)
        except OdeumError as error:
            if tolerant:
                notice(f"{label}: {error}; it is left out")
                continue
            remedy = "" if label == study.baseline else f", or leave {label} out of --architectures"
            raise OdeumError(f"{label}: {error}{remedy}") from None
        chosen[label] = with_settings(run, choice.changes)
        if is_main():
            inside = "" if choice.resolved else "; unresolved: the best lies at the end of what was tried"
            value = f"valid {metric.name} {choice.value:.4g}"
            print(f"tuned {label}: {spell_point(tuning.settings, choice.point)} ({value}{inside})", file=sys.stderr)
    study = replace(study, tuning=results)
    if study.judge == AUTO and not study.signals:
        best = {label: finals[label][choice.point] for label, choice in choices.items()}
        study = _chosen_judge(study, best, list(done.values()))
    return study, chosen, []


def _chosen_judge(study: Study, finals: Mapping[str, Mapping[str, float]], runs: Sequence[Job]) -> Study:
    """The study judged by the task's metric or the loss, whichever separates the tuned rows better from noise."""
    signals = {}
    for name in dict.fromkeys((study.metric.name, "loss")):
        curves = [[r.get(name, math.nan) for r in run.folder.curve() if r.get("split") == "valid"] for run in runs]
        late = [curve[-1 - LATE : -1] for curve in curves]  # the last one is of the whole validation part
        signal = signal_over_noise({label: valid[name] for label, valid in finals.items() if name in valid}, late)
        if signal is not None:
            signals[name] = signal
    signals = signals or {study.metric.name: 0.0}
    metric = metric_named(max(signals, key=lambda name: signals[name]), study.metric.higher_is_better)
    if is_main():
        listed = ", ".join(f"{name} {value:.3g}" for name, value in signals.items())
        print(f"judged by the {metric.name} (signal over noise on the tuning runs: {listed})", file=sys.stderr)
    return replace(study, metric=metric, margin=metric.margin, signals=signals)


def seeded(job: Execution, sized: Mapping[str, Job], study: Study) -> dict[Key, Job]:
    """Every run that may be needed, seed by seed, with the length that `match` gives it."""
    training = matched_training(study, sized)
    runs = {
        (label, seed): replace(
            run,
            training=training[label],
            seed=seed,
            directory=run.directory / f"seed-{seed}",
        )
        for seed in range(job.seeds.limit)
        for label, run in sized.items()
    }
    folds = job.folds
    return runs if folds is None else {key: run.moved_to(folds.of(key[1])) for key, run in runs.items()}


def _train_all(
    job: Execution,
    study: Study,
    runs: Mapping[Key, Job],
    launch: Launcher,
    watch: Watch,
    after_look: Callable[[], None] | None,
) -> list[str]:
    labels = list(dict.fromkeys(label for label, _ in runs))
    results: dict[str, dict[int, dict[str, Any]]] = {label: {} for label in labels}
    failures: list[str] = []
    active, start = labels, 0
    for look in job.seeds.looks:
        # Seed by seed, so that an interrupted comparison has whole pairs.
        keys = [(label, seed) for seed in range(start, look.seeds) for label in active]
        for (label, seed), event in launch_runs({key: runs[key] for key in keys}, launch, watch).items():
            if event.kind in ("done", "diverged", "cut off"):
                results[label][seed] = event.content
            failures += complaint(f"{label} seed {seed}", event)
        if study.seeds is None or not study.seeds.auto:
            break
        decisions = judge(scores_of(study, results), study.pairs, study.criterion)
        active, start = [label for label in active if label in undecided(study.pairs, decisions)], look.seeds
        if is_main():
            _print_decisions(look.seeds, decisions, active if look.seeds < job.seeds.limit else [])
        if not active:
            break
        if after_look is not None and look.seeds < job.seeds.limit:
            after_look()
    return failures


def launch_runs(
    runs: Mapping[Key, Job],
    launch: Launcher,
    watch: Watch,
    done: Callable[[Key, Event], None] | None = None,
    split: str = "test",
) -> dict[Key, Event]:
    """How each run ended. Finished runs are read in this process. Raises `Interrupted` if one was interrupted.

    `split` is the part whose metric may be shown: that of tuning runs is valid, never test.
    """
    keys, jobs = list(runs), list(runs.values())
    watch.show(keys, split)

    def tell(number: int, event: Event) -> None:
        if event.ends and done is not None:
            done(keys[number], event)
        watch.tell(number, event)

    ended = _ended(jobs, launch, tell)
    if stopped := [event for event in ended if event.kind == "interrupted"]:
        raise Interrupted("stopped; the same command continues", stopped[0].content["code"] - 128)
    return dict(zip(keys, ended, strict=True))


def _ended(runs: Sequence[Job], launch: Launcher, tell: Tell) -> list[Event]:
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


def complaint(title: str, event: Event) -> list[str]:
    """The message of a run that went wrong, with the traceback if it is a bug."""
    sentence = event.content.get("failed") or event.content.get("sentence")
    return ["\n".join([f"{title}: {sentence}", *filter(None, [event.content.get("traceback")])])] if sentence else []


def scores_of(study: Study, results: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[str, dict[int, float]]:
    """The numbers that decide: on the test part if every run has them, else on the validation part.

    A run that failed has NaN, whatever metric decides.
    """
    name = study.metric.name
    every = [result for row in results.values() for result in row.values() if not result.get("failed")]
    split = "test" if all(name in (result.get("test") or {}) for result in every) else "valid"

    def score(result: Mapping[str, Any]) -> float | None:
        return math.nan if result.get("failed") else (result.get(split) or {}).get(name)

    return {
        label: {seed: float(x) for seed, r in row.items() if (x := score(r)) is not None}
        for label, row in results.items()
    }


def _print_decisions(seeds: int, decisions: Mapping[tuple[str, str], Decision], active: Sequence[str]) -> None:
    """A line for each pair that this look decided, and the rows that go on."""
    for (ours, theirs), decision in decisions.items():
        if decision.verdict.look == seeds:
            print(f"after {seeds} seeds: {ours} against {theirs}: {decision.verdict.word}", file=sys.stderr)
    if active:
        print(f"after {seeds} seeds: going on with {', '.join(active)}", file=sys.stderr)


def _several(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# papers' tables: rows with specs of their own, results in a store

TABLE_THREADS = 1
"""of a run at the scale of a laptop: the number of runs at once then changes no bit"""
REST_SEEDS = 3
"""seeds of a row without a claim"""
SPREADS = 4.0
"""standard deviations from the kept mean that a repeated run may lie away, on other code or another machine"""


@dataclass(frozen=True)
class TableExecution:
    """A paper's table, its store, and where its missing runs are carried out."""

    study: Study
    specs: Mapping[str, RunSpec]
    store: Store
    directory: Path
    seeds: Seeds
    """a number for every row; or auto: as many as the claims take"""
    labels: Sequence[str]
    """the rows to train"""
    command: str = ""
    plugins: tuple[str, ...] = ()
    _tasks: dict[str, Task] = field(default_factory=dict)
    _sized: dict[str, Job] = field(default_factory=dict)

    def findings(self) -> Findings:
        return judged(self.store.results(self.study, self.specs))

    def run(self, spec: RunSpec, seed: int) -> Job:
        """The run of this recipe and seed; data is opened once, a model is described once."""
        if spec.key not in self._sized:
            data = repr((spec.source, dict(spec.options)))
            if data not in self._tasks:
                self._tasks[data] = open_task(*spec.source, kind=spec.kind, **spec.options)
            task = self._tasks[data]
            self._sized[spec.key] = Job.on(
                task,
                model := replace(spec.model, **task.facts()),
                spec.architecture,
                spec.training,
                directory=self.directory / spec.key,
                command=self.command,
                plugins=self.plugins,
                threads=TABLE_THREADS if self.study.scale == "laptop" else None,
                facts=describe(spec.architecture, model, detail=False),
            )
        sized = self._sized[spec.key]
        return replace(sized, seed=seed, directory=sized.directory / f"seed-{seed}")

    def missing(self) -> dict[Key, RunSpec]:
        """The runs that come next, one per shared run: those that tune rows, then the seeds that rows lack up to the
        first look that is not complete, seed by seed."""
        tuned = self.store.tuned(self.study, self.specs)
        return self._missing_tuning(tuned) or self._missing_seeds(tuned)

    def _missing_tuning(self, tuned: Tuned) -> dict[Key, RunSpec]:
        def distance(wanted: tuple[str, Point]) -> float:
            label, (rate,) = wanted
            return abs(math.log(rate / self.specs[label].training.learning_rate))

        wanted = ((label, point) for label in self.labels for point in tuned.missing.get(label, ()))
        runs: dict[str, tuple[Key, RunSpec]] = {}
        for label, point in sorted(wanted, key=distance):  # the setting's own rate first, for all rows
            spec, settings = at_rate(self.specs[label], point), self.study.tunings[label].settings
            runs.setdefault(spec.key, ((f"{label} {spell_point(settings, point)}", TUNING_SEED), spec))
        return dict(runs.values())

    def _missing_seeds(self, tuned: Tuned) -> dict[Key, RunSpec]:
        limits = [look.seeds for look in self.seeds.looks] if self.seeds.auto else [self.seeds.limit]
        findings = self.findings()
        for limit in limits:
            lacking: dict[tuple[int, str], Key] = {}
            for label in (label for label in self.labels if label in tuned.specs):
                there = {run.seed for run in findings.results.of(label)}
                wanted = self._wanted(findings, label, limit) if self.seeds.auto else limit
                for seed in range(wanted):
                    if seed not in there:
                        lacking.setdefault((seed, tuned.specs[label].key), (label, seed))
            if lacking:
                keys = sorted(lacking.values(), key=lambda key: key[1])
                return {(label, seed): tuned.specs[label] for label, seed in keys}
        return {}

    def _wanted(self, findings: Findings, label: str, until: int) -> int:
        """Seeds that a row should have by a look: no more for settled claims, a few for a row without a claim."""
        claims = [each for each in findings.claims if label in each.claim.pair]
        if not claims:
            return min(until, REST_SEEDS)
        return len(findings.results.of(label)) if all(each.settled for each in claims) else until

    def train(self, launch: Launcher, watch: Watch) -> list[str]:
        """Train look by look until nothing is missing or a run fails; returns the messages of failed runs."""
        failures: list[str] = []
        while (specs := self.missing()) and not failures:
            runs = {key: self.run(spec, key[1]) for key, spec in specs.items()}
            for run in runs.values():
                if run.folder.is_run and not holds(run):
                    raise OdeumError(
                        f"'{run.directory}' holds another run than the recipe asks for; give another --out"
                    )
            split = "valid" if all(seed == TUNING_SEED for _, seed in runs) else "test"

            def keep(key: Key, event: Event, runs=runs, specs=specs) -> None:
                self._keep(runs[key], specs[key], event)

            ended = launch_runs(runs, launch, watch, keep, split)
            failed = {key: event for key, event in ended.items() if event.kind == "failed"}
            failures += [text for (label, seed), e in failed.items() for text in complaint(f"{label} seed {seed}", e)]
        if failures:
            return failures
        tuned = self.store.tuned(self.study, self.specs)
        return [f"{label}: every tuning run diverged" for label in self.labels if label not in tuned.specs]

    def _keep(self, run: Job, spec: RunSpec, event: Event) -> None:
        if event.kind in ("done", "diverged"):
            self.store.keep(spec, run.seed, run.directory, self.study.metric.name)

    def measure_paces(self) -> list[Path]:
        """Time training steps in turns: of the rows that claims about speed name, and of the other chosen rows."""
        from odeum.lab.study.measuring import measure

        out = []
        groups = timed_together(self.study)
        others = [label for label in self.labels if not any(label in group for group in groups)]
        for group in [*groups, *([others] if others else [])]:
            runs = {self.specs[label].key: self.run(self.specs[label], 0) for label in group}
            first = next(iter(runs.values()))
            measured = measure(runs, next(iter(runs)), join(first.training), lambda seconds: math.inf)
            circumstances = {
                "table": self.study.name,
                "rows": group,
                "threads": first.threads,
                "parameters": {key: run.facts["parameters"] for key, run in runs.items() if run.facts},
                "versions": versions(),
                "git": git_revision(),
                "command": without_places(self.command),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            out.append(self.store.keep_paces(measured, circumstances))
        return out


class Repeated(NamedTuple):
    """A run that was trained again, beside what is kept of it."""

    sentence: str
    holds: bool


def beside_kept(study: Study, specs: Mapping[str, RunSpec], fresh: Store, kept: Store) -> list[Repeated]:
    """Each fresh run is the kept figure, or lies so many standard deviations from the kept mean."""
    split, metric, out = study.split or "test", study.metric.name, []
    for label, spec in specs.items():
        before = {run.seed: run.score(split, metric) for run in kept.runs(label, spec, metric)}
        known = summarise(value for value in before.values() if value is not None and value == value)
        for run in fresh.runs(label, spec, metric):
            value = run.score(split, metric)
            name = f"{label} seed {run.seed}: {split} {metric} {_figure(value)}"
            if known is None or value is None:
                out.append(Repeated(f"{name}; nothing is kept to compare it with", True))
            elif value == before.get(run.seed):
                out.append(Repeated(f"{name}: the kept figure", True))
            elif known.spread is None:
                out.append(Repeated(f"{name}; kept: {_figure(known.mean)} of one seed, so its spread is unknown", True))
            else:
                far = abs(value - known.mean) / known.spread if known.spread else math.inf
                where = f"{far:.1f} spreads from the kept mean {_figure(known.mean)} ± {_figure(known.spread)}"
                out.append(Repeated(f"{name}: {where}", far <= SPREADS))
    return out


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
