"""From runs to rows: one an architecture, everything that the table, the page and the plots show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from odeum.lab.study.intervals import Difference, differences
from odeum.lab.study.ranking import letters
from odeum.lab.study.records import ComparisonRecord, RunRecord
from odeum.lab.study.seeds import Criterion, Decision, decide
from odeum.lab.study.statistics import Ratio, Summary, paired_ratio, summarise
from odeum.lab.study.verdicts import Verdict
from odeum.lab.train.rundir import whole

BESIDE = ("macro_f1", "balanced_accuracy", "majority_accuracy")
"""of classes: shown beside the accuracy"""
MEASURED = (
    "step_ratio",
    "step_ratio_low",
    "step_ratio_high",
    "step_seconds",
    "parameters",
    "macs",
    "evaluations",
    "peak_memory",
    "training_macs",
    "steps",
    "seconds",
)


@dataclass(frozen=True)
class Row:
    """What was measured of one architecture."""

    architecture: str
    is_baseline: bool
    metric: str
    higher_is_better: bool
    split: str
    """where it was judged: the split of `difference`"""
    test: Summary | None
    valid: Summary | None
    seeds: tuple[int, ...]
    """of the finished runs"""
    diverged: tuple[int, ...]
    """seeds whose metric is not finite; the means are over the others"""
    difference: Difference | None
    """to the baseline, paired by seed (none: the baseline itself, no baseline, or no seed in common)"""
    possible: tuple[float, float]
    """least and greatest difference that there can be; intervals are shown within it"""
    margin: float | None
    """what matters, in the unit of the difference"""
    margin_text: str
    """as it was said: 1 point, 1 %"""
    answer: Verdict | None
    """on `difference`"""
    group: str
    """without a baseline: letters that it shares with those it could not be told apart from"""
    other: tuple[str, Difference] | None
    """the difference in the metric that is not judged, and its name"""
    beside: dict[str, Summary]
    """of classes: macro-F1, balanced accuracy and what always saying the most frequent class has, where it is judged"""
    step: Ratio | None
    """step time over the baseline's (without one: the fastest one's), measured in turns"""
    step_seconds: float | None
    """of a step, measured in turns"""
    parameters: int | None
    macs: int | None
    """multiply–adds an example, forward"""
    evaluations: int | None
    """of the field, a forward pass"""
    peak_memory: int | None
    """bytes, the largest of the seeds"""
    training_macs: float | None
    """multiply–adds of a whole run, mean over the seeds"""
    steps: float | None
    """optimizer steps of a run, mean over the seeds"""
    seconds: float | None
    """training time of a run: its steps × what one of them costs"""
    unfinished: tuple[str, ...]
    equation: str | None
    """the field and, below it, how a layer steps through it"""

    @property
    def score(self) -> Summary | None:
        """Where the architecture is judged."""
        return self.test if self.split == "test" else self.valid

    @property
    def step_ratio(self) -> float | None:
        """The median of the step time over the baseline's; 1 where the noise is larger than the difference."""
        return self.step.middle if self.step else None

    @property
    def step_ratio_low(self) -> float | None:
        """The lower end of its range."""
        return self.step.low if self.step else None

    @property
    def step_ratio_high(self) -> float | None:
        """The upper end of its range."""
        return self.step.high if self.step else None

    @property
    def judged(self) -> bool:
        """Whether it is one of the family: more than one seed shared with the baseline, and none diverged."""
        return self.difference is not None and self.difference.counts

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval as it is shown: within what is possible. Words are read off the whole one."""
        found = self.difference
        if found is None or found.low is None or found.high is None:
            return None
        least, most = self.possible
        return max(found.low, min(least, found.mean)), min(found.high, max(most, found.mean))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, unscaled, for csv and json."""
        flat: dict[str, Any] = {"architecture": self.architecture, "baseline": self.is_baseline, "metric": self.metric}
        for split, summary in (("test", self.test), ("valid", self.valid)):
            flat[f"{split}_mean"] = summary.mean if summary else None
            flat[f"{split}_spread"] = summary.spread if summary else None
        flat["seeds"] = len(self.seeds)
        flat["diverged"] = len(self.diverged)
        low, high = self.ends or (None, None)
        found, answer = self.difference, self.answer
        flat |= {"difference": found.mean if found else None, "difference_low": low, "difference_high": high}
        flat |= {"difference_level": found.level if found else None, "difference_p": found.p if found else None}
        flat |= {"difference_seeds": found.n if found else None, "margin": self.margin, "verdict": self.verdict}
        flat |= {"more_seeds": answer.more if answer else None, "decided_at": answer.look if answer else None}
        flat["group"] = self.group
        name, other = self.other or (None, None)
        flat |= {"not_judged": name, "not_judged_difference": other.mean if other else None}
        flat |= {"not_judged_low": other.low if other else None, "not_judged_high": other.high if other else None}
        flat |= {key: self.beside[key].mean if key in self.beside else None for key in BESIDE}
        flat |= {key: getattr(self, key) for key in MEASURED}
        flat["unfinished"] = "; ".join(self.unfinished)
        return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in flat.items()}

    @property
    def verdict(self) -> str:
        """The word, or why there is none."""
        if self.answer:
            return self.answer.word
        if not self.seeds:
            return "unfinished" if self.unfinished else "no run yet"
        if self.group:
            return f"group {self.group}"
        return "baseline" if self.is_baseline else "no seed in common with the baseline"


