"""The arithmetic of a few seeds: means, spreads, Student's t, and ratios within a seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odeum.lab.train.rundir import LARGEST_NUMBER


def is_measurement(x: float) -> bool:
    """Whether it is a number that a run can have: neither NaN nor beyond all bounds."""
    return abs(x) <= LARGEST_NUMBER


@dataclass(frozen=True)
class Summary:
    """A number over seeds."""

    mean: float
    spread: float | None
    """sample standard deviation over seeds (none: one seed)"""
    n: int


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


def t_quantile(probability: float, degrees: float) -> float:
    """Where Student's t distribution has this much of its mass to the left."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, at half the import time

    return float(stdtrit(degrees, probability))


def t_test(ratio: float, degrees: float) -> float:
    """Two-sided p-value of a mean that is `ratio` standard errors from zero."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(ratio)))


def median(values: Iterable[float]) -> float | None:
    """The middle one, or the mean of the middle two; none of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True)
class Ratio:
    """A cost beside the baseline's, seed by seed."""

    middle: float
    """the median over shared seeds: one seed may meet a busy machine"""
    low: float
    high: float
    """the smallest and the largest of the seeds"""

    def tells(self, noticeable: float) -> bool:
        """Whether every seed says the same, and the middle more than is noticeable; else it is a tie."""
        return abs(self.middle - 1) > noticeable and (self.low > 1 or self.high < 1)


def paired_ratio(ours: Mapping[int, float], baseline: Mapping[int, float]) -> Ratio | None:
    """Ours / baseline within each shared seed: for step times."""
    ratios = [ours[s] / baseline[s] for s in ours.keys() & baseline.keys() if baseline[s] > 0]
    middle = median(ratios)
    return None if middle is None else Ratio(middle, min(ratios), max(ratios))


def pairing(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """Return var(a − b) / (var a + var b) over the seeds that both have.

    0: the noise of a seed is the same in both and cancels in the difference; 1: pairing by seed gains nothing; above 1:
    it loses. As many times fewer seeds give the same interval. None with fewer than two common seeds, or if nothing
    varies.
    """
    seeds = sorted(a.keys() & b.keys())
    if len(seeds) < 2:
        return None
    spreads = [
        summarise(values) for values in ([a[s] - b[s] for s in seeds], [a[s] for s in seeds], [b[s] for s in seeds])
    ]
    difference, *each = (summary.spread**2 for summary in spreads if summary is not None and summary.spread is not None)
    return difference / sum(each) if sum(each) > 0 else None
