"""Numbers and verdicts as a person reads them.

Names stand between backticks, which Markdown shows as code, the page as bold, and the terminal drops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from odeum.lab.study.findings import Row
from odeum.lab.study.judge import MANY
from odeum.lab.study.metric import metric_named
from odeum.lab.study.statistics import Summary

NONE = "–"
MARGIN_STEPS = 5
"""of the last digit inside a margin: a reader must see on which side of it an interval ends"""


@dataclass(frozen=True)
class Scale:
    """The format of a metric, the same in every row: 0.9731 -> 97.3 %."""

    factor: float
    decimals: int
    unit: str
    points: str
    """unit of a difference"""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Scale:
        """As many decimals as the smallest spread needs for one digit, and the margin for five steps inside it, between
        one and three, but three digits at least of the smallest mean: an error may be measured in millionths."""
        scores = [s for row in rows for s in (row.test, row.valid) if s]
        share = bool(rows) and metric_named(rows[0].metric).share and all(abs(s.mean) <= 1 for s in scores)
        factor = 100.0 if share else 1.0
        spreads = [s.spread * factor for s in scores if s.spread]
        decimals = max((-math.floor(math.log10(x)) for x in spreads), default=2)
        margins = (row.margin * factor for row in rows if row.margin)
        decimals = max([decimals, *(math.ceil(-math.log10(x / MARGIN_STEPS) - 1e-9) for x in margins)])
        decimals = min(max(decimals, 1), 3)
        least = min((abs(s.mean) * factor for s in scores if s.mean and math.isfinite(s.mean)), default=1.0)
        decimals = max(decimals, min(2 - math.floor(math.log10(least)), 12)) if least < 0.1 and not share else decimals
        return cls(factor, decimals, " %" if share else "", " points" if share else "")

    def number(self, value: float, signed: bool = False) -> str:
        text = f"{value * self.factor:{'+' if signed else ''}.{self.decimals}f}"
        return text.replace("-", "−") if float(text.replace("−", "-")) else text.lstrip("+-−")

    def summary(self, summary: Summary | None) -> str:
        if summary is None:
            return NONE
        spread = "" if summary.spread is None else f" ± {self.number(summary.spread)}"
        return self.number(summary.mean) + spread

    def value(self, summary: Summary) -> str:
        return self.number(summary.mean) + self.unit

    def difference(self, row: Row) -> str:
        """+0.8 [+0.1, +1.5]."""
        difference = row.difference
        if difference is None or not math.isfinite(difference.mean):
            return NONE
        low, high = row.ends or (None, None)
        return self.interval(difference.mean, low, high)

    def interval(self, mean: float, low: float | None, high: float | None) -> str:
        text = self.number(mean, signed=True)
        return text if low is None or high is None else f"{text} [{self.number(low, True)}, {self.number(high, True)}]"


def verdict(row: Row) -> str:
    """The word with its number: better by more than 1 point, undecided: about 9 more seeds."""
    answer = row.answer
    if answer is None:
        return row.verdict
    word = answer.word.replace("the margin", row.margin_text)
    if answer.word == "undecided":
        return f"undecided: {more(row)}"
    return word if answer.look is None else f"{word} ({answer.look} seeds)"


def more(row: Row) -> str:
    """The number of seeds that an undecided row still needs."""
    seeds = row.answer.more if row.answer else None
    return f"over {MANY} more seeds" if seeds is None else f"about {seeds} more seed{'' if seeds == 1 else 's'}"


def count(value: float | None) -> str:
    """5_544_100 -> 5.54 M; three digits are enough to compare by eye."""
    if value is None:
        return NONE
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {letter}"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.3g}"


def memory(value: float | None) -> str:
    return NONE if value is None else f"{count(value)}B"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def step_time(row: Row) -> str:
    """3.38× [3.31, 3.45] relative to the baseline; a tie is 1.00× with the range of the noise."""
    step = row.step
    if step is None or step.low == step.high:
        return ratio(step.middle if step else None)
    return f"{ratio(step.middle)} [{step.low:.2f}, {step.high:.2f}]"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def percent(level: float) -> str:
    return f"{100 * level:.4g} %"


def listing(names: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else "".join(quoted)


def interval_note(rows: Sequence[Row], error: float) -> str:
    """The footnote on how intervals are computed; `error` is that of all of them together."""
    known = [row.difference for row in rows if row.difference and row.judged]
    note = "Differences to the baseline are paired by seed; in brackets a Student t interval"
    if any(row.ends and row.difference and row.ends != (row.difference.low, row.difference.high) for row in rows):
        note += ", clipped to possible values,"
    if len(known) < 2:
        return f"{note} at {percent(known[0].level if known else 1 - error)}."
    levels = sorted({each.level for each in known})
    level = percent(levels[0]) if len(levels) == 1 else f"{percent(levels[0])} to {percent(levels[-1])}"
    lent = any(each.degrees > each.n - 1 for each in known)
    return f"{note} at {level} each, so that all {len(known)} hold together at {percent(1 - error)} (Bonferroni)" + (
        "; variance is partly pooled across rows." if lent else "."
    )
