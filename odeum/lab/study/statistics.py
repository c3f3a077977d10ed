"""The arithmetic of a few seeds: means, Student's t, differences paired by seed, rankings, outliers.

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
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from odeum.lab.train.rundir import LARGEST_NUMBER

ERROR = 0.05
FROM = 3
"""shared seeds from which a pair lends and borrows"""
LENT = 0.25
"""the share of its degrees of freedom that a pair lends to each other one"""
MOST_BORROWED = 0.75
"""the most that a pair borrows, as a share of its degrees of freedom"""
LEAST_VARIANCE = 0.5
"""of the square of the step in which values lie: no variance of a difference is taken to be less"""

Name = TypeVar("Name", bound=Hashable)
Scores = Mapping[Name, Mapping[int, float]]
Problem = Literal["one seed", "diverged", "same in every seed"]
OF_TABLE, OF_ROW = 8.0, 4.0
"""an outlier: so many usual distances of the table, and so many of the next run in its row, from the row's median"""


def is_measurement(x: float) -> bool:
    """Whether the number is finite and below `LARGEST_NUMBER`."""
    return abs(x) <= LARGEST_NUMBER


@dataclass(frozen=True)
class Summary:
    """Mean and spread over seeds."""

    mean: float
    spread: float | None
    """sample standard deviation over seeds (default: one seed)"""
    n: int


def summarise(values: Iterable[float]) -> Summary | None:
    """Mean and sample standard deviation (n − 1 in the denominator); none for no values."""
    numbers = list(values)
    if not numbers:
        return None
    mean = math.fsum(numbers) / len(numbers)
    if len(numbers) == 1:
        return Summary(mean, None, 1)
    variance = math.fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1)
    return Summary(mean, math.sqrt(variance), len(numbers))


def t_quantile(probability: float, degrees: float) -> float:
    """The quantile of Student's t distribution."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, at half the import time

    return float(stdtrit(degrees, probability))


def t_test(ratio: float, degrees: float) -> float:
    """Two-sided p-value of a mean that is `ratio` standard errors from zero."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(ratio)))


