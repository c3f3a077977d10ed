"""What a few seeds can and cannot tell: means, spreads, differences paired by seed, and a verdict in plain words.

Two runs with one seed share their batches and their luck, so architectures are compared within a seed: the
difference to the baseline is taken seed by seed and a Student t interval is put around its mean.

Several architectures against one baseline are several chances to be fooled. With k comparisons each interval
is made at level 1 − 0.05 / k (Bonferroni), so all of them hold together with 95 % confidence. The verdict is
read off that same interval, so what is shown and what is said cannot disagree; Holm's p-values would be a
little sharper, but have no matching intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

CONFIDENCE = 0.95

Verdict = Literal["better", "worse", "no difference shown", "one seed: no verdict", "diverged: no verdict"]


@dataclass(frozen=True)
class Summary:
    """A number over seeds."""

    mean: float
    spread: float | None
    """sample standard deviation over seeds (none: one seed)"""
    n: int


@dataclass(frozen=True)
class Difference:
    """An architecture minus the baseline, paired by seed."""

    mean: float
    low: float | None
    high: float | None
    """ends of the interval (none: it cannot be estimated)"""
    level: float
    """confidence of this one interval, already adjusted for the number of comparisons"""
    p: float | None
    """two-sided p-value of the paired t test, not adjusted"""
    n: int
    """seeds that both have"""
    verdict: Verdict


def summarise(values: Iterable[float]) -> Summary | None:
    """Mean and sample standard deviation (n − 1 in the denominator); none of nothing."""
    numbers = list(values)
    if not numbers:
        return None
    mean = math.fsum(numbers) / len(numbers)
    if len(numbers) == 1:
        return Summary(mean, None, 1)
    variance = math.fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1)
    return Summary(mean, math.sqrt(variance), len(numbers))


def t_quantile(probability: float, degrees: int) -> float:
    """Where Student's t distribution has this much of its mass to the left."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, at half the import time

    return float(stdtrit(degrees, probability))


def t_test(mean: float, spread: float, n: int) -> float:
    """Two-sided p-value for a mean of n differences being zero."""
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(mean) * math.sqrt(n) / spread))


def level_for(comparisons: int, confidence: float = CONFIDENCE) -> float:
    """The level of each interval that lets all of them hold together with `confidence`."""
    return 1 - (1 - confidence) / max(comparisons, 1)


def paired_difference(
    ours: Mapping[int, float],
    baseline: Mapping[int, float],
    higher_is_better: bool,
    comparisons: int = 1,
    confidence: float = CONFIDENCE,
) -> Difference | None:
    """Compare two architectures within each seed that both have; none if they share no seed.

    Differences that are the same in every seed have no spread from which an interval could be made (on a
    small test set this happens by rounding), so they show nothing. A diverged run (a metric that is not
    finite) is not dropped in silence: there is no verdict.
    """
    seeds = sorted(ours.keys() & baseline.keys())
    if not seeds:
        return None
    level = level_for(comparisons, confidence)
    differences = [ours[s] - baseline[s] for s in seeds]
    if not all(map(math.isfinite, differences)):
        return Difference(math.nan, None, None, level, None, len(seeds), "diverged: no verdict")
    summary = summarise(differences)
    assert summary is not None
    mean, spread, n = summary.mean, summary.spread, summary.n
    if spread is None:
        return Difference(mean, None, None, level, None, n, "one seed: no verdict")
    size = max(abs(x) for s in seeds for x in (ours[s], baseline[s]))
    if spread <= 1e-12 * size:
        return Difference(mean, None, None, level, None, n, "no difference shown")
    half = t_quantile((1 + level) / 2, n - 1) * spread / math.sqrt(n)
    low, high = mean - half, mean + half
    verdict: Verdict = "no difference shown"
    if low > 0 or high < 0:
        verdict = "better" if (mean > 0) == higher_is_better else "worse"
    return Difference(mean, low, high, level, t_test(mean, spread, n), n, verdict)


def paired_ratio(ours: Mapping[int, float], baseline: Mapping[int, float]) -> float | None:
    """The median over shared seeds of ours / baseline: for step times, where one seed may meet a busy machine."""
    ratios = sorted(ours[s] / baseline[s] for s in ours.keys() & baseline.keys() if baseline[s] > 0)
    if not ratios:
        return None
    middle = len(ratios) // 2
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
