"""Findings: results after the judge, one `Row` per row of the study, with all that tables, page and plots show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from odeum.lab.study.design import Study
from odeum.lab.study.judge import (
    ClaimResult,
    CostClaim,
    CostResult,
    Decision,
    Verdict,
    claim_result,
    cost_result,
    judge,
)
from odeum.lab.study.runs import Results, RunRecord
from odeum.lab.study.statistics import (
    Difference,
    Ratio,
    Summary,
    differences,
    is_measurement,
    letters,
    paired_ratio,
    pairing,
    summarise,
)
from odeum.lab.train.rundir import integer

BESIDE = ("macro_f1", "balanced_accuracy", "majority_accuracy")
"""metrics of classes that are shown in addition to the accuracy"""
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
    """The measurements of one row."""

    architecture: str
    """the row's label: the spelling of its architecture, or a name in a paper's table"""
    is_baseline: bool
    metric: str
    higher_is_better: bool
    split: str
    """the judged part of the data, that of `difference`"""
    test: Summary | None
    valid: Summary | None
    seeds: tuple[int, ...]
    """seeds of the finished runs"""
    diverged: tuple[int, ...]
    """seeds whose metric is not finite; the means are over the others"""
    difference: Difference | None
    """to the baseline, paired by seed (default: the baseline itself, no baseline, or no seed in common)"""
    pairing: float | None
    """how well seeds pair with the baseline: 0 if their noise cancels in the difference, 1 if pairing gains nothing"""
    possible: tuple[float, float]
    """the smallest and the largest possible difference; intervals are shown within it"""
    margin: float | None
    """the margin in the unit of the difference"""
    margin_text: str
    """the margin in words: 1 point, 1 %"""
    answer: Verdict | None
    """the verdict on `difference`"""
    group: str
    """without a baseline: letters that it shares with the rows that do not differ significantly from it"""
    other: tuple[str, Difference] | None
    """the difference in the metric that is not judged, and its name"""
    beside: dict[str, Summary]
    """for classes: macro-F1, balanced accuracy and the accuracy of always predicting the most frequent class"""
    step: Ratio | None
    """step time over that of the baseline (without one: of the fastest row), measured interleaved"""
    step_seconds: float | None
    """seconds per step, measured interleaved"""
    parameters: int | None
    macs: int | None
    """MACs per example, forward"""
    evaluations: int | None
    """evaluations of the field per forward pass"""
    peak_memory: int | None
    """bytes, the largest of the seeds"""
    training_macs: float | None
    """training MACs per run, mean over the seeds"""
    steps: float | None
    """optimizer steps per run, mean over the seeds"""
    seconds: float | None
    """training time per run: steps × cost per step"""
    unfinished: tuple[str, ...]
    equation: str | None
    """the field and, below it, how a layer steps through it"""

    @property
    def score(self) -> Summary | None:
        """The score on the split that is judged."""
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
        """The interval as it is shown, within the possible range. Verdicts use the whole interval."""
        known = self.difference
        if known is None or known.low is None or known.high is None:
            return None
        least, most = self.possible
        return max(known.low, min(least, known.mean)), min(known.high, max(most, known.mean))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, unscaled, for csv and json."""
        flat: dict[str, Any] = {"architecture": self.architecture, "baseline": self.is_baseline, "metric": self.metric}
        for split, summary in (("test", self.test), ("valid", self.valid)):
            flat[f"{split}_mean"] = summary.mean if summary else None
            flat[f"{split}_spread"] = summary.spread if summary else None
        flat["seeds"] = len(self.seeds)
        flat["diverged"] = len(self.diverged)
        low, high = self.ends or (None, None)
        known, answer = self.difference, self.answer
        flat |= {"difference": known.mean if known else None, "difference_low": low, "difference_high": high}
        flat |= {"difference_level": known.level if known else None, "difference_p": known.p if known else None}
        flat |= {"difference_seeds": known.n if known else None, "margin": self.margin, "verdict": self.verdict}
        flat["pairing"] = self.pairing
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
        """The verdict, or why there is none."""
        if self.answer:
            return self.answer.word
        if not self.seeds:
            return "unfinished" if self.unfinished else "no run yet"
        if self.group:
            return f"group {self.group}"
        return "baseline" if self.is_baseline else "no seed in common with the baseline"


@dataclass(frozen=True)
class Findings:
    """Results after the judge: a row for each row of the study, the claims and the costs of a paper's table."""

    results: Results
    rows: list[Row]
    """rows in the order of the study or, in a ranking, the best first"""
    claims: tuple[ClaimResult, ...] = ()
    costs: tuple[CostResult, ...] = ()

    @property
    def study(self) -> Study:
        return self.results.study

    def row(self, label: str) -> Row:
        return next(row for row in self.rows if row.architecture == label)


def judged(results: Results) -> Findings:
    """Judge the results: once per look of a comparison, once per report or table."""
    study = results.study
    scores = results.scores(study.metric.name)
    decisions = judge(scores, study.pairs, study.criterion)
    labels, groups = list(study.labels), {}
    if study.ranked:
        labels.sort(key=lambda label: _rank(scores[label], study.metric.higher_is_better))
        groups = _groups(labels, scores, decisions)
    others = {}
    if study.other:
        others = differences(results.scores(study.other), study.pairs, study.error, study.overlap)
    against = study.baseline or _fastest(results)
    rows = [_row(results, label, against, decisions, groups.get(label, ""), others) for label in labels]
    claims = tuple(claim_result(claim, decisions.get(claim.pair), study.criterion) for claim in study.claims)
    return Findings(results, rows, claims, tuple(cost_result(claim, _cost(results, claim)) for claim in study.costs))


