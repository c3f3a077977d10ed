"""From runs to rows: one an architecture, everything that the table, the page and the plots show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from odeum.compare.statistics import Difference, Summary, paired_difference, paired_ratio, summarise
from odeum.report.records import ComparisonRecord, RunRecord, whole

MEASURED = (
    "step_ratio",
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
    """to the baseline, paired by seed (none: the baseline itself, or no seed in common)"""
    step_ratio: float | None
    """step time over the baseline's: median over the seeds"""
    step_seconds: float | None
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
    """training time of a run, mean over the seeds"""
    unfinished: tuple[str, ...]
    equation: str | None
    """the field and, below it, how a layer steps through it"""

    @property
    def score(self) -> Summary | None:
        """Where the architecture is judged."""
        return self.test if self.split == "test" else self.valid

    @property
    def judged(self) -> bool:
        """Whether there is a verdict: more than one seed shared with the baseline, and none diverged."""
        return self.difference is not None and self.difference.n > 1 and math.isfinite(self.difference.mean)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, unscaled, for csv and json."""
        flat: dict[str, Any] = {"architecture": self.architecture, "baseline": self.is_baseline, "metric": self.metric}
        for split, summary in (("test", self.test), ("valid", self.valid)):
            flat[f"{split}_mean"] = summary.mean if summary else None
            flat[f"{split}_spread"] = summary.spread if summary else None
        flat["seeds"] = len(self.seeds)
        flat["diverged"] = len(self.diverged)
        for key, name in (("mean", ""), ("low", "_low"), ("high", "_high"), ("level", "_level"), ("p", "_p")):
            flat["difference" + name] = getattr(self.difference, key, None)
        flat["difference_seeds"] = self.difference.n if self.difference else None
        flat["verdict"] = self.verdict
        flat |= {key: getattr(self, key) for key in MEASURED}
        flat["unfinished"] = "; ".join(self.unfinished)
        return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in flat.items()}

    @property
    def verdict(self) -> str:
        if self.difference:
            return self.difference.verdict
        if not self.seeds:
            return "unfinished" if self.unfinished else "no run yet"
        return "baseline" if self.is_baseline else "no seed in common with the baseline"


def rows(comparison: ComparisonRecord) -> list[Row]:
    """One row an architecture, in the comparison's order."""
    base = comparison.finished(comparison.baseline)
    found = [_row(comparison, name, base, 1) for name in comparison.architectures]
    judged = sum(row.judged for row in found)
    return found if judged < 2 else [_row(comparison, name, base, judged) for name in comparison.architectures]


def _row(comparison: ComparisonRecord, name: str, base: list[RunRecord], comparisons: int) -> Row:
    runs, done = comparison.of(name), comparison.finished(name)
    metric, split, is_baseline = comparison.metric, comparison.split, name == comparison.baseline
    scores = _by_seed(done, lambda run: run.score(split, metric))
    difference = None
    if not is_baseline:
        theirs = _by_seed(base, lambda run: run.score(split, metric))
        difference = paired_difference(scores, theirs, comparison.higher_is_better, comparisons)
    times = _by_seed(done, lambda run: run.measured("step_seconds"))
    memory = [run.measured("peak_memory") for run in done]
    facts: dict[str, Any] = next((run.info for run in runs if run.info), {})
    return Row(
        architecture=name,
        is_baseline=is_baseline,
        metric=metric,
        higher_is_better=comparison.higher_is_better,
        split=split,
        test=_summary(done, "test", metric),
        valid=_summary(done, "valid", metric),
        seeds=tuple(sorted(run.seed for run in done)),
        diverged=tuple(sorted(seed for seed, x in scores.items() if not math.isfinite(x))),
        difference=difference,
        step_ratio=paired_ratio(times, _by_seed(base, lambda run: run.measured("step_seconds"))),
        step_seconds=_mean(list(times.values())),
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
    return f"seed {run.seed}: at step {run.last_step}" if run.last_step else f"seed {run.seed}: no step yet"
