"""Carry out a study: train the runs that are missing, first those that tune its rows, and judge at each planned look.

`StudyRuns.train` is the executor of every study. `ComparisonRuns` keeps its runs in folders, `TableRuns` those of a
paper's table in a store.
"""

from __future__ import annotations

import contextlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from odeum.errors import OdeumError, notice
from odeum.lab.launch.inline import Inline
from odeum.lab.launch.launcher import Launcher, launcher
from odeum.lab.launch.local import jobs_for, threads_for
from odeum.lab.launch.worker import FINAL_EVENTS, Event, Tell, finish
from odeum.lab.study.design import TUNING, Factor, Study, cells, clear
from odeum.lab.study.forecast import Forecast, forecast, run_seconds
from odeum.lab.study.judge import Decision, Seeds, claim_result, judge, undecided
from odeum.lab.study.matching import Folds, matched_model, matched_training, paces
from odeum.lab.study.metric import AUTO, metric_named, signal_over_noise
from odeum.lab.study.runs import Store, at_rate, timed_together, without_local_paths
from odeum.lab.study.statistics import summarise
from odeum.lab.study.tuning import SEED as TUNING_SEED
from odeum.lab.study.tuning import Choice, Point, Tuning, spell_point, tried
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
from odeum.storage import check_directory, lock_directory, make_directory, slug

Key = tuple[str, int]
"""title and seed of a run, for progress and messages"""
LATE = 4
"""evaluations at the end of a tuning run that determine the noise of a metric"""
REST_SEEDS = 3
"""seeds of a row that no verdict needs, with --seeds auto"""


class Watch(Protocol):
    """Receives progress events of the runs."""

    def show(self, runs: Sequence[Key], split: str = ...) -> None: ...

    def tell(self, number: int, event: Event) -> None: ...


class Wanted(NamedTuple):
    """A run that is missing."""

    label: str
    """label of its row"""
    seed: int
    point: Point | None = None
    """settings to try, for a tuning run"""


