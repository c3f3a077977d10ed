"""Study: the question that a set of runs answers, written to comparison.json before the first run.

A comparison, a paper's table, a sweep over learning rates and a ladder of sizes are all studies: rows that differ in
one or several factors, seeds per row, pairs (or claims) that are judged by one metric with one margin.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.study.judge import Claim, CostClaim, Criterion, Seeds, error_after
from odeum.lab.study.metric import AUTO, METRICS, Margin, Metric, judge_named, metric_named, read_margin
from odeum.lab.study.pace import Pace, read_paces
from odeum.lab.study.statistics import all_pairs, to_baseline
from odeum.lab.study.tuning import Tuning, TuningResults, read_tuning
from odeum.lab.train.rundir import COMPARISON, RUN
from odeum.lab.train.spec import RunSpec
from odeum.registry.names import Architecture
from odeum.registry.spelling import spell
from odeum.storage import lock_directory, make_directory, read_json, write_json

TUNING = "tuning"
"""folder of the tuning runs: tuning/<row>/<settings>/seed-<n>, where no report takes them for evaluation runs"""
MATCHES = ("time", "steps", "macs", "params")
JUDGE = "metric"
"""the default of --judge: the metric of the task"""
VARY = ("seed", "split")
"""values of --vary: seeds change initial weights and batches, or also the held-out examples"""
NO_BASELINE = "none"
"""the baseline of a comparison of every two rows, on the command line and in comparison.json"""


@dataclass(frozen=True)
class Factor:
    """One thing in which the rows of a study differ: a change of the run for each level."""

    name: str
    levels: Mapping[str, Callable[[RunSpec], RunSpec]]

    @classmethod
    def architecture(cls, architectures: Sequence[Architecture]) -> Factor:
        return cls("architecture", {spell(a): lambda run, a=a: replace(run, architecture=a) for a in architectures})

    @classmethod
    def training(cls, name: str, values: Sequence[Any]) -> Factor:
        """A setting of the training, such as `learning_rate`."""

        def change(value: Any) -> Callable[[RunSpec], RunSpec]:
            return lambda run: replace(run, training=replace(run.training, **{name: value}))

        return cls(name, {f"{name}={value:g}": change(value) for value in values})

    @classmethod
    def model(cls, name: str, changes: Mapping[str, Mapping[str, Any]]) -> Factor:
        """Settings of the model by level, such as {"64x4": {"width": 64, "depth": 4}} of the factor `size`."""

        def change(values: Mapping[str, Any]) -> Callable[[RunSpec], RunSpec]:
            return lambda run: replace(run, model=replace(run.model, **values))

        return cls(name, {level: change(values) for level, values in changes.items()})


def cells(base: RunSpec, factors: Sequence[Factor]) -> dict[str, Any]:
    """The run of each row, by its label: every combination of levels; labels are joined with spaces.

    A row whose label is not its architecture's spelling carries it in its spec, and its run.json names it.
    """
    out = {}
    for chosen in itertools.product(*(factor.levels.items() for factor in factors)):
        run = base
        for _, change in chosen:
            run = change(run)
        label = " ".join(level for level, _ in chosen)
        out[label] = run if label == run.name else replace(run, row=label)
    return out


@dataclass(frozen=True)
class StudyRow:
    """A row of the design."""

    label: str
    architecture: str = ""
    """its spelling"""
    published: Mapping[str, float] = field(default_factory=dict)
    """a paper's figures by metric"""
    control: bool = False
    """a row that the paper lacks"""
    key: str = ""
    """key of its kept results (`RunSpec.key`)"""


def rows_of(runs: Mapping[str, RunSpec]) -> tuple[StudyRow, ...]:
    """The design rows of `cells`."""
    return tuple(StudyRow(label, run.name, key=run.key) for label, run in runs.items())


