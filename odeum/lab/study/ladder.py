"""Comparisons at several sizes: the equivalent gain at each size, and its trend with size.

The architectures of one size (a rung) train for equal cost. Let L_b(C) be the baseline's mean loss as a function of
the cost C of a run along the ladder, and L_a an architecture's loss at one size. The *equivalent gain* is the factor
of cost that the baseline would need more to reach L_a:

    gain = exp(ρ),   L_b(C exp(ρ)) = L_a

Near a size the baseline's curve is taken to be E + A C^−α through the means of the three nearest sizes (a straight
line in log C where they are not convex), so ρ = −log(1 − α r) / α with the ratio r = d / β of the paired difference
d = L_b − L_a and the local slope β = −dL_b / d log C. Both are estimated from a few seeds, so the interval of r is
Fieller's: all r for which the mean of d − r β is within t standard errors of zero. It is bounded only if the slope
itself is shown to differ from zero; otherwise the gain is undecided. The variance of d is the one that
`intervals.differences` uses (partly pooled across the architectures of one size); the slope's is the baseline's own,
linearised in the three means. Runs of different sizes are taken as independent.

The *trend* is the change of ρ over the whole ladder, from a straight line through ρ over log C, with a t interval
whose variance is linearised around the estimates (Satterthwaite's degrees of freedom). One test gives the word:

    grows      the whole interval lies above zero
    shrinks    the whole interval lies below zero
    holds      the whole interval lies within ± TREND_MARGIN
    undecided  none of these, or one of the gains is undecided

docs/statistics.md has the simulated coverage, error and power (`benchmarks/ladder.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from odeum.errors import OdeumError
from odeum.lab.study.statistics import (
    ERROR,
    Difference,
    Summary,
    differences,
    is_measurement,
    summarise,
    t_quantile,
    to_baseline,
)

TREND_MARGIN = math.log(1.1)
"""a gain that changes by less than 10 % of the cost over the whole ladder holds"""
FEWEST_SIZES = 3
"""two sizes cannot tell how the baseline's curve bends"""
MOST_POWER = 3.0
"""α of the steepest local curve"""
FIT_FROM = 5
"""sizes from which a curve with three parameters is fitted"""

TrendWord = Literal["grows", "holds", "shrinks", "undecided"]


@dataclass(frozen=True)
class Rung:
    """The runs of one size."""

    name: str
    """the size as the user spells it, such as 96x6"""
    cost: float
    """cost of one run of the baseline, in seconds of measured time"""
    scores: Mapping[str, Mapping[int, float]]
    """the judged quantity by architecture and seed"""
    macs: Mapping[str, float] | None = None
    """training MACs of one run by architecture (None: unknown)"""


@dataclass(frozen=True)
class Gain:
    """The equivalent gain of one architecture at one size, as logarithms."""

    log: float | None
    """ρ (None: there is no paired difference, or the slope is zero)"""
    low: float | None
    high: float | None
    """ends of Fieller's interval (None: undecided, and `problem` says why)"""
    level: float
    problem: str | None = None
    compute: float = 0.0
    """log(baseline's MACs / this architecture's MACs): added to ρ it is the gain in compute"""

    @property
    def decided(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True)
class Trend:
    """The change of the log gain of one architecture from the smallest to the largest size."""

    word: TrendWord
    change: float | None = None
    low: float | None = None
    high: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class _Slope:
    """The baseline's curve near one size."""

    slope: float
    """β: fall of the loss per e-fold of cost"""
    power: float
    """α"""
    weights: Mapping[int, float]
    """∂β / ∂(mean loss) by size"""

    def log_gain(self, ratio: float) -> float:
        """ρ of a ratio d / β; infinite where the loss is below all that the baseline's curve reaches."""
        if abs(self.power * ratio) < 1e-9:
            return ratio
        left = 1 - self.power * ratio
        return -math.log(left) / self.power if left > 0 else math.inf

    def log_gain_slope(self, ratio: float) -> float:
        """dρ / dr."""
        return 1 / max(1 - self.power * ratio, 1e-9)