class StudyRuns(ABC):
    """The runs of a study, trained until none is missing.

    What comes next follows from the values of the runs alone, so an interrupted study continues where it stopped.
    """

    study: Study
    seeds: Seeds
    """seeds per row, or auto: as many as the verdicts need"""
    failures: ClassVar[Collection[str]] = FINAL_EVENTS
    """kinds of final events that are reported as failures"""

    @property
    @abstractmethod
    def tunings(self) -> Mapping[str, Tuning]:
        """The tuning of each row; rows that are not tuned are left out."""

    @abstractmethod
    def tuning_value(self, label: str, point: Point) -> float | None:
        """The value of a tuning run: None if it has not been trained, NaN if it diverged."""

    @abstractmethod
    def tuning_spec(self, label: str, point: Point) -> RunSpec:
        """The tuning run with these settings."""

    @abstractmethod
    def choose(self, tolerant: bool) -> list[str]:
        """Give each row the settings that its tuning runs chose; returns messages about rows without any."""

    @abstractmethod
    def rows(self) -> Mapping[str, RunSpec]:
        """The rows that can be trained with the settings that they have now."""

    @abstractmethod
    def ended(self) -> Mapping[str, Collection[int]]:
        """The seeds of each row whose runs ended."""

    @abstractmethod
    def scores(self) -> Mapping[str, Mapping[int, float]]:
        """The numbers that decide, by row and seed."""

    @abstractmethod
    def job(self, wanted: Wanted, spec: RunSpec) -> Job:
        """The run with its data open."""

    @abstractmethod
    def keep(self, wanted: Wanted, spec: RunSpec, run: Job, event: Event) -> None:
        """Record how a run ended."""

    def identity(self, wanted: Wanted, spec: RunSpec) -> Hashable:
        """Equal for rows that share a run."""
        return wanted

    def train(
        self,
        launch: Launcher,
        watch: Watch,
        after_look: Callable[[], None] | None = None,
        *,
        tuning_only: bool = False,
    ) -> list[str]:
        """Train what is missing; returns the messages of failed runs.

        Stops before the evaluation if a tuning run fails. `after_look` is called between two looks.
        """
        while specs := self.missing_tuning():
            if failures := self._launch(specs, launch, watch, "valid"):
                return list(failures.values())
        messages = self.choose(tuning_only)
        failures: dict[Wanted, str] = {}
        for look in () if tuning_only else self.seeds.looks:
            specs = {key: spec for key, spec in self.missing_seeds(look.seeds).items() if key not in failures}
            if not specs:
                continue
            failures |= self._launch(specs, launch, watch, "test")
            if self.seeds.auto:
                decisions = self._decisions()
                more = self._open(decisions) if look.seeds < self.seeds.limit else ()
                if is_main():
                    _print_decisions(look.seeds, decisions, [label for label in self.rows() if label in more])
                if after_look is not None and more:
                    after_look()
        return [*messages, *failures.values()]

    def missing(self) -> dict[Wanted, RunSpec]:
        """The runs that come next, one per shared run: those that tune rows, then the seeds that rows lack up to the
        first look that is not complete."""
        looks = (self.missing_seeds(look.seeds) for look in self.seeds.looks)
        return self.missing_tuning() or next(filter(None, looks), {})

    def missing_tuning(self) -> dict[Wanted, RunSpec]:
        """The settings that rows have still to try: for all rows those next to the recipe's own first."""
        higher = self.study.tuned_by.higher_is_better
        wanted = []
        for label, tuning in self.tunings.items():
            _, lacking = tried(tuning, lambda point, label=label: self.tuning_value(label, point), higher)
            wanted += [(tuning.distance(point), Wanted(label, TUNING_SEED, point)) for point in lacking]
        wanted = [run for _, run in sorted(wanted, key=lambda each: each[0])]
        return self._distinct({run: self.tuning_spec(run.label, run.point or ()) for run in wanted})

    def missing_seeds(self, until: int) -> dict[Wanted, RunSpec]:
        """The seeds that rows lack up to a look of this many seeds, seed by seed, so that an interrupted study has
        whole pairs."""
        rows, ended = self.rows(), self.ended()
        limits = dict.fromkeys(rows, until)
        if self.seeds.auto:
            more, judged = self._open(self._decisions()), {label for pair in self.study.pairs for label in pair}
            rest = {label: 0 if label in judged else min(until, REST_SEEDS) for label in rows}
            limits = {label: until if label in more else rest[label] for label in rows}
        wanted = (Wanted(label, seed) for seed in range(until) for label in rows)
        return self._distinct(
            {
                each: rows[each.label]
                for each in wanted
                if each.seed < limits[each.label] and each.seed not in ended[each.label]
            }
        )

    def _distinct(self, specs: Mapping[Wanted, RunSpec]) -> dict[Wanted, RunSpec]:
        runs: dict[Hashable, Wanted] = {}
        for wanted, spec in specs.items():
            runs.setdefault(self.identity(wanted, spec), wanted)
        return {wanted: specs[wanted] for wanted in runs.values()}

    def _decisions(self) -> dict[tuple[str, str], Decision]:
        return judge(self.scores(), self.study.pairs, self.study.criterion)

    def _open(self, decisions: Mapping[tuple[str, str], Decision]) -> set[str]:
        """The rows that verdicts or claims need more seeds of."""
        study = self.study
        if not study.is_table:
            return undecided(study.pairs, decisions)
        claims = [claim_result(claim, decisions.get(claim.pair), study.criterion) for claim in study.claims]
        return {label for each in claims if not each.settled for label in each.claim.pair}

    def _launch(self, specs: Mapping[Wanted, RunSpec], launch: Launcher, watch: Watch, split: str) -> dict[Wanted, str]:
        """Carry out these runs; returns the messages of those that failed. Raises `Interrupted` if one was interrupted.

        `split` is the part whose metric may be shown: that of tuning runs is valid, never test.
        """
        wanted = list(specs)
        jobs = [self.job(run, specs[run]) for run in wanted]
        watch.show([(self._title(run), run.seed) for run in wanted], split)

        def tell(number: int, event: Event) -> None:
            if event.ends:
                self.keep(wanted[number], specs[wanted[number]], jobs[number], event)
            watch.tell(number, event)

        ended = _ended(jobs, launch, tell)
        if stopped := [event for event in ended if event.kind == "interrupted"]:
            raise Interrupted("stopped; the same command continues", stopped[0].content["code"] - 128)
        messages = {run: self._failure(run, event) for run, event in zip(wanted, ended, strict=True)}
        return {run: message for run, message in messages.items() if message}

    def _title(self, wanted: Wanted) -> str:
        """The row and, for a tuning run, its settings."""
        if wanted.point is None:
            return wanted.label
        return f"{wanted.label} {spell_point(self.tunings[wanted.label].settings, wanted.point)}"

    def _failure(self, wanted: Wanted, event: Event) -> str | None:
        """The message of a run that failed; a tuning run that diverged did not."""
        if wanted.point is not None:
            reported = event.kind not in ("done", "diverged")
            return failure_message(f"tuning {self._title(wanted)}", event) if reported else None
        return failure_message(f"{wanted.label} seed {wanted.seed}", event) if event.kind in self.failures else None