def rows(comparison: ComparisonRecord) -> list[Row]:
    """One row an architecture: in the comparison's order or, without a baseline, the best first."""
    scores = comparison.scores(comparison.metric)
    criterion = Criterion(comparison.higher_is_better, comparison.margin, comparison.seeds, comparison.overlap)
    decisions = decide(scores, comparison.pairs, criterion)
    names, groups = list(comparison.architectures), {}
    if comparison.baseline is None:
        names = sorted(names, key=lambda name: _rank(scores[name], comparison.higher_is_better))
        groups = _groups(names, scores, decisions)
    others = {}
    if comparison.other:
        others = differences(comparison.scores(comparison.other), comparison.pairs, overlap=comparison.overlap)
    against = comparison.baseline or _fastest(comparison)
    return [_row(comparison, name, against, decisions, groups.get(name, ""), others) for name in names]


def _rank(row: dict[int, float], higher_is_better: bool) -> tuple[bool, float]:
    summary = summarise(x for x in row.values() if math.isfinite(x))
    return (summary is None, 0.0 if summary is None else -summary.mean if higher_is_better else summary.mean)


def _groups(
    names: list[str], scores: dict[str, dict[int, float]], decisions: dict[tuple[str, str], Decision]
) -> dict[str, str]:
    """Letters of the rows that can be compared with others; a row that diverged or has one seed has none."""
    counted = {name for pair, found in decisions.items() if found.difference.counts for name in pair}
    ends = {pair: (found.difference.low, found.difference.high) for pair, found in decisions.items()}
    apart = [
        pair for pair, (low, high) in ends.items() if low is not None and high is not None and (low > 0 or high < 0)
    ]
    return letters([name for name in names if name in counted], apart) if counted else {}


def _fastest(comparison: ComparisonRecord) -> str:
    """What step times are compared with where there is no baseline."""
    times = {
        name: _mean([run.measured("step_seconds") for run in comparison.finished(name)])
        for name in comparison.architectures
    }
    known = {name: x for name, x in times.items() if x}
    return min(known, key=lambda name: known[name]) if known else comparison.architectures[0]


def _step_ratio(comparison: ComparisonRecord, done: list[RunRecord], base: list[RunRecord]) -> Ratio | None:
    """Of step times as they were measured in turns; of runs from before that, seed by seed."""
    if comparison.pace is None:
        ours, theirs = (_by_seed(runs, lambda run: run.measured("step_seconds")) for runs in (done, base))
        return paired_ratio(ours, theirs)
    own, other = (comparison.pace.get(runs[0].architecture) if runs else None for runs in (done, base))
    return own.beside(other) if own and other else None


