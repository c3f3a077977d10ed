"""Differences paired by seed, with intervals that hold together; pairs of one table lend each other their spread.

Two runs with one seed share their batches and their luck, so architectures are compared within a seed: the difference
is taken seed by seed, and a Student t interval is put around its mean.

The pairs that a table declares (each row against a baseline, all rows against each other, or the pairs of a claim) are
a family: k of them are k chances to be fooled, so each interval is made at level 1 − error / k (Bonferroni) and all
hold together. Three seeds say little of a spread, but rows of one table say more of it together. So each pair takes
a quarter of the degrees of freedom of each other pair, up to three quarters of its own, and mixes the family's
pooled variance into its own by that weight:

    d = min(¾ (n − 1), ¼ Σ_others (m − 1)),   s̃² = max(s², ((n − 1) s² + d s̄²) / (n − 1 + d)),   t on n − 1 + d degrees

The maximum keeps a row that is noisier than the others from borrowing their calm. A share of a few hundred examples
moves by whole examples, and three seeds may agree by that alone; so no variance s² is taken to be less than half of the
square of the step in which all values of the table lie. docs/statistics.md has the simulated error and power; a pair
with two seeds neither lends nor borrows, and two rows alone are the plain paired t interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from odeum.lab.study.statistics import Summary, is_measurement, summarise, t_quantile, t_test

ERROR = 0.05
FROM = 3
"""shared seeds from which a pair lends and borrows"""
LENT = 0.25
"""the share of its degrees of freedom that a pair lends to each other one"""
MOST_BORROWED = 0.75
"""what a pair borrows at most, as a share of its own"""
LEAST_VARIANCE = 0.5
"""of the square of the step in which values lie: no variance of a difference is taken to be less"""

Name = TypeVar("Name", bound=Hashable)
Scores = Mapping[Name, Mapping[int, float]]
Problem = Literal["one seed", "diverged", "same in every seed"]


@dataclass(frozen=True)
class Difference:
    """The first of a pair minus the second, paired by seed."""

    mean: float
    low: float | None
    high: float | None
    """ends of the interval (none: it cannot be estimated, and `problem` says why)"""
    level: float
    """confidence of this one interval, already adjusted for the number of pairs"""
    p: float | None
    """two-sided p-value of the same t test, not adjusted"""
    n: int
    """seeds that both have"""
    spread: float | None = None
    """standard deviation of the differences, with what was borrowed"""
    degrees: float = 0.0
    """of freedom, with what was borrowed"""
    problem: Problem | None = None
    overlap: float = 0.0
    """what stands beside 1 / n in the variance of the mean"""

    @property
    def counts(self) -> bool:
        """Whether it is one of the family: an interval, or as many seeds as one needs."""
        return self.problem not in ("one seed", "diverged")


def to_baseline(names: Sequence[Name], baseline: Name) -> list[tuple[Name, Name]]:
    """Each row against the baseline."""
    return [(name, baseline) for name in names if name != baseline]


def all_pairs(names: Sequence[Name]) -> list[tuple[Name, Name]]:
    """Every row against every other, once."""
    return list(itertools.combinations(names, 2))


def differences(
    scores: Scores[Name], pairs: Sequence[tuple[Name, Name]], error: float = ERROR, overlap: float = 0.0
) -> dict[tuple[Name, Name], Difference]:
    """The differences of the declared pairs, as one family; pairs that share no seed are left out.

    Differences that are the same in every seed (on a small test set this happens: each time one example more) have the
    spread of the step in which values lie; where all values of the table are one there is none, and nothing is shown.
    A diverged run (a metric that is not finite) is not dropped in silence: its pair has no interval and is none of the
    family.

    Arguments: values by row and seed; the pairs; the family's error; by how much the variance of the mean is greater
    than that of independent seeds, as a share of the variance (Nadeau and Bengio: test over training examples, where
    seeds draw overlapping training parts from the same data).
    """
    values = {pair: _paired(scores, pair) for pair in pairs}
    least = LEAST_VARIANCE * resolution(x for row in scores.values() for x in row.values()) ** 2
    problems = {pair: _problem(found, least) for pair, found in values.items() if found}
    family = sum(problem not in ("one seed", "diverged") for problem in problems.values())
    level = 1 - error / max(family, 1)
    found = {pair: s for pair, p in problems.items() if p is None and (s := summarise(values[pair]))}
    lenders = [s for s in found.values() if s.n >= FROM]
    known = sum(s.n - 1 for s in lenders)
    pooled = sum((s.n - 1) * _variance(s, least) for s in lenders) / max(known, 1)
    out = {}
    for pair, problem in problems.items():
        n = len(values[pair])
        if problem is None:
            out[pair] = _interval(found[pair], _variance(found[pair], least), pooled, known, level, overlap)
        else:
            mean = math.nan if problem == "diverged" else math.fsum(values[pair]) / n
            out[pair] = Difference(mean, None, None, level, None, n, problem=problem)
    return out


def _paired(scores: Scores[Name], pair: tuple[Name, Name]) -> list[float]:
    ours, theirs = scores.get(pair[0], {}), scores.get(pair[1], {})
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def resolution(values: Iterable[float]) -> float:
    """The largest step of which all differences between finite values are multiples: one example where they are shares
    of so many, next to nothing where they have many digits, zero where they are all the same (Euclid's algorithm)."""
    finite = [x for x in values if is_measurement(x)]
    step, nothing = 0.0, 1e-9 * max(map(abs, finite), default=0.0)
    for x in finite:
        other = abs(x - finite[0])
        while other > nothing:
            step, other = other, abs(math.remainder(step, other))
    return step


def _problem(found: list[float], least: float) -> Problem | None:
    if not all(map(is_measurement, found)):
        return "diverged"
    if len(found) == 1:
        return "one seed"
    return None if least else "same in every seed"


def _variance(summary: Summary, least: float) -> float:
    assert summary.spread is not None
    return max(summary.spread**2, least)


def _interval(summary: Summary, own: float, pooled: float, known: int, level: float, overlap: float) -> Difference:
    degrees = summary.n - 1
    lent = min(MOST_BORROWED * degrees, LENT * (known - degrees)) if summary.n >= FROM else 0.0
    variance = max(own, (degrees * own + lent * pooled) / (degrees + lent))
    error = math.sqrt(variance * (1 / summary.n + overlap))
    half = t_quantile((1 + level) / 2, degrees + lent) * error
    mean = summary.mean
    return Difference(
        mean,
        mean - half,
        mean + half,
        level,
        t_test(mean / error, degrees + lent),
        summary.n,
        math.sqrt(variance),
        degrees + lent,
        overlap=overlap,
    )