def _ended(runs: Sequence[Job], launch: Launcher, tell: Tell) -> list[Event]:
    """The final event of each run; finished runs are read in this process."""
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


def failure_message(title: str, event: Event) -> str | None:
    """The message of a run that went wrong, with the traceback if it is a bug; None if nothing did."""
    sentence = event.content.get("failed") or event.content.get("sentence")
    return "\n".join([f"{title}: {sentence}", *filter(None, [event.content.get("traceback")])]) if sentence else None


def _print_decisions(seeds: int, decisions: Mapping[tuple[str, str], Decision], active: Sequence[str]) -> None:
    """Print a line per pair that this look decided, and the rows that continue."""
    for (ours, theirs), decision in decisions.items():
        if decision.verdict.look == seeds:
            print(f"after {seeds} seeds: {ours} against {theirs}: {decision.verdict.word}", file=sys.stderr)
    if active:
        print(f"after {seeds} seeds: continuing with {', '.join(active)}", file=sys.stderr)


# comparisons: a grid of factors, runs in folders


@dataclass(frozen=True)
class Comparison:
    """A comparison as requested: the study, the run that its rows are made from, and where they are carried out."""

    study: Study
    """before it is settled with what the directory holds"""
    base: Job
    """data, model and training of every row, before its factors"""
    factors: Sequence[Factor]
    directory: Path
    judge: str | None = None
    """a metric of the task, loss or auto (default: as planned before, else the metric of the task)"""
    margin: str | None = None
    """margin as spelled on the command line (default: as planned before, else that of the metric)"""
    jobs: str = "auto"
    """parallel runs: a number, or auto"""
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
    comparison: Comparison,
    watch: Watch,
    after_look: Callable[[], None] | None = None,
    before: Callable[[Forecast], None] | None = None,
    *,
    tuning_only: bool = False,
) -> list[str]:
    """Plan the comparison, train missing runs, judge at each planned look; returns the messages of failed runs.

    `before` receives the estimated cost, and `after_look` is called between two looks. The directory is locked: two
    comparisons in one directory could not both have their baseline. With `tuning_only` it ends with the tuning runs,
    and rows of which all diverge are left out.
    """
    comparison = _without_other_processes(comparison)
    sized = sized_runs(comparison)  # what cannot be built is refused before there is a directory
    if ranks.size() == 1:
        comparison.settled()
    with contextlib.ExitStack() as stack:
        if is_main():
            make_directory(comparison.directory)
            stack.enter_context(lock_directory(comparison.directory))
            if comparison.overwrite:
                clear(comparison.directory)
        study = comparison.settled()
        measured = study.match == "time" or study.budget is not None
        if not study.tuning and (not measured or sized.keys() <= (study.pace or {}).keys()):  # lengths are known
            _refuse_others(ComparisonRuns(comparison, study, sized).evaluation)
        if is_main():
            seeds = f"{'up to ' if comparison.seeds.auto else ''}{_several(comparison.seeds.limit, 'seed')}"
            size = f"{_several(len(sized), 'architecture')} × {seeds}"
            print(f"{size} on {study.data}, equal {study.match}; runs in {comparison.directory}", file=sys.stderr)
        runs = prepare(comparison, study, sized)
        _refuse_others(runs.tuning_jobs or runs.evaluation)
        if is_main():
            runs.study.write(comparison.directory)
            if before is not None:
                before(runs.forecast())
        launch = stack.enter_context(
            launcher(comparison.on, comparison.jobs, runs.study.threads or 1, comparison.directory)
        )
        if not isinstance(launch, Inline):  # other processes build their own
            comparison.base.built.clear()
        return runs.train(launch, watch, after_look, tuning_only=tuning_only)


def _reported(run: Job) -> list[str]:
    """The metrics that the task's evaluation reports, from an untrained model on two examples."""
    return list(run.task.evaluate(build(run.architecture, run.model), "test", limit=2))


def _refuse_others(runs: Mapping[Key, Job]) -> None:
    """Raises `OdeumError` if a folder holds a run with other settings, before anything is trained."""
    for run in runs.values():
        check_same_run(run)


