"""The sentences that answer the question: which layer is worth it here? No stronger than the verdicts allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

from odeum.lab.study.prose import Scale, listing, more, ratio, verdict
from odeum.lab.study.row import Row
from odeum.lab.study.verdicts import BETTER, VERDICTS, WORSE

NOTICEABLE = 0.03
"""numbers of parameters within 3 % are called about the same"""
SLOWER = 0.1
"""step times within 10 %, or whose order is not the same in every seed, are a tie: machines are busy at times"""


def headline(rows: Sequence[Row], data: str) -> str:
    """One or two sentences: the decision and its price."""
    done = [row for row in rows if row.score]
    scale = Scale.of(rows)
    if not done and any(row.diverged for row in rows):
        return f"Every run on {data} diverged, so nothing can be said; a smaller learning rate may help."
    if not done:
        return f"No run on {data} has finished yet, so nothing can be said."
    base = next((row for row in rows if row.is_baseline), None)
    if base is None:
        return _ranking(rows, data, scale)
    others = [row for row in done if not row.is_baseline]
    if not base.score:
        return f"The baseline `{base.architecture}` has no finished run on {data}, so there is nothing to compare with."
    if not others:
        told = f"{scale.value(base.score)} {base.metric}"
        return f"Only `{base.architecture}` has finished on {data}, with {told}: nothing to compare it with yet."
    judged = [row for row in others if row.verdict in VERDICTS]
    if not judged:
        return _too_few(done, base, data, scale)
    better = sorted((row for row in judged if row.verdict in BETTER), key=_rank_of_gain)
    if better:
        return _worth_it(better[0], base, data, scale) + _behind(judged)
    if equal := [row for row in judged if row.verdict == "practically equal"]:
        return _equal(equal, judged, base, data) + _behind(judged)
    if still := [row for row in judged if row.verdict == "open"]:
        return _open(still, base, data, scale) + _behind(judged)
    stay = f"Stay with `{base.architecture}` on {data}:"
    if left := [row.architecture for row in rows if row not in judged and not row.is_baseline]:
        worse = f"{listing([row.architecture for row in judged])} {'is' if len(judged) == 1 else 'are'} worse"
        return f"{stay} {worse}. Of {listing(left)} nothing can be said yet."
    return f"{stay} {'the' if len(judged) == 1 else 'every'} other architecture is worse."


def groups(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Verdict -> names, in the order in which a reader asks for them; only those that occur."""
    compared = [row for row in rows if not row.is_baseline]
    found = {row.verdict: verdict(row) if row.verdict != "open" else "open" for row in compared}
    kinds = [*(word for word in VERDICTS if word in found), *(word for word in found if word not in VERDICTS)]
    told = {kind: found[kind].partition(" (")[0] for kind in kinds}
    return [(told[kind], [row.architecture for row in compared if row.verdict == kind]) for kind in kinds]


def _rank_of_gain(row: Row) -> tuple[bool, float]:
    """The surest word first, then the greatest difference in the good direction."""
    mean = row.difference.mean if row.difference else 0.0
    return row.verdict != BETTER[0], -mean if row.higher_is_better else mean


def _behind(judged: Sequence[Row]) -> str:
    """Who is out of the question, and after how many seeds that was clear."""
    told: dict[str, list[str]] = {}
    for row in judged:
        if row.verdict in WORSE:
            told.setdefault(verdict(row).replace("(", "(after "), []).append(row.architecture)
    return "".join(f" {listing(names)} {'is' if len(names) == 1 else 'are'} {word}." for word, names in told.items())


def _ranking(rows: Sequence[Row], data: str, scale: Scale) -> str:
    ranked = [row for row in rows if row.group]
    if not ranked:
        return f"No ranking on {data} yet: two seeds or more of two architectures allow one."
    best = ranked[0]
    assert best.score is not None
    leaders = [row for row in ranked if set(row.group) & set(best.group)]
    behind = [row.architecture for row in ranked if row not in leaders]
    told = f"{best.split} {best.metric} {scale.value(best.score)}"
    left = [row.architecture for row in rows if not row.group]
    unsaid = f" Of {listing(left)} nothing can be said yet." if left else ""
    if len(leaders) == 1:
        others = listing(behind) if left else "all others"
        return f"`{best.architecture}` leads on {data} ({told}), ahead of {others}.{unsaid}"
    tail = (
        f"; {listing(behind)} {'is' if len(behind) == 1 else 'are'} worse than `{best.architecture}`" if behind else ""
    )
    names = listing([row.architecture for row in leaders if row is not best])
    return f"`{best.architecture}` leads on {data} ({told}), but cannot be told apart from {names}{tail}.{unsaid}"


