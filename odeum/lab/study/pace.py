"""The measured cost per training step of a row, recorded in comparison.json before the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from odeum.lab.study.statistics import Ratio


@dataclass(frozen=True)
class Pace:
    """Seconds per step and their ratio to the baseline, measured interleaved (odeum/lab/study/measuring.py)."""

    seconds: float
    """seconds per step: those of the baseline × ratio"""
    ratio: float
    """median over the turns of (this architecture / the baseline); 1 where it is a tie"""
    low: float
    high: float
    """quartiles of the ratio over the turns; where they lie on both sides of 1 the machine's noise is larger than the
    difference, and it is a tie"""
    memory: int = 0
    """bytes of a process that trains it"""

    def steps_in(self, budget: float) -> int:
        """The number of steps in a budget of seconds."""
        return max(1, int(budget / self.seconds))

    def relative_to(self, anchor: Pace) -> Pace:
        """This cost, measured relative to the anchor, converted to the reference of the anchor."""
        return replace(
            self,
            seconds=anchor.seconds * self.ratio,
            ratio=anchor.ratio * self.ratio,
            low=anchor.low * self.low,
            high=anchor.high * self.high,
        )

    def ratio_to(self, other: Pace) -> Ratio:
        """Ratio to another cost; the range is as wide as the two ranges allow, and always holds the ratio itself.

        Costs of two sessions without a common architecture have different references: then the range alone may miss it.
        """
        if self is other:
            return Ratio(1.0, 1.0, 1.0)
        low, high = self.low / other.high, self.high / other.low
        middle = 1.0 if low <= 1.0 <= high else self.seconds / other.seconds
        return Ratio(middle, min(low, middle), max(high, middle))

    def record(self) -> dict[str, float]:
        """For comparison.json."""
        return asdict(self)


def read_paces(written: Any) -> dict[str, Pace]:
    """The costs in a comparison.json, by row; damaged entries are left out."""
    entries = written.items() if isinstance(written, Mapping) else ()
    return {str(name): pace for name, content in entries if (pace := _read(content))}


def _read(content: Any) -> Pace | None:
    if not isinstance(content, Mapping):
        return None
    numbers = {field.name: content.get(field.name, 0) for field in fields(Pace)}
    if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers.values()):
        return None
    known = Pace(**numbers)
    return known if min(known.seconds, known.ratio, known.low, known.high) > 0 else None