def forecast_comparison(comparison: Comparison) -> Forecast:
    """The cost of a comparison on this machine, from a few measured steps; nothing is trained or written."""
    comparison = _without_other_processes(comparison)
    check_directory(comparison.directory)
    runs = prepare(comparison, comparison.settled(), sized_runs(comparison))
    _refuse_others(runs.tuning_jobs or runs.evaluation)
    return runs.forecast()


def _without_other_processes(comparison: Comparison) -> Comparison:
    """Names that only this program registered are unknown to other processes: then the runs stay in this one."""
    architectures = [run.architecture for run in cells(comparison.base, comparison.factors).values()]
    hidden = unavailable_elsewhere(architectures, (KINDS, comparison.base.kind))
    if not hidden or (comparison.jobs == "1" and comparison.on is None) or ranks.size() > 1:
        return comparison
    known = f"{hidden[0]} is registered in this process alone, where other processes do not find it"
    remedy = "put it into a file and name that by --plugin"
    if comparison.on is not None or comparison.jobs != "auto":
        asked = f"--on {comparison.on}" if comparison.on is not None else f"--jobs {comparison.jobs}"
        raise OdeumError(f"{known}, so there is no {asked}; {remedy}, or leave that out")
    if jobs_for("auto", 1) > 1:
        notice(f"{known}, so the runs go one after the other; {remedy} for parallel runs")
    return replace(comparison, jobs="1")


def sized_runs(comparison: Comparison) -> dict[str, Job]:
    """The run of each row with seed 0, described once for all seeds."""
    runs: dict[str, Job] = cells(comparison.base, comparison.factors)
    reference = runs[comparison.study.reference]
    out = {}
    for label, run in runs.items():
        model = matched_model(run, reference) if comparison.study.match == "params" else run.model
        facts = describe(run.architecture, model, detail=False)
        out[label] = replace(run, model=model, facts=facts, directory=comparison.directory / slug(label))
    return out


def prepare(comparison: Comparison, study: Study, sized: Mapping[str, Job]) -> ComparisonRuns:
    """The runs with the threads of the study and the cost per step of its rows; nothing is written yet."""
    sized = {label: replace(run, threads=study.threads) for label, run in sized.items()}
    return ComparisonRuns(comparison, replace(study, pace=paces(study, sized)), sized)