def _too_few(done: Sequence[Row], base: Row, data: str, scale: Scale) -> str:
    if any(row.diverged for row in done):
        return f"No verdict on {data}: runs diverged (their {base.metric} is not a finite number)."
    if any(row.verdict.startswith("cut off") for row in done):
        return f"No verdict on {data}: the clock cut runs off; a longer --train.limit continues them."
    if not any(row.difference for row in done):
        return f"No verdict on {data}: no architecture shares a seed with the baseline `{base.architecture}`."
    if any(row.verdict.startswith("same") for row in done):
        return f"No verdict on {data}: the difference to `{base.architecture}` is the same in every seed."
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
    assert found is not None and best.ends is not None and best.score is not None
    ends = sorted(map(abs, best.ends))
    way = "higher" if found.mean > 0 else "lower"
    word = "worth it" if best.verdict == BETTER[0] else "better"
    small = "" if best.verdict == BETTER[0] else f", perhaps by less than the margin of {best.margin_text}"
    return (
        f"`{best.architecture}` is {word} on {data}{small}: its {best.split} {best.metric} of "
        f"{scale.value(best.score)} is {scale.number(abs(found.mean))}{scale.points} {way} than that of "
        f"`{base.architecture}` (interval {scale.number(ends[0])} to {scale.number(ends[1])}), {_cost(best, base)}."
    )


def _equal(equal: Sequence[Row], judged: Sequence[Row], base: Row, data: str) -> str:
    """Equal quality: then the price decides, if it differs."""
    for name, cost in (("step time", _time), ("parameters", _size)):
        if saving := [(value, row) for row in equal if (value := cost(row, base)) is not None and value < 1]:
            value, row = min(saving, key=lambda pair: pair[0])
            return (
                f"`{row.architecture}` is practically equal to `{base.architecture}` on {data} (within "
                f"{row.margin_text}) and needs {ratio(value)} its {name}."
            )
    names = [row.architecture for row in equal]
    still = [row.architecture for row in judged if row.verdict == "open"]
    tail = f" Of {listing(still)} more seeds would tell." if still else ""
    are = "is" if len(names) == 1 else "are"
    return (
        f"Stay with `{base.architecture}` on {data}: {listing(names)} {are} practically equal to it (within "
        f"{equal[0].margin_text}) and no cheaper.{tail}"
    )


def _open(still: Sequence[Row], base: Row, data: str, scale: Scale) -> str:
    """Nothing is decided in favour of another: what is known, and what it would take."""
    start = f"Nothing was shown to be better than `{base.architecture}` on {data}"
    for name, cost in (("step time", _time), ("parameters", _size)):
        if saving := [(value, row) for row in still if (value := cost(row, base)) is not None and value < 1]:
            value, row = min(saving, key=lambda pair: pair[0])
            return (
                f"{start} yet. `{row.architecture}` needs {ratio(value)} its {name}, but whether it is as good is "
                f"open{_bound(row, scale)}: {more(row)} would decide."
            )
    nearest = min(still, key=lambda row: (row.answer.more if row.answer else None) or math.inf)
    rest = f" ({len(still)} are open)" if len(still) > 1 else ""
    return f"{start} yet. Of `{nearest.architecture}` {more(nearest)} would decide{rest}."


def _bound(row: Row, scale: Scale) -> str:
    """What the interval still allows."""
    if row.ends is None:
        return ""
    end, way = (row.ends[0], "lower") if row.higher_is_better else (row.ends[1], "higher")
    return f" (at worst {scale.number(abs(end))}{scale.points} {way})"


def _cost(row: Row, base: Row) -> str:
    known = (("the time a step", _time(row, base)), ("the parameters", _size(row, base)))
    differing = [f"{ratio(value)} {name}" for name, value in known if value is not None]
    return "at " + " and ".join(differing) if differing else "at about the same time a step and parameters"


def _time(row: Row, base: Row) -> float | None:
    """The ratio of step times; none where it is a tie."""
    return row.step.middle if row.step and row.step.tells(SLOWER) else None


def _size(row: Row, base: Row) -> float | None:
    value = row.parameters / base.parameters if row.parameters and base.parameters else 1.0
    return value if abs(value - 1) > NOTICEABLE else None