def local_slope(log_cost: Sequence[float], losses: Sequence[float], place: int) -> _Slope:
    """The slope at a size, from the three nearest sizes."""
    first = min(max(place - 1, 0), len(log_cost) - 3)
    near = range(first, first + 3)
    x = [log_cost[j] - log_cost[place] for j in near]
    means = [losses[j] for j in near]
    slope, power = _curve(x, means)
    step = 1e-4 * max(abs(means[0] - means[2]), 1e-12)
    weights = {}
    for index, j in enumerate(near):
        ends = [_curve(x, [m + sign * step * (i == index) for i, m in enumerate(means)])[0] for sign in (1, -1)]
        weights[j] = (ends[0] - ends[1]) / (2 * step)
    return _Slope(slope, power, weights)


def _curve(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """β at x = 0 and α of E + A exp(−α x) through three points; least squares for a line where they are not convex."""

    def ratio(power: float) -> float:
        """(y₂ − y₃) / (y₁ − y₂) of the curve with this power."""
        basis = [_basis(power, point) for point in x]
        return (basis[2] - basis[1]) / (basis[1] - basis[0])

    power = 0.0
    if y[0] > y[1] > y[2]:
        wanted = (y[1] - y[2]) / (y[0] - y[1])
        low, high = 0.0, MOST_POWER
        if wanted <= ratio(high):
            power = high
        elif wanted < ratio(low):
            for _ in range(60):
                power = (low + high) / 2
                low, high = (power, high) if ratio(power) > wanted else (low, power)
    basis = [_basis(power, point) for point in x]
    centre, middle = math.fsum(basis) / 3, math.fsum(y) / 3
    square = math.fsum((b - centre) ** 2 for b in basis)
    return -math.fsum((b - centre) * (v - middle) for b, v in zip(basis, y, strict=True)) / square, power


def _basis(power: float, x: float) -> float:
    """(1 − exp(−α x)) / α, whose slope at zero is one."""
    return -math.expm1(-power * x) / power if power else x


@dataclass(frozen=True)
class _Baseline:
    """The baseline at each size, oriented so that lower is better."""

    log_cost: tuple[float, ...]
    scores: tuple[Mapping[int, float], ...]
    summaries: tuple[Summary, ...]
    slopes: tuple[_Slope, ...]

    def variance(self, place: int) -> float:
        """Variance of the mean loss at this size."""
        summary = self.summaries[place]
        return (summary.spread or 0.0) ** 2 / summary.n


def check_rungs(rungs: Sequence[Rung], baseline: str) -> None:
    """Raise `OdeumError` unless there are at least three sizes of increasing cost, each with the baseline."""
    if len(rungs) < FEWEST_SIZES:
        raise OdeumError(
            f"a ladder needs at least {FEWEST_SIZES} sizes to estimate a slope, got {len(rungs)}; "
            "give --sizes 3 or --sizes 64x4,96x6,128x8"
        )
    for before, after in itertools.pairwise(rungs):
        if not after.cost > before.cost:
            raise OdeumError(
                f"sizes must increase in cost: a run of {after.name} takes {after.cost:.3g} s and one of {before.name} "
                f"{before.cost:.3g} s; order --sizes from small to large"
            )
    for rung in rungs:
        if baseline not in rung.scores:
            raise OdeumError(f"the baseline '{baseline}' has no runs at size {rung.name}; train it there first")


def gains(
    rungs: Sequence[Rung], baseline: str, higher_is_better: bool = False, error: float = ERROR
) -> dict[tuple[str, int], Gain]:
    """The gain of each architecture at each size; the intervals of one size hold together with confidence 1 − error."""
    check_rungs(rungs, baseline)
    base = _baseline(rungs, baseline, higher_is_better)
    out: dict[tuple[str, int], Gain] = {}
    for place, rung in enumerate(rungs):
        names = [name for name in rung.scores if name != baseline]
        family = differences(rung.scores, to_baseline([*names, baseline], baseline), error)
        for name in names:
            interval = family.get((name, baseline))
            out[name, place] = (
                _gain(base, place, interval, _paired(rung, name, baseline), higher_is_better)
                if interval
                else (Gain(None, None, None, 1 - error, "no seed in common with the baseline"))
            )
            if rung.macs and rung.macs.get(name) and rung.macs.get(baseline):
                compute = math.log(rung.macs[baseline] / rung.macs[name])
                out[name, place] = _with_compute(out[name, place], compute)
    return out


def trends(
    rungs: Sequence[Rung],
    baseline: str,
    higher_is_better: bool = False,
    error: float = ERROR,
    margin: float = TREND_MARGIN,
) -> dict[str, Trend]:
    """The trend of each architecture that ran at every size; the words of all of them hold together."""
    check_rungs(rungs, baseline)
    names = [name for name in rungs[0].scores if name != baseline and all(name in rung.scores for rung in rungs)]
    known = gains(rungs, baseline, higher_is_better, error)
    base = _baseline(rungs, baseline, higher_is_better)
    family = max(len(names), 1)
    return {
        name: _trend(base, rungs, name, baseline, known, higher_is_better, error / family, margin) for name in names
    }


def _baseline(rungs: Sequence[Rung], baseline: str, higher_is_better: bool) -> _Baseline:
    sign = -1.0 if higher_is_better else 1.0
    scores, summaries = [], []
    for rung in rungs:
        row = {seed: sign * x for seed, x in rung.scores[baseline].items() if is_measurement(x)}
        summary = summarise(row.values())
        if summary is None:
            raise OdeumError(
                f"the baseline '{baseline}' diverged in every seed at size {rung.name}; lower its learning rate"
            )
        scores.append(row)
        summaries.append(summary)
    log_cost = tuple(math.log(rung.cost) for rung in rungs)
    means = [summary.mean for summary in summaries]
    slopes = tuple(local_slope(log_cost, means, place) for place in range(len(rungs)))
    return _Baseline(log_cost, tuple(scores), tuple(summaries), slopes)


def _paired(rung: Rung, name: str, baseline: str) -> list[int]:
    return sorted(rung.scores[name].keys() & rung.scores[baseline].keys())


def _gain(base: _Baseline, place: int, interval: Difference, seeds: Sequence[int], higher_is_better: bool) -> Gain:
    """Fieller's interval of d / β."""
    if interval.spread is None:
        return Gain(None, None, None, interval.level, f"{interval.problem}: no gain")
    curve = base.slopes[place]
    slope, weights = curve.slope, curve.weights
    difference = interval.mean if higher_is_better else -interval.mean  # lower is better: baseline − architecture
    quantile = t_quantile((1 + interval.level) / 2, interval.degrees)
    scores = {seed: base.scores[place][seed] for seed in seeds}
    own_weight = weights.get(place, 0.0)
    slope_variance = math.fsum(weight**2 * base.variance(j) for j, weight in weights.items())
    # d and the baseline's loss at this size come from the same runs: half of a difference's variance is the baseline's.
    covariance = own_weight * _covariance(scores, interval) if own_weight else 0.0
    variance = interval.spread**2 / interval.n
    square = slope**2 - quantile**2 * slope_variance
    if slope <= 0 or square <= 0:
        problem = f"the baseline's loss is not shown to fall with cost at this size (slope {slope:.3g} per e-fold)"
        return Gain(None, None, None, interval.level, problem)
    middle = difference * slope - quantile**2 * covariance
    constant = difference**2 - quantile**2 * variance
    root = math.sqrt(max(middle**2 - square * constant, 0.0))
    low, log, high = (
        curve.log_gain(r) for r in ((middle - root) / square, difference / slope, (middle + root) / square)
    )
    if not math.isfinite(high):
        problem = "its loss may be below all that the baseline's curve reaches"
        return Gain(log if math.isfinite(log) else None, None, None, interval.level, problem)
    return Gain(log, low, high, interval.level)


def _covariance(scores: Mapping[int, float], interval: Difference) -> float:
    """Covariance of the mean difference (baseline − architecture) with the baseline's mean.

    With few seeds a sample covariance is mostly noise, so its expectation for runs that share nothing else is used:
    the variance of the baseline's part, at most half of the difference's.
    """
    summary = summarise(scores.values())
    variance = (summary.spread or 0.0) ** 2 if summary else 0.0
    assert interval.spread is not None
    return min(variance, interval.spread**2 / 2) / interval.n


def _with_compute(gain: Gain, compute: float) -> Gain:
    return Gain(gain.log, gain.low, gain.high, gain.level, gain.problem, compute)


def _trend(
    base: _Baseline,
    rungs: Sequence[Rung],
    name: str,
    baseline: str,
    known: Mapping[tuple[str, int], Gain],
    higher_is_better: bool,
    error: float,
    margin: float,
) -> Trend:
    gains = [known[name, place] for place in range(len(rungs))]
    undecided = next((place for place, gain in enumerate(gains) if not gain.decided), None)
    if undecided is not None:
        return Trend("undecided", problem=f"the gain at size {rungs[undecided].name} is undecided")
    logs = [gain.log or 0.0 for gain in gains]
    x = base.log_cost
    centre = math.fsum(x) / len(x)
    scale = (x[-1] - x[0]) / math.fsum((point - centre) ** 2 for point in x)
    contrast = [(point - centre) * scale for point in x]
    change = math.fsum(k * log for k, log in zip(contrast, logs, strict=True))
    variance, degrees = _trend_variance(base, rungs, name, baseline, contrast, logs)
    if not variance > 0:
        return Trend("undecided", change, problem="the values are the same in every seed")
    half = t_quantile(1 - error / 2, degrees) * math.sqrt(variance)
    low, high = change - half, change + half
    word: TrendWord = "undecided"
    if -margin < low and high < margin:
        word = "holds"
    elif low > 0:
        word = "grows"
    elif high < 0:
        word = "shrinks"
    return Trend(word, change, low, high)


def _trend_variance(
    base: _Baseline,
    rungs: Sequence[Rung],
    name: str,
    baseline: str,
    contrast: Sequence[float],
    logs: Sequence[float],
) -> tuple[float, float]:
    """Variance of the change and its degrees of freedom: runs of different sizes are independent."""
    through, of_baseline = [], [0.0] * len(rungs)  # how differences, and the baseline's means through slopes, enter
    for place, curve in enumerate(base.slopes):
        ratio = (1 - math.exp(-curve.power * logs[place])) / curve.power if curve.power else logs[place]
        through.append(contrast[place] * curve.log_gain_slope(ratio) / curve.slope)
        for j, weight in curve.weights.items():
            of_baseline[j] -= through[place] * ratio * weight
    parts = []
    for place, rung in enumerate(rungs):
        difference = differences(rung.scores, to_baseline([*rung.scores], baseline))[name, baseline]
        assert difference.spread is not None
        cross = 2 * through[place] * of_baseline[place] * _covariance(base.scores[place], difference)
        variance = through[place] ** 2 * difference.spread**2 / difference.n
        parts.append((max(variance + of_baseline[place] ** 2 * base.variance(place) + cross, 0.0), difference.degrees))
    total = math.fsum(part for part, _ in parts)
    square = math.fsum(part**2 / degrees for part, degrees in parts)
    return total, total**2 / square if square else 1.0


@dataclass(frozen=True)
class Fit:
    """L = limit + scale · C^−power, least squares on the mean losses. A description of the curve, never a result."""

    limit: float
    scale: float
    power: float

    def __call__(self, cost: float) -> float:
        return self.limit + self.scale * cost**-self.power


def fit(costs: Sequence[float], losses: Sequence[float]) -> Fit | None:
    """The curve through at least `FIT_FROM` sizes; for each power of a grid the other two are a straight line."""
    if len(costs) < FIT_FROM:
        return None
    best: tuple[float, Fit] | None = None
    for step in range(1, 201):
        power = 0.01 * step
        x = [cost**-power for cost in costs]
        centre, middle = math.fsum(x) / len(x), math.fsum(losses) / len(losses)
        spread = math.fsum((point - centre) ** 2 for point in x)
        if not spread:
            continue
        scale = math.fsum((a - centre) * (b - middle) for a, b in zip(x, losses, strict=True)) / spread
        curve = Fit(middle - scale * centre, scale, power)
        residual = math.fsum((curve(cost) - loss) ** 2 for cost, loss in zip(costs, losses, strict=True))
        if scale > 0 and (best is None or residual < best[0]):
            best = residual, curve
    return best[1] if best else None


def detectable_change(
    spread: float, slopes: Sequence[float], log_costs: Sequence[float], seeds: int, rows: int, error: float = ERROR
) -> float | None:
    """The change of log gain over the ladder that is shown in four of five cases (None: fewer than two seeds).

    Arguments: the standard deviation of a paired difference, the baseline's slope at each size, log costs, seeds per
    size, and the number of architectures beside the baseline.
    """
    if seeds < 2:
        return None
    centre = math.fsum(log_costs) / len(log_costs)
    square = math.fsum((x - centre) ** 2 for x in log_costs)
    contrast = [(x - centre) * (log_costs[-1] - log_costs[0]) / square for x in log_costs]
    variance = math.fsum((k / slope) ** 2 * spread**2 / seeds for k, slope in zip(contrast, slopes, strict=True))
    degrees = len(log_costs) * (seeds - 1)
    usual = 0.84  # four in five, were the spread known
    return (t_quantile(1 - error / (2 * max(rows, 1)), degrees) + usual) * math.sqrt(variance)