class ComparisonRuns(StudyRuns):
    """The runs of a comparison, in folders of its directory."""

    def __init__(self, comparison: Comparison, study: Study, sized: Mapping[str, Job]) -> None:
        self.comparison, self.study, self.sized, self.seeds = comparison, study, dict(sized), comparison.seeds
        self.finals: dict[str, dict[Point, Mapping[str, float]]] = {label: {} for label in sized}
        """metrics of the validation part of the tuning runs that ended"""
        self.tuned: list[Job] = []
        """tuning runs that did not diverge"""
        self.results: dict[str, dict[int, dict[str, Any]]] = {label: {} for label in sized}
        self.evaluation = self._evaluation()

    @property
    def tunings(self) -> Mapping[str, Tuning]:
        return {} if self.study.tuning is None else dict.fromkeys(self.sized, self.study.tuning.tuning)

    def tuning_value(self, label: str, point: Point) -> float | None:
        if point not in self.finals[label]:
            return None
        value = self.finals[label][point].get(self.study.tuned_by.name)
        return math.nan if value is None else float(value)

    def tuning_spec(self, label: str, point: Point) -> Job:
        """The run of a row with these settings, as long as the runs of its evaluation."""
        settings = self.tunings[label].settings
        name = spell_point(settings, point)
        run = with_settings(self.sized[label], dict(zip(settings, point, strict=True)))
        training = matched_training(self.study, {**self.sized, label: run})[label]
        directory = self.comparison.directory / TUNING / slug(label) / name / f"seed-{TUNING_SEED}"
        row = f"{label} {name}"
        run = replace(run, training=training, seed=TUNING_SEED, row=row, directory=directory, test=False)
        folds = self.comparison.folds
        return run if folds is None else run.moved_to(folds.of(TUNING_SEED))

    def choose(self, tolerant: bool) -> list[str]:
        """If every tuning run of a row diverged, it is left out (`tolerant`) or `OdeumError` is raised."""
        study = self.study
        if study.tuning is None:
            return []
        results, metric, choices = study.tuning, study.tuned_by, {}
        for label in self.sized:
            choice, values, seconds = self._choice(label, tolerant)
            results = results.with_row(label, values, seconds)
            if choice is None:
                continue
            choices[label] = choice
            if is_main():
                inside = "" if choice.resolved else "; unresolved: the best value lies at the edge of the tried range"
                value = f"valid {metric.name} {choice.value:.4g}"
                print(f"tuned {label}: {spell_point(choice.settings, choice.point)} ({value}{inside})", file=sys.stderr)
        self.sized = {label: with_settings(self.sized[label], choice.changes) for label, choice in choices.items()}
        self.study = replace(study, tuning=results)
        if study.judge == AUTO and not study.signals:
            best = {label: self.finals[label][choice.point] for label, choice in choices.items()}
            self.study = _chosen_judge(self.study, best, self.tuned)
        if is_main():
            self.study.write(self.comparison.directory)
        if not tolerant:  # else the baseline, by which lengths are matched, may be left out
            self.evaluation = self._evaluation()
            _refuse_others(self.evaluation)
        return []

    def _choice(self, label: str, tolerant: bool) -> tuple[Choice | None, dict[Point, float], float]:
        """The choice of a row, the values that it is made from, and the measured seconds of the tuning runs."""
        tuning, higher = self.tunings[label], self.study.tuned_by.higher_is_better
        values, _ = tried(tuning, lambda point: self.tuning_value(label, point), higher)
        step = (self.study.pace or {})[label].seconds
        seconds = len(values) * run_seconds(self.tuning_spec(label, tuning.points[0]), step)
        try:
            return tuning.choose(values, higher), values, seconds
        except OdeumError as error:
            if not tolerant:
                remedy = "" if label == self.study.baseline else f", or leave {label} out of --architectures"
                raise OdeumError(f"{label}: {error}{remedy}") from None
            notice(f"{label}: {error}; it is left out")
            return None, values, seconds

    def rows(self) -> Mapping[str, Job]:
        return self.sized

    def ended(self) -> Mapping[str, Collection[int]]:
        return self.results

    def scores(self) -> Mapping[str, Mapping[int, float]]:
        """On the test part if every run has them, else on the validation part; NaN for a run that failed."""
        name = self.study.metric.name
        every = [result for row in self.results.values() for result in row.values() if not result.get("failed")]
        split = "test" if all(name in (result.get("test") or {}) for result in every) else "valid"

        def score(result: Mapping[str, Any]) -> float | None:
            return math.nan if result.get("failed") else (result.get(split) or {}).get(name)

        return {
            label: {seed: float(x) for seed, r in row.items() if (x := score(r)) is not None}
            for label, row in self.results.items()
        }

    def job(self, wanted: Wanted, spec: RunSpec) -> Job:
        if wanted.point is None:
            return self.evaluation[wanted.label, wanted.seed]
        assert isinstance(spec, Job)
        return spec

    def keep(self, wanted: Wanted, spec: RunSpec, run: Job, event: Event) -> None:
        if event.kind not in ("done", "diverged", "cut off"):
            return
        if wanted.point is None:
            self.results[wanted.label][wanted.seed] = event.content
            return
        valid = self.finals[wanted.label][wanted.point] = event.content.get("valid") or {}
        if event.kind == "done" and "failed" not in event.content:
            self.tuned.append(run)
            if (
                self.study.tuning is not None and self.study.tuned_by.name not in valid
            ):  # BLEU is of the test part alone
                self.study = replace(self.study, tuning=replace(self.study.tuning, metric="loss"))

    def forecast(self) -> Forecast:
        """The estimated cost; on a cluster, whose size is unknown, as if the runs came one after the other."""
        study, where = self.study, self.comparison
        at_once = 1 if where.on is not None and where.jobs == "auto" else jobs_for(where.jobs, study.threads or 1)
        pace = study.pace or {}
        whole = forecast(self.evaluation, pace, at_once, where.overwrite, self.seeds.auto)
        base = run_seconds(self.evaluation[study.reference, 0], pace[study.reference].seconds)
        whole = replace(whole, baseline=base)
        if study.tuning is None:
            return whole
        tuning = forecast(self.tuning_jobs, pace, at_once, where.overwrite)
        return replace(whole, tuning=tuning, widened=study.tuning.tuning.cap * len(self.sized))

    @property
    def tuning_jobs(self) -> dict[Key, Job]:
        """The next tuning runs, by row and number."""
        return {
            (run.label, number): self.job(run, spec) for number, (run, spec) in enumerate(self.missing_tuning().items())
        }

    def _evaluation(self) -> dict[Key, Job]:
        """Every run that may be needed, seed by seed, with the length that `match` gives it."""
        training = matched_training(self.study, self.sized)
        runs = {
            (label, seed): replace(run, training=training[label], seed=seed, directory=run.directory / f"seed-{seed}")
            for seed in range(self.seeds.limit)
            for label, run in self.sized.items()
        }
        folds = self.comparison.folds
        return runs if folds is None else {key: run.moved_to(folds.of(key[1])) for key, run in runs.items()}


