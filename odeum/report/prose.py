"""Numbers as a person reads them, and the sentences that answer the question: which layer is worth it here?

Names stand between backticks, which Markdown shows as code, the page as bold, and the terminal drops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from odeum.compare.statistics import Summary, level_for
from odeum.report.row import Row

NONE = "–"
NOTICEABLE = 0.03
"""Costs within 3 % of the baseline's are called about the same."""


@dataclass(frozen=True)
class Scale:
    """How a metric is written, the same in every row: 0.9731 -> 97.3 %."""

    factor: float
    decimals: int
    unit: str
    points: str
    """unit of a difference"""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Scale:
        """As many decimals as the smallest spread needs for one digit, between one and three, but three digits at least
        of the smallest mean: an error may be measured in millionths."""
        scores = [s for row in rows for s in (row.test, row.valid) if s]
        share = bool(rows) and rows[0].metric in ("accuracy", "top5") and all(abs(s.mean) <= 1 for s in scores)
        factor = 100.0 if share else 1.0
        smallest = min((s.spread * factor for s in scores if s.spread), default=0.0)
        decimals = min(max(-math.floor(math.log10(smallest)), 1), 3) if smallest > 0 else 2
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
        found = row.difference
        if found is None or not math.isfinite(found.mean):
            return NONE
        text = self.number(found.mean, signed=True)
        if found.low is None or found.high is None:
            return text
        return f"{text} [{self.number(found.low, True)}, {self.number(found.high, True)}]"


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


def headline(rows: Sequence[Row], data: str) -> str:
    """One or two sentences that answer the question, no stronger than the verdicts allow."""
    base = next(row for row in rows if row.is_baseline)
    done = [row for row in rows if row.score]
    others = [row for row in done if not row.is_baseline]
    scale = Scale.of(rows)
    if not done and any(row.diverged for row in rows):
        return f"Every run on {data} diverged, so nothing can be said; a smaller learning rate may help."
    if not done:
        return f"No run on {data} has finished yet, so nothing can be said."
    if not base.score:
        return f"The baseline `{base.architecture}` has no finished run on {data}, so there is nothing to compare with."
    if not others:
        told = f"{scale.value(base.score)} {base.metric}"
        return f"Only `{base.architecture}` has finished on {data}, with {told}: nothing to compare it with yet."
    judged = [row for row in others if row.verdict in ("better", "worse", "no difference shown")]
    if not judged:
        return _too_few(done, base, data, scale)
    better = sorted((row for row in judged if row.verdict == "better"), key=_gain, reverse=True)
    if better:
        return _worth_it(better[0], base, data, scale)
    equal = [row for row in judged if row.verdict == "no difference shown"]
    if not equal:
        stay = f"Stay with `{base.architecture}` on {data}:"
        if left := [row.architecture for row in rows if row not in judged and not row.is_baseline]:
            worse = f"{listing([row.architecture for row in judged])} {'is' if len(judged) == 1 else 'are'} worse"
            return f"{stay} {worse}. Of {listing(left)} nothing can be said yet."
        return f"{stay} {'the' if len(judged) == 1 else 'every'} other architecture is worse."
    return _cheapest(equal, judged, base, data, scale)


