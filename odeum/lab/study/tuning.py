"""Equal tuning: the settings that each architecture tries before the seeds that decide, and the choice among them.

Every architecture gets the same rule and the same cap. With the learning rate alone the rule is a grid: N rates,
each a factor of 2 from the next, centred on the default. If the best rate lies at an end, one more rate beyond that end
is tried, until the best one lies inside or the architecture has made `WIDENED` × N runs; then its optimum is reported
as unresolved. With several settings the rule is a fixed set of Sobol points around the defaults.

All of this is a function of the results alone, so an interrupted tuning continues where it stopped. Values are of the
validation part and of one tuning seed, which no evaluation uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.study.judge import MOST_SEEDS

FACTOR = 2.0
"""from one rate of the grid to the next"""
WIDENED = 2
"""runs per architecture at most, as a multiple of the grid"""
RANGE = 4.0
"""Sobol points lie between the default divided and multiplied by this"""
FEWEST = 3
"""runs per architecture: two rates have no inside"""
TUNABLE = ("learning_rate", "weight_decay", "warmup", "dropout")
"""settings of the training or the model that a scale applies to"""

OF_MODEL = ("dropout",)
"""those that are settings of the model"""
POSITIVE = {"weight_decay": 0.05, "warmup": 0.05}
"""examples of positive values of settings that may be zero"""

SEED = MOST_SEEDS
"""of every tuning run; the seeds of an evaluation are all below it"""

Point = tuple[float, ...]
"""one value per tuned setting"""


@dataclass(frozen=True)
class Tuning:
    """The settings that every architecture tries."""

    settings: tuple[str, ...]
    """names of the tuned settings; the first is the learning rate in the usual case"""
    defaults: Point
    runs: int
    """per architecture, before widening"""

    def __post_init__(self) -> None:
        if self.runs < FEWEST:
            raise OdeumError(
                f"--tune {self.runs} is too few runs per architecture to find an optimum; use at least {FEWEST}"
            )
        for name, value in zip(self.settings, self.defaults, strict=True):
            if not value > 0:
                raise OdeumError(
                    f"{name}={value:g} cannot be tuned on a log scale; give a positive {name} around which to tune, "
                    f"such as --{'model' if name in OF_MODEL else 'train'}.{name} {POSITIVE.get(name, 0.1)}"
                )

    @property
    def grid(self) -> bool:
        """Whether it is the grid of one setting, which can be widened."""
        return len(self.settings) == 1

    @property
    def cap(self) -> int:
        """Runs per architecture at most."""
        return WIDENED * self.runs if self.grid else self.runs

    @property
    def points(self) -> tuple[Point, ...]:
        """The first points, for a grid in increasing order."""
        if self.grid:
            first = -(self.runs // 2)  # an even number has one more below: a rate that is too high may diverge
            return tuple((_rounded(self.defaults[0] * FACTOR**i),) for i in range(first, first + self.runs))
        from scipy.stats import qmc

        # A scrambled sequence without its first point, which is a corner; 0 is the seed of every study.
        draws = qmc.Sobol(len(self.settings), rng=0).random(1 << (self.runs - 1).bit_length())[: self.runs]
        scales = [[RANGE ** (2 * x - 1) for x in draw] for draw in draws]
        return tuple(tuple(_rounded(d * s) for d, s in zip(self.defaults, scale, strict=True)) for scale in scales)

    def missing(self, values: Mapping[Point, float], higher_is_better: bool) -> list[Point]:
        """The next points given these values: the first points, then one beyond the end at which the best is."""
        lacking = [point for point in self.points if point not in values]
        if lacking or not self.grid:
            return lacking
        end = _end(values, higher_is_better)
        return [] if end is None or len(values) >= self.cap else [(_rounded(end[0][0] * end[1]),)]

    def distance(self, point: Point) -> float:
        """The distance of the point from the defaults on a log scale."""
        return math.hypot(*(math.log(value / default) for value, default in zip(point, self.defaults, strict=True)))

    def choose(self, values: Mapping[Point, float], higher_is_better: bool) -> Choice:
        """The best of what was tried; diverged runs (not finite) are never chosen."""
        finite = {point: value for point, value in values.items() if math.isfinite(value)}
        if not finite:
            tried = ", ".join(f"{point[0]:g}" for point in sorted(values))
            raise OdeumError(
                f"every tuning run diverged ({self.settings[0]} {tried}); give a lower default with "
                f"--train.{self.settings[0]}"
            )
        best = _best(finite, higher_is_better)
        resolved = not self.grid or _end(values, higher_is_better) is None
        return Choice(self.settings, best, finite[best], resolved, dict(sorted(values.items())))


def tried(
    tuning: Tuning, value: Callable[[Point], float | None], higher_is_better: bool
) -> tuple[dict[Point, float], list[Point]]:
    """The values of the points of the rule, and the next points, whose `value` is None so far."""
    values: dict[Point, float] = {}
    lacking: list[Point] = []
    while not lacking and (points := tuning.missing(values, higher_is_better)):
        for point in points:
            known = value(point)
            if known is None:
                lacking.append(point)
            else:
                values[point] = known
    return values, lacking


@dataclass(frozen=True)
class Choice:
    """The result of tuning one architecture."""

    settings: tuple[str, ...]
    point: Point
    value: float
    """on the validation part, with the tuning seed"""
    resolved: bool
    """whether the optimum lies inside of what was tried"""
    curve: Mapping[Point, float]

    @property
    def changes(self) -> dict[str, float]:
        """Setting → chosen value."""
        return dict(zip(self.settings, self.point, strict=True))

    def sensitivity(self) -> tuple[float | None, float | None]:
        """The change of the value at half and at twice the chosen rate (None: not tried, or several settings)."""
        if len(self.settings) != 1:
            return None, None
        half, twice = (self.curve.get((_rounded(self.point[0] * factor),)) for factor in (1 / FACTOR, FACTOR))
        return (
            None if half is None else half - self.value,
            None if twice is None else twice - self.value,
        )


def _best(values: Mapping[Point, float], higher_is_better: bool) -> Point:
    """The best point; of equal values the smallest setting, because it is safer."""
    sign = -1 if higher_is_better else 1
    return min(values, key=lambda point: (sign * values[point], point))


def _end(values: Mapping[Point, float], higher_is_better: bool) -> tuple[Point, float] | None:
    """The end of the grid at which the best value lies, and the factor that leads beyond it (None: it lies inside).

    Beyond a rate that diverged there is nothing to find, so such an end counts as inside.
    """
    finite = {point: value for point, value in values.items() if math.isfinite(value)}
    if not finite:
        low = min(values)
        return low, 1 / FACTOR
    best = _best(finite, higher_is_better)
    if best == min(values):
        return best, 1 / FACTOR
    return (best, FACTOR) if best == max(values) else None


def _rounded(value: float) -> float:
    """Three digits: a rate that a person can type again gives the same run."""
    return float(f"{value:.3g}")


def parse_settings(text: str) -> tuple[str, ...]:
    """The names of `--tune-over`."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in TUNABLE:
            raise OdeumError(
                f"--tune-over '{name}' is not a setting that can be tuned; use some of {', '.join(TUNABLE)}"
            )
    if not names or len({*names}) < len(names):
        raise OdeumError(f"--tune-over '{text}' must name each setting once, such as learning_rate,weight_decay")
    return names