def with_settings(run: Job, changes: Mapping[str, float]) -> Job:
    """The run with other settings of its training or, such as dropout, of its model."""
    names = {item.name for item in fields(run.training)}
    training = replace(run.training, **{name: value for name, value in changes.items() if name in names})
    model = replace(run.model, **{name: value for name, value in changes.items() if name not in names})
    tuned: dict[str, Any] = {"rate_from": "tuning"} if "learning_rate" in changes else {}
    return replace(run, training=training, model=model, **tuned)


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


def _several(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# papers' tables: rows with specs of their own, results in a store

TABLE_THREADS = 1
"""CPU threads of a run at the scale of a laptop, fixed so that the number of parallel runs changes no bit"""
SPREADS = 4.0
"""allowed distance of a repeated run from the kept mean, in standard deviations"""


@dataclass
class TableRuns(StudyRuns):
    """The runs of a paper's table, whose results are lines of a store."""

    study: Study
    specs: Mapping[str, RunSpec]
    store: Store
    directory: Path
    """directory of the runs"""
    seeds: Seeds
    labels: Sequence[str]
    """the rows to train"""
    command: str = ""
    plugins: tuple[str, ...] = ()
    failures: ClassVar[Collection[str]] = ("failed",)
    """a run that diverged is a result of the table"""
    _tasks: dict[str, Task] = field(default_factory=dict)
    _sized: dict[str, Job] = field(default_factory=dict)

    @property
    def tunings(self) -> Mapping[str, Tuning]:
        return {label: self.study.tunings[label] for label in self.labels if label in self.study.tunings}

    def tuning_value(self, label: str, point: Point) -> float | None:
        return self.store.tuning_value(self.study, self.specs[label], point)

    def tuning_spec(self, label: str, point: Point) -> RunSpec:
        return at_rate(self.specs[label], point)

    def choose(self, tolerant: bool) -> list[str]:
        """A row of which every tuning run diverged is not trained."""
        rows = self.rows()
        return [f"{label}: every tuning run diverged" for label in self.labels if label not in rows]

    def rows(self) -> Mapping[str, RunSpec]:
        specs = self.store.tuned(self.study, self.specs).specs
        return {label: specs[label] for label in self.labels if label in specs}

    def ended(self) -> Mapping[str, Collection[int]]:
        results = self.store.results(self.study, self.specs)
        return {label: {run.seed for run in results.of(label)} for label in self.labels}

    def scores(self) -> Mapping[str, Mapping[int, float]]:
        return self.store.results(self.study, self.specs).scores(self.study.metric.name)

    def identity(self, wanted: Wanted, spec: RunSpec) -> Hashable:
        return spec.key, wanted.seed

    def job(self, wanted: Wanted, spec: RunSpec) -> Job:
        run = self.run(spec, wanted.seed)
        if run.folder.is_run and not holds(run):
            raise OdeumError(f"'{run.directory}' holds a run with settings other than the recipe's; give another --out")
        return run

    def keep(self, wanted: Wanted, spec: RunSpec, run: Job, event: Event) -> None:
        if event.kind in ("done", "diverged"):
            self.store.keep(spec, run.seed, run.directory, self.study.metric.name)

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

    def measure_paces(self) -> list[Path]:
        """Time training steps, interleaved: of the rows of claims about speed, then of the other chosen rows."""
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
                "command": without_local_paths(self.command),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            out.append(self.store.keep_paces(measured, circumstances))
        return out


class Repeated(NamedTuple):
    """A repeated run compared with the kept one."""

    sentence: str
    holds: bool


def compare_with_kept(study: Study, specs: Mapping[str, RunSpec], fresh: Store, kept: Store) -> list[Repeated]:
    """Compare each fresh run with the kept figure, or with the mean and spread of the kept seeds."""
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
