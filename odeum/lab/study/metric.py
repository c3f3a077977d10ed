"""Metrics: which direction is better, which values are possible, and which difference matters."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from odeum.errors import OdeumError


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
            raise OdeumError(f"the margin '{text}' of {self.name} should be a positive number such as {example}")
        if parts[2] == "%" and self.share:
            raise OdeumError(f"a margin of {self.name} is said in points, not in percent: --margin {parts[1]}")
        if parts[2] and parts[2] != "%" and not self.share:
            raise OdeumError(f"{self.name} is not counted in points: say --margin {parts[1]} or --margin {parts[1]}%")
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
        Metric("r2", True, POINT, high=1.0),
        Metric("loss", low=0.0),
        Metric("perplexity", low=1.0),
        Metric("rmse", low=0.0),
        Metric("mae", low=0.0),
    )
}
"""metrics of the built-in tasks; any other has a margin of one percent and no bounds"""


def metric_named(name: str, higher_is_better: bool | None = None) -> Metric:
    """The metric of that name; the direction of an unknown one is `higher_is_better`."""
    return METRICS.get(name) or Metric(name, bool(higher_is_better))


def read_margin(written: Any, metric: Metric) -> Margin:
    """The margin in a comparison.json, or the default of the metric if there is none."""
    if not isinstance(written, dict) or not isinstance(written.get("value"), int | float) or written["value"] <= 0:
        return metric.margin
    return Margin(float(written["value"]), bool(written.get("relative")))