@dataclass(frozen=True)
class Study:
    """Rows, pairs or claims, and how they are judged."""

    data: str
    rows: tuple[StudyRow, ...]
    metric: Metric
    """the one that decides"""
    margin: Margin
    """differences below it do not matter"""
    seeds: Seeds | None = None
    """planned seeds per row (default: not recorded)"""
    baseline: str | None = None
    """the row that the others are compared with (default: every two are compared, or the pairs of the claims)"""
    factors: tuple[str, ...] = ()
    """names of the factors besides the architecture, such as learning_rate"""
    claims: tuple[Claim, ...] = ()
    costs: tuple[CostClaim, ...] = ()
    split: str | None = None
    """part on which rows are judged (default: test if every run has it, else valid)"""
    other: str | None = None
    """a metric that is shown with intervals and not judged"""
    beside: tuple[tuple[str, str], ...] = ()
    """(split, metric) pairs that are shown and not judged"""
    match: str | None = None
    """quantity that is held equal (default: not recorded)"""
    budget: str | None = None
    judge: str = JUDGE
    """the deciding quantity, as spelled in --judge"""
    signals: Mapping[str, float] = field(default_factory=dict)
    """with --judge auto: signal over noise of each candidate in the tuning runs; the largest decides"""
    futility: bool = False
    """whether looks stop rows that can no longer be shown better"""
    looked: tuple[int, ...] = ()
    """numbers of seeds after which results had been seen and seeds were added without a plan"""
    command: str | None = None
    threads: int | None = None
    """CPU threads of each run, fixed once, so that launchers change no bit (default: processes of torchrun)"""
    vary: str = "seed"
    """seed (seeds change weights and batches), or split (also the held-out examples)"""
    overlap: float = 0.0
    """test over training examples if seeds vary the split"""
    pace: Mapping[str, Pace] | None = None
    """measured cost per step by row (default: not measured)"""
    earlier: tuple[str, ...] = ()
    """rows of earlier comparisons in the same directory"""
    tuning: TuningResults | None = None
    """settings that are tuned per row before the seeds that decide (default: one recipe for all)"""
    title: str = ""
    """title of a paper's table"""
    name: str = ""
    """name of a paper's table, such as zhong2022/table1"""
    scale: str = ""
    tunings: Mapping[str, Tuning] = field(default_factory=dict)
    """tuning of the rows of a paper's table"""
    notes: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The row that the others are matched to."""
        return self.baseline or self.labels[0]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(row.label for row in self.rows)

    def row(self, label: str) -> StudyRow:
        return next(row for row in self.rows if row.label == label)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The declared family of comparisons."""
        if self.is_table:
            return [claim.pair for claim in self.claims]
        return all_pairs(self.labels) if self.baseline is None else to_baseline(self.labels, self.baseline)

    @property
    def criterion(self) -> Criterion:
        futility = self.futility and self.baseline is not None
        return Criterion(
            self.metric.higher_is_better,
            self.margin,
            self.seeds,
            self.overlap,
            self.is_table,
            len(self.looked),
            futility,
        )

    @property
    def error(self) -> float:
        """The error of all intervals together, over all planned looks."""
        return error_after(len(self.looked))

    @property
    def tuned_by(self) -> Metric:
        """The metric of the validation part by which tuning chooses settings."""
        return metric_named(self.tuning.metric) if self.tuning and self.tuning.metric else self.metric

    @property
    def is_table(self) -> bool:
        """Whether the study is a paper's table."""
        return bool(self.name)

    @property
    def is_trained(self) -> bool:
        """Whether its rows are trained: a paper's table of costs alone is only timed."""
        return bool(self.claims) or not self.costs

    @property
    def ranked(self) -> bool:
        """Whether rows are ranked among each other."""
        return self.baseline is None and not self.is_table

    def published(self, claim: Claim) -> float | None:
        """The difference that the paper prints."""
        first, second = (self.row(label).published.get(self.metric.name) for label in claim.pair)
        return None if first is None or second is None else first - second

    def write(self, directory: Path) -> None:
        make_directory(directory)
        assert self.seeds is not None
        content = {
            "architectures": list(self.labels),
            "baseline": NO_BASELINE if self.baseline is None else self.baseline,
            "data": self.data,
            "match": self.match,
            "budget": self.budget,
            "seeds": str(self.seeds) if self.seeds.auto else self.seeds.limit,
            "judge": self.judge,
            **({"judged_by": self.metric.name, "signals": dict(self.signals)} if self.signals else {}),
            **({"futility": True} if self.futility else {}),
            "margin": {"value": self.margin.value, "relative": self.margin.relative},
            "looked": list(self.looked),
            "command": self.command or "",
            "threads": self.threads,
            "vary": self.vary,
            "overlap": self.overlap,
            "pace": {label: pace.record() for label, pace in (self.pace or {}).items()},
            **({"earlier": list(self.earlier)} if self.earlier else {}),
            **({"factors": list(self.factors)} if self.factors else {}),
            **({"tuning": self.tuning.record()} if self.tuning else {}),
        }
        write_json(directory / COMPARISON, content)

    def settled(
        self,
        directory: Path,
        judge: str | None = None,
        margin: str | None = None,
        reported: Callable[[], Collection[str]] = tuple,
    ) -> Study:
        """This study in agreement with the one that the directory holds; raises `OdeumError` if they differ.

        `self.metric` is the metric of the task. `judge` names one of `reported`, metric, loss or auto; `margin` is as
        the command line spells it; what is not given is as the directory says or, in a new directory, the metric and
        its default margin.
        """
        assert self.seeds is not None
        path = directory / COMPARISON
        before: dict[str, Any] = read_json(path) if path.exists() else {}
        where = f"'{directory}' holds a comparison"
        if before.get("match") not in (None, self.match):
            raise OdeumError(
                f"{where} of equal {before['match']}, not {self.match}; add --match {before['match']} to continue it, "
                "or give another --out"
            )
        if before and (was := before.get("vary", "seed")) != self.vary:
            raise OdeumError(f"{where} whose seeds vary the {was}, not the {self.vary}; give another --out")
        tuning = _settled_tuning(before, self.tuning, where)
        planned_judge = str(before.get("judge") or JUDGE)
        same = judge in (None, planned_judge) or {judge, planned_judge} <= {JUDGE, self.metric.name}
        if not same and before:
            raise OdeumError(f"{where} that is judged by its {planned_judge}, not by its {judge}; give another --out")
        judge = planned_judge if judge is None else judge
        if judge == AUTO:
            _check_auto(tuning, margin)
            metric = metric_named(str(before.get("judged_by", self.metric.name)), self.metric.higher_is_better)
            tuning = replace(tuning, metric="loss") if tuning else None
        else:
            metric = METRICS["loss"] if judge == "loss" else self.metric
            if judge not in (JUDGE, metric.name):
                metric = judge_named(judge, self.metric, reported())
        wanted = metric.margin if margin is None else metric.parse_margin(margin)
        agreed = read_margin(before.get("margin"), metric) if before else wanted
        if margin is not None and agreed != wanted:
            asked, was = metric.spell_margin(wanted), metric.spell_margin(agreed)
            raise OdeumError(
                f"{where} with a margin of {was}, not {asked}; it is declared before the runs; give another --out"
            )
        listed = [*(before.get("architectures") or ()), *(before.get("earlier") or ())]
        return replace(
            self,
            judge=judge,
            metric=metric,
            margin=agreed,
            seeds=_settled_seeds(before, self.seeds, self.baseline, where),
            looked=_looked(before, self.seeds),
            threads=before.get("threads", self.threads),
            pace=_settled_paces(read_paces(before.get("pace")), self.pace or {}, where),
            earlier=tuple(str(name) for name in listed if name not in self.labels),
            tuning=tuning,
            signals=before.get("signals") or {},
            futility=bool(before.get("futility")) if before else self.seeds.auto,
        )


