"""The word for a difference, read off its interval and a margin that was said before the run.

Every word follows from one interval, so as long as the interval holds the truth no word is wrong:

    better by more than the margin    the whole interval lies above +δ
    practically equal                 the whole interval lies within ±δ, on whichever side of zero
    better                            the whole interval lies above zero
    open                              none of these, nor their mirror images: more seeds would decide
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from odeum.lab.study.intervals import Difference
from odeum.lab.study.statistics import t_quantile

Word = Literal[
    "better by more than the margin",
    "better",
    "practically equal",
    "worse",
    "worse by more than the margin",
    "open",
    "one seed: no verdict",
    "diverged: no verdict",
    "cut off: no verdict",
    "same in every seed: no verdict",
]
BETTER: tuple[Word, ...] = ("better by more than the margin", "better")
WORSE: tuple[Word, ...] = ("worse by more than the margin", "worse")
VERDICTS: tuple[Word, ...] = (*BETTER, "practically equal", "open", "worse", "worse by more than the margin")
"""what an interval can say, in the order in which a reader asks for it"""

MANY = 1000
"""more seeds than this are not estimated"""
USUALLY = 0.84
"""standard errors of room for the mean to move: four in five, were the spread known (docs/statistics.md: simulated)"""


@dataclass(frozen=True)
class Verdict:
    """What can be said of a pair."""

    word: Word
    more: int | None = None
    """of an open one: about so many more seeds would decide (none: not estimated, or more than a thousand)"""
    look: int | None = None
    """seeds at the look that decided, where there were several looks"""

    @property
    def open(self) -> bool:
        """Whether more seeds could change it."""
        return self.word in ("open", "one seed: no verdict", "same in every seed: no verdict")


def judge(found: Difference, margin: float, higher_is_better: bool, look: int | None = None) -> Verdict:
    """The verdict on a difference; `margin` is in its unit."""
    if found.low is None or found.high is None:
        by_problem: dict[str | None, Word] = {
            "one seed": "one seed: no verdict",
            "diverged": "diverged: no verdict",
            "same in every seed": "same in every seed: no verdict",
        }
        return Verdict(by_problem[found.problem], look=look if found.problem == "diverged" else None)
    low, high = (found.low, found.high) if higher_is_better else (-found.high, -found.low)
    word = _word(low, high, margin)
    return Verdict("open", more_seeds(found, margin)) if word is None else Verdict(word, look=look)


def _word(low: float, high: float, margin: float) -> Word | None:
    """Ends of an interval in the good direction -> a word, or none."""
    if low > margin:
        return "better by more than the margin"
    if high < -margin:
        return "worse by more than the margin"
    if -margin < low and high < margin:
        return "practically equal"
    return "better" if low > 0 else "worse" if high < 0 else None


def more_seeds(found: Difference, margin: float) -> int | None:
    """How many more seeds would decide, if difference and spread stay about what they are.

    An interval decides as soon as it leaves out zero or lies within the margin, so it need never be narrower than the
    margin itself. The mean of more seeds will be another one; it is given room for that. Where splits of the data
    overlap no number of seeds may be enough.
    """
    assert found.spread is not None
    room = max(abs(found.mean), margin - abs(found.mean))
    share = found.degrees / (found.n - 1)
    for n in range(found.n + 1, found.n + 1 + MANY):
        quantile = t_quantile((1 + found.level) / 2, share * (n - 1))
        if (quantile + USUALLY) * found.spread * math.sqrt(1 / n + found.overlap) <= room:
            return n - found.n
    return None