def spell_point(settings: Sequence[str], point: Point) -> str:
    """learning_rate=0.004, or learning_rate=0.004,weight_decay=0.1."""
    return ",".join(f"{name}={value:g}" for name, value in zip(settings, point, strict=True))


@dataclass(frozen=True)
class TuningResults:
    """The tuning of a study and the values of its tuning runs, as recorded in comparison.json."""

    tuning: Tuning
    values: Mapping[str, Mapping[Point, float]] = field(default_factory=dict)
    """on the validation part, by row and point; not finite for a run that diverged"""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """measured cost of the tuning runs by row"""
    metric: str = ""
    """metric of the choice if it is not the one that decides: loss, if the validation part has no BLEU"""

    def choice(self, row: str, higher_is_better: bool) -> Choice | None:
        """The result of tuning a row (None: it has no tuning runs, or all of them diverged)."""
        values = self.values.get(row) or {}
        if not any(math.isfinite(value) for value in values.values()):
            return None
        return self.tuning.choose(values, higher_is_better)

    def with_row(self, row: str, values: Mapping[Point, float], seconds: float) -> TuningResults:
        return replace(self, values={**self.values, row: dict(values)}, seconds={**self.seconds, row: seconds})

    def record(self) -> dict[str, Any]:
        """For comparison.json; the value of a diverged run is null."""
        rows = {}
        for row, values in self.values.items():
            points = [[list(point), x if math.isfinite(x) else None] for point, x in sorted(values.items())]
            rows[row] = {"values": points, "seconds": self.seconds.get(row, 0.0)}
        tuning = self.tuning
        plan = {"settings": list(tuning.settings), "defaults": list(tuning.defaults), "runs": tuning.runs}
        by = {"metric": self.metric} if self.metric else {}
        return {**plan, **by, "seed": SEED, "rows": rows}


def read_tuning(written: Any) -> TuningResults | None:
    """The inverse of `record`; None if there is none or it is damaged."""
    try:
        tuning = Tuning(tuple(map(str, written["settings"])), tuple(map(float, written["defaults"])), written["runs"])
        values = {
            str(row): {tuple(map(float, point)): math.nan if x is None else float(x) for point, x in each["values"]}
            for row, each in written["rows"].items()
        }
        seconds = {str(row): float(each["seconds"]) for row, each in written["rows"].items()}
        metric = str(written.get("metric") or "")
    except (OdeumError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if any(len(point) != len(tuning.settings) for points in values.values() for point in points):
        return None
    return TuningResults(tuning, values, seconds, metric)