def _check_auto(tuning: TuningResults | None, margin: str | None) -> None:
    if tuning is None:
        raise OdeumError("--judge auto chooses a metric from the tuning runs; add --tune 3, or name a metric")
    if margin is not None:
        raise OdeumError(
            f"--margin {margin} cannot be used with --judge auto, because the metric and its unit are not "
            "chosen yet; leave one of them out"
        )


def check_study(match: str, architectures: Sequence[object], vary: str) -> None:
    """Raises `OdeumError` for a comparison that is impossible with any data."""
    choose(match, MATCHES, "match")
    choose(vary, VARY, "value of --vary")
    if not architectures:
        raise OdeumError("a comparison needs at least one architecture, such as sequential,parallel")


def clear(directory: Path) -> None:
    """Remove the runs of an earlier comparison, and no other files, so that one table never shows two recipes."""
    tuning = directory.glob(f"{TUNING}/*/*/seed-*/{RUN}")
    for path in [*directory.glob(f"*/seed-*/{RUN}"), *tuning]:
        with lock_directory(path.parent):
            shutil.rmtree(path.parent)
    (directory / COMPARISON).unlink(missing_ok=True)


def _settled_seeds(before: dict[str, Any], seeds: Seeds, baseline: str | None, where: str) -> Seeds:
    """More seeds may be added to a fixed number of them; looks are planned once, for one family."""
    if "seeds" not in before:
        return seeds
    planned = Seeds.parse(before["seeds"])
    if not planned.auto and not seeds.auto:
        return Seeds(max(planned.limit, seeds.limit))
    if planned != seeds:
        raise OdeumError(
            f"{where} with --seeds {planned}, not {seeds}: how often one looks is part of what the verdicts promise; "
            "give another --out"
        )
    family = before.get("baseline")
    if family not in (None, NO_BASELINE if baseline is None else baseline):
        raise OdeumError(f"{where} with the baseline {family}, whose looks are planned; give another --out")
    return planned


