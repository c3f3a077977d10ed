"""Metrics: which direction is better, which values are possible, and which difference matters."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.study.statistics import resolution, summarise


@dataclass(frozen=True)
class Margin:
    """The difference below which two rows are practically equal, declared before the runs."""

    value: float
    """in the metric's own unit (0.01 of an accuracy is one point), or a share of the baseline's mean"""
    relative: bool = False

    def size(self, baseline: float) -> float:
        """The margin in the unit of the metric, for a baseline of this mean."""
        return self.value * abs(baseline) if self.relative else self.value


@dataclass(frozen=True)
class Metric:
    """A metric by name."""

    name: str
    higher_is_better: bool = False
    margin: Margin = Margin(0.01, relative=True)
    """the default of --margin"""
    low: float = -math.inf
    high: float = math.inf
    share: bool = False
    """a fraction of the examples: shown in percent, differences in points"""

    def possible(self, baseline: float) -> tuple[float, float]:
        """The smallest and the largest possible difference to a baseline of this mean."""
        return self.low - baseline, self.high - baseline

    def parse_margin(self, text: str) -> Margin:
        """`0.5` is half a point of accuracy, half a BLEU, 0.5 of a loss; `2%` is two percent of the baseline's mean."""
        parts = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(%|points?)?\s*", str(text))
        if not parts or float(parts[1]) <= 0:
            example = "1 (a point) or 0.5" if self.share else "0.5, or 2% of the baseline's"
            raise OdeumError(f"the margin '{text}' of {self.name} must be a positive number such as {example}")
        if parts[2] == "%" and self.share:
            raise OdeumError(f"a margin of {self.name} must be in points, not in percent: --margin {parts[1]}")
        if parts[2] and parts[2] != "%" and not self.share:
            raise OdeumError(f"{self.name} is not measured in points; use --margin {parts[1]} or --margin {parts[1]}%")
        if self.share and float(parts[1]) >= 100 * (self.high - self.low):
            raise OdeumError(
                f"the margin '{text}' of {self.name} is in points and no difference is larger, so all results would be "
                "equal; use a number such as 1 (a point) or 0.5"
            )
        scale = 100.0 if self.share or parts[2] == "%" else 1.0
        return Margin(float(parts[1]) / scale, parts[2] == "%")

    def spell_margin(self, margin: Margin) -> str:
        """`1 point`, `1 %`, `0.5`: the inverse of `parse_margin`, for people."""
        if margin.relative:
            return f"{100 * margin.value:g} %"
        return (
            f"{100 * margin.value:g} point{'' if margin.value == 0.01 else 's'}" if self.share else f"{margin.value:g}"
        )


POINT = Margin(0.01)
METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", True, POINT, 0.0, 1.0, share=True),
        Metric("top5", True, POINT, 0.0, 1.0, share=True),
        Metric("macro_f1", True, POINT, 0.0, 1.0, share=True),
        Metric("balanced_accuracy", True, POINT, 0.0, 1.0, share=True),
        Metric("majority_accuracy", True, POINT, 0.0, 1.0, share=True),
        Metric("bleu", True, Margin(0.5), 0.0, 100.0),
        Metric("chrf", True, Margin(0.5), 0.0, 100.0),
        Metric("r2", True, POINT, high=1.0),
        Metric("loss", margin=Margin(0.01), low=0.0),
        Metric("plain_loss", margin=Margin(0.01), low=0.0),
        Metric("perplexity", low=1.0),
        Metric("word_perplexity", low=1.0),
        Metric("bits_per_byte", margin=Margin(0.005), low=0.0),
        Metric("rmse", low=0.0),
        Metric("mae", low=0.0),
    )
}
"""metrics of the built-in tasks; any other has a margin of 1 % and no bounds. 1 % of a perplexity is 0.01 nat"""
CONSTANT = ("majority_accuracy", "rmse_of_mean")
"""numbers of the data alone, the same for every model"""
AUTO = "auto"
"""of --judge: the task's metric or the loss, whichever separates the tuning runs better"""


def metric_named(name: str, higher_is_better: bool | None = None) -> Metric:
    """The metric of that name; the direction of an unknown one is `higher_is_better`."""
    return METRICS.get(name) or Metric(name, bool(higher_is_better))


def judge_named(name: str, metric: Metric, reported: Collection[str]) -> Metric:
    """The metric that `--judge` names: that of the task (`metric`), or another one that its evaluation reports."""
    if name in ("metric", metric.name):
        return metric
    known = [each for each in reported if each not in CONSTANT and each in METRICS]
    return METRICS[choose(name, ["metric", *dict.fromkeys(["loss", metric.name, *known]), AUTO], "judge")]


def signal_over_noise(values: Mapping[str, float], late: Sequence[Sequence[float]]) -> float | None:
    """How well a metric separates rows: the standard deviation of their values over that of late evaluations.

    `late` has the last evaluations of each run, whose deviation from a straight line is the noise; it is taken to be
    at least half of the step in which they lie. None where rows or evaluations are too few.
    """
    rows = [x for x in values.values() if math.isfinite(x)]
    runs = [run for run in late if len(run) > 2 and all(isinstance(x, int | float) and math.isfinite(x) for x in run)]
    between = summarise(rows)
    if between is None or between.spread is None or not runs:
        return None
    squares = math.fsum(_around_a_line(run) for run in runs)
    noise = math.sqrt(squares / sum(len(run) - 2 for run in runs))
    noise = max(noise, 0.5 * resolution(x for run in runs for x in run))
    return between.spread / noise if noise else None


def _around_a_line(values: Sequence[float]) -> float:
    """Sum of squares around the straight line through values at equal distances."""
    centre, mean = (len(values) - 1) / 2, math.fsum(values) / len(values)
    square = math.fsum((i - centre) ** 2 for i in range(len(values)))
    slope = math.fsum((i - centre) * (x - mean) for i, x in enumerate(values)) / square
    return math.fsum((x - mean - slope * (i - centre)) ** 2 for i, x in enumerate(values))


def read_margin(written: Any, metric: Metric) -> Margin:
    """The margin in a comparison.json, or the default of the metric if there is none."""
    if not isinstance(written, dict) or not isinstance(written.get("value"), int | float) or written["value"] <= 0:
        return metric.margin
    return Margin(float(written["value"]), bool(written.get("relative")))