def _cost(results: Results, claim: CostClaim) -> Ratio | None:
    """The measured ratio that a claim about costs is about."""
    if claim.quantity == "step":
        pace = results.study.pace or {}
        first, second = pace.get(claim.first), pace.get(claim.second)
        return first.ratio_to(second) if first and second else None
    first, second = (
        results.fact(label, "parameters") or results.parameters.get(label) for label in (claim.first, claim.second)
    )
    return Ratio(first / second, first / second, first / second) if first and second else None


def _rank(row: dict[int, float], higher_is_better: bool) -> tuple[bool, float]:
    summary = summarise(x for x in row.values() if math.isfinite(x))
    return (summary is None, 0.0 if summary is None else -summary.mean if higher_is_better else summary.mean)


def _groups(
    names: list[str], scores: dict[str, dict[int, float]], decisions: dict[tuple[str, str], Decision]
) -> dict[str, str]:
    """Letters of the rows that can be compared with others; a row that diverged or has one seed has none."""
    counted = {name for pair, decision in decisions.items() if decision.difference.counts for name in pair}
    ends = {pair: (each.difference.low, each.difference.high) for pair, each in decisions.items()}
    apart = [
        pair for pair, (low, high) in ends.items() if low is not None and high is not None and (low > 0 or high < 0)
    ]
    return letters([name for name in names if name in counted], apart) if counted else {}


def _fastest(results: Results) -> str:
    """The reference of step times in a study without baseline."""
    labels = results.study.labels
    times = {label: _mean([run.measured("step_seconds") for run in results.finished(label)]) for label in labels}
    known = {label: x for label, x in times.items() if x}
    return min(known, key=lambda label: known[label]) if known else labels[0]


def _step_ratio(results: Results, label: str, against: str) -> Ratio | None:
    """The ratio of the step times measured interleaved; without such a measurement, seed by seed."""
    done, base = results.finished(label), results.finished(against)
    if results.study.pace is None:
        ours, theirs = (_by_seed(runs, lambda run: run.measured("step_seconds")) for runs in (done, base))
        return paired_ratio(ours, theirs)
    ours, theirs = (results.study.pace.get(name) if runs else None for name, runs in ((label, done), (against, base)))
    return ours.ratio_to(theirs) if ours and theirs else None


def _row(
    results: Results,
    label: str,
    against: str,
    decisions: dict[tuple[str, str], Decision],
    group: str,
    others: dict[tuple[str, str], Difference],
) -> Row:
    study, split = results.study, results.split
    runs, done, metric = results.of(label), results.finished(label), study.metric
    pair = (label, study.baseline or "")
    answer, other = decisions.get(pair), others.get(pair)
    centre = results.summary(study.baseline, split, metric.name) if study.baseline else None
    memory = [run.measured("peak_memory") for run in done]
    facts: dict[str, Any] = next((run.info for run in runs if run.info), {})
    return Row(
        architecture=label,
        is_baseline=label == study.baseline,
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        split=split,
        test=results.summary(label, "test", metric.name),
        valid=results.summary(label, "valid", metric.name),
        seeds=tuple(sorted(run.seed for run in done)),
        diverged=results.diverged(label, metric.name),
        difference=answer.difference if answer else None,
        pairing=_pairing(results, pair),
        possible=metric.possible(centre.mean) if centre else (-math.inf, math.inf),
        margin=answer.margin if answer else None,
        margin_text=metric.spell_margin(study.margin),
        answer=_answer(results, pair, answer),
        group=group,
        other=(study.other, other) if study.other and other and math.isfinite(other.mean) else None,
        beside={key: summary for key in BESIDE if (summary := results.summary(label, split, key))},
        step=_step_ratio(results, label, against),
        step_seconds=_mean([run.measured("step_seconds") for run in done]),
        parameters=integer(facts.get("parameters")),
        macs=integer(facts.get("macs")),
        evaluations=integer(facts.get("evaluations")),
        peak_memory=integer(max((m for m in memory if m is not None), default=None)),
        training_macs=_mean([run.measured("macs") for run in done]),
        steps=_mean([run.measured("steps") for run in done]),
        seconds=_mean([run.measured("seconds") for run in done]),
        unfinished=tuple(_unfinished(run) for run in runs if run.result is None),
        equation=_equation(facts),
    )


def _pairing(results: Results, pair: tuple[str, str]) -> float | None:
    scores = results.scores(results.study.metric.name)
    ours, theirs = ({s: x for s, x in scores.get(name, {}).items() if is_measurement(x)} for name in pair)
    return pairing(ours, theirs) if pair[0] != pair[1] else None


def _answer(results: Results, pair: tuple[str, str], decision: Decision | None) -> Verdict | None:
    """The verdict; a pair without one may have been cut off by a time limit."""
    if decision is None:
        return None
    cut = any(run.cut_off for label in pair for run in results.of(label))
    clock = cut and decision.verdict.word == "diverged: no verdict"
    return Verdict("cut off: no verdict") if clock else decision.verdict


def _by_seed(runs: list[RunRecord], value: Any) -> dict[int, float]:
    values = {run.seed: value(run) for run in runs}
    return {seed: x for seed, x in values.items() if x is not None}


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