def _row(
    comparison: ComparisonRecord,
    name: str,
    against: str,
    decisions: dict[tuple[str, str], Decision],
    group: str,
    others: dict[tuple[str, str], Difference],
) -> Row:
    runs, done, base = comparison.of(name), comparison.finished(name), comparison.finished(against)
    metric, split = comparison.metric, comparison.split
    scores = comparison.scores(metric)
    pair = (name, comparison.baseline or "")
    answer, other = decisions.get(pair), others.get(pair)
    centre = summarise(x for x in scores.get(comparison.baseline or "", {}).values() if math.isfinite(x))
    memory = [run.measured("peak_memory") for run in done]
    facts: dict[str, Any] = next((run.info for run in runs if run.info), {})
    return Row(
        architecture=name,
        is_baseline=name == comparison.baseline,
        metric=metric,
        higher_is_better=comparison.higher_is_better,
        split=split,
        test=_summary(done, "test", metric),
        valid=_summary(done, "valid", metric),
        seeds=tuple(sorted(run.seed for run in done)),
        diverged=_diverged(done, split, metric),
        difference=answer.difference if answer else None,
        possible=comparison.facts.possible(centre.mean) if centre else (-math.inf, math.inf),
        margin=answer.margin if answer else None,
        margin_text=comparison.facts.spell_margin(comparison.margin),
        answer=_answer(comparison, pair, answer),
        group=group,
        other=(comparison.other, other) if comparison.other and other and math.isfinite(other.mean) else None,
        beside={key: found for key in BESIDE if (found := _summary(done, split, key))},
        step=_step_ratio(comparison, done, base),
        step_seconds=_mean([run.measured("step_seconds") for run in done]),
        parameters=whole(facts.get("parameters")),
        macs=whole(facts.get("macs")),
        evaluations=whole(facts.get("evaluations")),
        peak_memory=whole(max((m for m in memory if m is not None), default=None)),
        training_macs=_mean([run.measured("macs") for run in done]),
        steps=_mean([run.measured("steps") for run in done]),
        seconds=_mean([run.measured("seconds") for run in done]),
        unfinished=tuple(_unfinished(run) for run in runs if run.result is None),
        equation=_equation(facts),
    )


def _diverged(runs: list[RunRecord], split: str, metric: str) -> tuple[int, ...]:
    scores = {run.seed: run.score(split, metric) for run in runs}
    return tuple(sorted(seed for seed, x in scores.items() if x is not None and not math.isfinite(x)))


def _answer(comparison: ComparisonRecord, pair: tuple[str, str], decision: Decision | None) -> Verdict | None:
    """The verdict; what kept a pair from having one may be the clock."""
    if decision is None:
        return None
    cut = any(run.cut_off for name in pair for run in comparison.of(name))
    clock = cut and decision.verdict.word == "diverged: no verdict"
    return Verdict("cut off: no verdict") if clock else decision.verdict


def _by_seed(runs: list[RunRecord], value: Any) -> dict[int, float]:
    found = {run.seed: value(run) for run in runs}
    return {seed: x for seed, x in found.items() if x is not None}


def _summary(runs: list[RunRecord], split: str, metric: str) -> Summary | None:
    return summarise(x for run in runs if (x := run.score(split, metric)) is not None and math.isfinite(x))


def _mean(values: list[float | None]) -> float | None:
    summary = summarise(x for x in values if x is not None)
    return summary.mean if summary else None


def _equation(facts: dict[str, Any]) -> str | None:
    scheme = facts.get("scheme") or []
    flows = scheme if isinstance(scheme, list) else [scheme]
    lines = [str(facts.get("equation") or ""), *(line.strip() for flow in flows for line in str(flow).split(";"))]
    return "\n".join(filter(None, lines)) or None


def _unfinished(run: RunRecord) -> str:
    if not run.info:
        return f"seed {run.seed}: its run.json is missing or broken"
    if run.cut_off:
        return f"seed {run.seed}: cut off at step {run.last_step} by the limit of {run.cut_off}"
    return f"seed {run.seed}: at step {run.last_step}" if run.last_step else f"seed {run.seed}: no step yet"