def groups(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Verdict -> names, in the order in which a reader asks for them; only those that occur."""
    order = ["better", "no difference shown", "worse"]
    found = [row.verdict for row in rows if not row.is_baseline]
    kinds = [*order, *dict.fromkeys(v for v in found if v not in order)]
    named = [
        (kind, [row.architecture for row in rows if row.verdict == kind and not row.is_baseline]) for kind in kinds
    ]
    return [(kind, names) for kind, names in named if names]


def _gain(row: Row) -> float:
    """The difference in the good direction."""
    mean = row.difference.mean if row.difference else 0.0
    return mean if row.higher_is_better else -mean


def _too_few(done: Sequence[Row], base: Row, data: str, scale: Scale) -> str:
    if any(row.diverged for row in done):
        return f"No verdict on {data}: runs diverged (their {base.metric} is not a finite number)."
    if not any(row.difference for row in done):
        return f"No verdict on {data}: no architecture shares a seed with the baseline `{base.architecture}`."
    key = (lambda row: row.score.mean) if base.higher_is_better else (lambda row: -row.score.mean)
    best = max(done, key=key)
    told = f"{best.split} {best.metric} {scale.value(best.score)}" if best.score else ""
    ties = [row.architecture for row in done if row.score and best.score and row.score.mean == best.score.mean]
    if len(ties) > 1:
        return (
            f"One seed cannot tell which layer is worth it on {data}. {listing(ties)} came out alike ({told}); three "
            "seeds or more allow a verdict."
        )
    versus = f" against {scale.value(base.score)} of `{base.architecture}`" if best is not base and base.score else ""
    return (
        f"One seed cannot tell which layer is worth it on {data}. `{best.architecture}` came out ahead "
        f"({told}{versus}); three seeds or more allow a verdict."
    )


def _worth_it(best: Row, base: Row, data: str, scale: Scale) -> str:
    found = best.difference
    assert found is not None and found.low is not None and found.high is not None and best.score is not None
    ends = sorted((abs(found.low), abs(found.high)))
    way = "higher" if found.mean > 0 else "lower"
    return (
        f"`{best.architecture}` is worth it on {data}: its {best.split} {best.metric} of {scale.value(best.score)} is "
        f"{scale.number(abs(found.mean))}{scale.points} {way} than that of `{base.architecture}` (interval "
        f"{scale.number(ends[0])} to {scale.number(ends[1])}), {_cost(best, base)}."
    )


def _cheapest(equal: Sequence[Row], judged: Sequence[Row], base: Row, data: str, scale: Scale) -> str:
    start = f"Nothing was shown to be better than `{base.architecture}` on {data}"
    for name, cost in (("step time", _time), ("parameters", _size)):
        saving = [(value, row) for row in equal if (value := cost(row, base)) is not None and value < 1 - NOTICEABLE]
        if saving:
            value, row = min(saving, key=lambda pair: pair[0])
            return f"{start}, but `{row.architecture}` needs {ratio(value)} its {name} and {_bound(row, scale)}."
    costs = [cost(row, base) or 1.0 for row in judged for cost in (_time, _size)]
    rest = "what was cheaper is worse" if min(costs) < 1 - NOTICEABLE else "nothing was cheaper"
    return f"{start}, and {rest}: stay with `{base.architecture}`."


def _bound(row: Row, scale: Scale) -> str:
    """What the interval still allows: the honest reading of `no difference shown`."""
    found = row.difference
    end = None if found is None else found.low if row.higher_is_better else found.high
    if end is None:
        return "no difference was shown"
    way = "lower" if row.higher_is_better else "higher"
    return f"shows no difference in {row.metric} (at worst {scale.number(abs(end))}{scale.points} {way})"


def _cost(row: Row, base: Row) -> str:
    parts = [
        f"{ratio(value)} {name}"
        for name, value in (("the time a step", _time(row, base)), ("the parameters", _size(row, base)))
        if value is not None and abs(value - 1) > NOTICEABLE
    ]
    return "at " + " and ".join(parts) if parts else "at about the same time a step and parameters"


def _time(row: Row, base: Row) -> float | None:
    return row.step_ratio


def _size(row: Row, base: Row) -> float | None:
    return row.parameters / base.parameters if row.parameters and base.parameters else None


def interval_note(rows: Sequence[Row]) -> str:
    """How the intervals are made: a footnote wherever they are shown."""
    compared = sum(row.judged for row in rows)
    note = "Differences to the baseline are paired by seed; in brackets a Student t interval"
    if compared < 2:
        return f"{note} at {percent(level_for(1))}."
    each = next(row.difference.level for row in rows if row.difference and row.judged)
    return f"{note} at {percent(each)} each, so that all {compared} hold together at 95 % (Bonferroni)."