def median(values: Iterable[float]) -> float | None:
    """The median; none for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True)
class Ratio:
    """The ratio of a cost to that of the baseline."""

    middle: float
    """the median over shared seeds or turns"""
    low: float
    high: float
    """the range of the ratio"""

    def differs(self, noticeable: float) -> bool:
        """Whether the range excludes 1 and the median differs from 1 by more than `noticeable`; else it is a tie."""
        return abs(self.middle - 1) > noticeable and (self.low > 1 or self.high < 1)


def paired_ratio(ours: Mapping[int, float], baseline: Mapping[int, float]) -> Ratio | None:
    """The ratio within each shared seed."""
    ratios = [ours[s] / baseline[s] for s in ours.keys() & baseline.keys() if baseline[s] > 0]
    middle = median(ratios)
    return None if middle is None else Ratio(middle, min(ratios), max(ratios))


# differences paired by seed


@dataclass(frozen=True)
class Difference:
    """The first of a pair minus the second, paired by seed."""

    mean: float
    low: float | None
    high: float | None
    """ends of the interval (default: it cannot be estimated, and `problem` says why)"""
    level: float
    """confidence of this one interval, already adjusted for the number of pairs"""
    p: float | None
    """two-sided p-value of the same t test, not adjusted"""
    n: int
    """seeds that both have"""
    spread: float | None = None
    """standard deviation of the differences, with what was borrowed"""
    degrees: float = 0.0
    """degrees of freedom, including borrowed ones"""
    problem: Problem | None = None
    overlap: float = 0.0
    """added to 1 / n in the variance of the mean"""

    @property
    def counts(self) -> bool:
        """Whether the pair counts as one of the family."""
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
    problems = {pair: _problem(paired, least) for pair, paired in values.items() if paired}
    family = sum(problem not in ("one seed", "diverged") for problem in problems.values())
    level = 1 - error / max(family, 1)
    summaries = {pair: s for pair, p in problems.items() if p is None and (s := summarise(values[pair]))}
    lenders = [s for s in summaries.values() if s.n >= FROM]
    known = sum(s.n - 1 for s in lenders)
    pooled = sum((s.n - 1) * _variance(s, least) for s in lenders) / max(known, 1)
    out = {}
    for pair, problem in problems.items():
        n = len(values[pair])
        if problem is None:
            out[pair] = _interval(summaries[pair], _variance(summaries[pair], least), pooled, known, level, overlap)
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


def _problem(values: list[float], least: float) -> Problem | None:
    if not all(map(is_measurement, values)):
        return "diverged"
    if len(values) == 1:
        return "one seed"
    return None if least else "same in every seed"


def _variance(summary: Summary, least: float) -> float:
    assert summary.spread is not None
    return max(summary.spread**2, least)


def _interval(summary: Summary, unpooled: float, pooled: float, known: int, level: float, overlap: float) -> Difference:
    degrees = summary.n - 1
    lent = min(MOST_BORROWED * degrees, LENT * max(known - degrees, 0)) if summary.n >= FROM else 0.0
    variance = max(unpooled, (degrees * unpooled + lent * pooled) / (degrees + lent))
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


def paired_mean(values: Iterable[float], level: float = 1 - ERROR) -> Difference | None:
    """Mean of paired differences with a plain t interval, such as losses of two models on the same examples.

    None without at least two values.
    """
    summary = summarise(values)
    if summary is None or summary.spread is None:
        return None
    if not summary.spread:
        return Difference(summary.mean, summary.mean, summary.mean, level, None, summary.n, 0.0, summary.n - 1)
    return _interval(summary, summary.spread**2, 0.0, 0, level, 0.0)


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


# outliers and rankings


def outliers(scores: Mapping[Name, Mapping[int, float]]) -> list[tuple[Name, int]]:
    """Outliers: (row, seed) of each row's furthest run, if it is far from the others.

    Far is more than eight times what is usual in the table and four times the next in the row, both from the row's
    median. Of tables with normal noise fewer than one in fifty has such a run; one that collapsed by twenty spreads
    is found more than nine times in ten (a test says so).
    """
    distances: dict[Name, list[tuple[float, int]]] = {}
    for name, row in scores.items():
        finite = {seed: x for seed, x in row.items() if math.isfinite(x)}
        middle = median(finite.values())
        if middle is not None and len(finite) > 2:
            distances[name] = sorted((abs(x - middle), seed) for seed, x in finite.items())
    usual = median(distance for row in distances.values() for distance, _ in row[1:])
    if not usual:
        return []
    return [
        (name, row[-1][1])
        for name, row in distances.items()
        if row[-1][0] > OF_TABLE * usual and row[-1][0] > OF_ROW * row[-2][0]
    ]


def letters(ranked: Sequence[Name], apart: Collection[tuple[Name, Name]]) -> dict[Name, str]:
    """The compact letter display of rows, best first, of which some pairs were told apart.

    Two rows share a letter if and only if they were not told apart. Every letter starts as a group of all rows; a pair
    that was told apart splits each group that holds both, and a group inside another one says nothing (Piepho 2004).
    """
    groups = [frozenset(ranked)]
    for first, second in apart:
        split = [group - {gone} for group in groups for gone in (first, second) if {first, second} <= group]
        groups = [group for group in groups if not {first, second} <= group] + split
        groups = [g for i, g in enumerate(groups) if not any(g < other for other in groups) and g not in groups[:i]]
    groups.sort(key=lambda group: [ranked.index(name) for name in sorted(group, key=ranked.index)])
    return {name: "".join(_letter(i) for i, group in enumerate(groups) if name in group) for name in ranked}


def _letter(number: int) -> str:
    """a to z, then a1, b1 …"""
    return chr(ord("a") + number % 26) + (str(number // 26) if number >= 26 else "")


def mean_ranks(tables: Sequence[Mapping[Name, float]], higher_is_better: Sequence[bool]) -> dict[Name, float]:
    """The mean rank over several tables of the rows that all of them have, the best first; ties share their rank."""
    shared = [name for name in tables[0] if all(name in table for table in tables)] if tables else []
    ranks: dict[Name, list[float]] = {name: [] for name in shared}
    for table, higher in zip(tables, higher_is_better, strict=True):
        values = {name: -table[name] if higher else table[name] for name in shared}
        for name, value in values.items():
            below, equal = sum(x < value for x in values.values()), sum(x == value for x in values.values())
            ranks[name].append(below + (equal + 1) / 2)
    means = {name: sum(each) / len(each) for name, each in ranks.items()}
    return dict(sorted(means.items(), key=lambda item: item[1]))