def _settled_paces(held: Mapping[str, Pace], given: Mapping[str, Pace], where: str) -> Mapping[str, Pace]:
    """The costs that the directory holds, and those that `--step-times` names for its other rows."""
    if other := [label for label in held if label in given and held[label].seconds != given[label].seconds]:
        raise OdeumError(f"{where} with other step times for {', '.join(other)} than --step-times; give another --out")
    return {**given, **held}


def recorded_paces(directory: Path) -> Mapping[str, Pace]:
    """The measured costs per step in the comparison.json of another comparison."""
    path = directory / COMPARISON
    paces = read_paces(read_json(path).get("pace")) if path.is_file() else {}
    if not paces:
        raise OdeumError(f"--step-times: '{directory}' holds no comparison with measured step times")
    return paces


def _settled_tuning(before: dict[str, Any], tuning: TuningResults | None, where: str) -> TuningResults | None:
    """The tuning that the directory holds; raises `OdeumError` if another one is requested."""
    if not before:
        return tuning
    known = read_tuning(before.get("tuning"))
    if tuning is None or known is None:
        if tuning is not known:
            held, asked = ("with --tune", "without") if known else ("without --tune", "with")
            raise OdeumError(f"{where} {held}, and this command is {asked} it; give another --out")
        return None
    if known.tuning != tuning.tuning:
        was, now = (_spell_tuning(each) for each in (known, tuning))
        raise OdeumError(f"{where} tuned with {was}, not {now}; give another --out")
    return known


def _spell_tuning(results: TuningResults) -> str:
    tuning = results.tuning
    around = ", ".join(f"{name} {value:g}" for name, value in zip(tuning.settings, tuning.defaults, strict=True))
    return f"--tune {tuning.runs} around {around}"


def _looked(before: dict[str, Any], seeds: Seeds) -> tuple[int, ...]:
    """Numbers of seeds that allowed a verdict and were raised later."""
    known = [n for n in before.get("looked") or () if isinstance(n, int)]
    planned = before.get("seeds")
    if not seeds.auto and isinstance(planned, int) and 1 < planned < seeds.limit:
        known.append(planned)
    return tuple(dict.fromkeys(known))
