"""The judge: verdicts on pairs of rows, read off intervals and a margin that was declared before the runs.

Every word follows from one interval, so as long as the interval holds the truth no word is wrong:

    better by more than the margin    the whole interval lies above +δ
    practically equal                 the whole interval lies within ±δ, on whichever side of zero
    better                            the whole interval lies above zero
    undecided                         none of these, nor their mirror images: more seeds would decide
    stopped, not shown better         undecided, and by the last look it would hardly be shown better or equal

`--seeds auto` looks at 3, 6 and 12 seeds, `auto:N` goes on doubling up to N. By a look at n of N seeds n / N of the
family's error has been spent, so the parts of all looks add up to it whatever the results are, and rows that are
decided may stop early. Seeds that are added to a fixed number were not planned: each time, the error is halved, so the
reports before and after are all right with 1 − 2 `ERROR` however often this happens.

`judge` is a function of the results alone: a comparison that continues, and a report written years later, look at what
was there at each look and reach the same verdicts. A row that can hardly be shown better or practically equal by the
last look is stopped at an earlier one (`futile`): no word follows from that, so it costs power and no error. A paper's
claims are judged by the same function; agrees, disagrees and not resolved are read off its decisions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from odeum.errors import OdeumError
from odeum.lab.study.metric import Margin
from odeum.lab.study.statistics import (
    ERROR,
    Difference,
    Name,
    Ratio,
    Scores,
    differences,
    is_measurement,
    summarise,
    t_quantile,
)

FIRST = 3
MOST_SEEDS = 10_000  # each is a run, and all are planned before the first begins
LIMIT = 12
Word = Literal[
    "better by more than the margin",
    "better",
    "practically equal",
    "worse",
    "worse by more than the margin",
    "undecided",
    "stopped, not shown better",
    "one seed: no verdict",
    "diverged: no verdict",
    "cut off: no verdict",
    "same in every seed: no verdict",
]
BETTER: tuple[Word, ...] = ("better by more than the margin", "better")
WORSE: tuple[Word, ...] = ("worse by more than the margin", "worse")
STOPPED: Word = "stopped, not shown better"
VERDICTS: tuple[Word, ...] = (*BETTER, "practically equal", "undecided", STOPPED, *reversed(WORSE))
"""verdicts that follow from an interval, in the order in which they are shown"""
FUTILE = 0.1
"""chance of a favourable word by the last look below which a row is stopped"""

MANY = 1000
"""more seeds than this are not estimated"""
USUALLY = 0.84
"""standard errors by which the mean may move: enough four times in five if the spread is known (docs/statistics.md)"""


class Look(NamedTuple):
    """A planned time of judging."""

    seeds: int
    error: float
    """the share of the family's error that it spends"""


@dataclass(frozen=True)
class Seeds:
    """The planned number of seeds per row, and the looks on the way to it."""

    limit: int
    auto: bool = False

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise OdeumError(f"a comparison needs at least one seed, not {self.limit}")
        if self.limit > MOST_SEEDS:
            raise OdeumError(f"a comparison takes at most {MOST_SEEDS:,} seeds, not {self.limit:,}")
        if self.auto and self.limit < FIRST:
            raise OdeumError(f"--seeds auto begins with {FIRST} seeds, so its limit cannot be {self.limit}")

    @classmethod
    def parse(cls, text: str | int) -> Seeds:
        """`3`, `auto` or `auto:24`."""
        parts = re.fullmatch(r"\s*(?:(-?\d+)|auto(?::(\d+))?)\s*", str(text))
        if not parts:
            raise OdeumError(f"the number of seeds '{text}' must be a whole number, auto, or auto:{2 * LIMIT}")
        return cls(int(parts[1])) if parts[1] else cls(int(parts[2] or LIMIT), auto=True)

    def __str__(self) -> str:
        return f"auto:{self.limit}" if self.auto else str(self.limit)

    @property
    def looks(self) -> tuple[Look, ...]:
        """The planned looks with the error of each."""
        if not self.auto:
            return (Look(self.limit, ERROR),)
        at = [0, FIRST]
        while 4 * at[-1] <= self.limit:
            at.append(2 * at[-1])
        if at[-1] < self.limit:
            at.append(self.limit)
        return tuple(Look(n, ERROR * (n - before) / self.limit) for before, n in pairwise(at))


@dataclass(frozen=True)
class Verdict:
    """The verdict on a pair."""

    word: Word
    more: int | None = None
    """seeds that would decide an open pair, about (default: not estimated, or more than a thousand)"""
    look: int | None = None
    """seeds at the look that decided, if there were several looks"""

    @property
    def open(self) -> bool:
        """Whether more seeds could change the verdict."""
        return self.word in ("undecided", "one seed: no verdict", "same in every seed: no verdict")


def verdict_of(
    difference: Difference, margin: float, higher_is_better: bool, look: int | None = None, next_error: float = 1.0
) -> Verdict:
    """The verdict on a difference; `margin` is in its unit, and `next_error` is as in `more_seeds`."""
    if difference.low is None or difference.high is None:
        by_problem: dict[str | None, Word] = {
            "one seed": "one seed: no verdict",
            "diverged": "diverged: no verdict",
            "same in every seed": "same in every seed: no verdict",
        }
        return Verdict(by_problem[difference.problem], look=look if difference.problem == "diverged" else None)
    low, high = (difference.low, difference.high) if higher_is_better else (-difference.high, -difference.low)
    word = _word(low, high, margin)
    if word is None:
        return Verdict("undecided", more_seeds(difference, margin, next_error))
    return Verdict(word, look=look)


def _word(low: float, high: float, margin: float) -> Word | None:
    """The verdict for an interval whose positive direction is better; none if it is open."""
    if low > margin:
        return "better by more than the margin"
    if high < -margin:
        return "worse by more than the margin"
    if -margin < low and high < margin:
        return "practically equal"
    return "better" if low > 0 else "worse" if high < 0 else None


def more_seeds(difference: Difference, margin: float, next_error: float = 1.0) -> int | None:
    """The number of seeds that would decide if difference and spread stay about the same.

    `next_error` is the error of the next look over that of this one.

    An interval decides as soon as it leaves out zero or lies within the margin, so it need never be narrower than the
    margin itself. The mean of more seeds will be another one; it is given room for that. Where splits of the data
    overlap no number of seeds may be enough.
    """
    assert difference.spread is not None
    room = max(abs(difference.mean), margin - abs(difference.mean))
    share, error = difference.degrees / (difference.n - 1), next_error * (1 - difference.level)
    for n in range(difference.n + 1, difference.n + 1 + MANY):
        quantile = t_quantile(1 - error / 2, share * (n - 1))
        if (quantile + USUALLY) * difference.spread * math.sqrt(1 / n + difference.overlap) <= room:
            return n - difference.n
    return None


def error_after(looked: int) -> float:
    """The error of a family after seeds were added this many times without a plan."""
    return ERROR / 2**looked


@dataclass(frozen=True)
class Criterion:
    """The decision rule of a study, fixed before its runs."""

    higher_is_better: bool
    margin: Margin
    seeds: Seeds | None = None
    """planned seeds (None: all existing seeds, judged once)"""
    overlap: float = 0.0
    """see `differences`"""
    pair_by_pair: bool = False
    """judge each pair at the last look that both of its rows have completed, and reserve the error of pairs without
    runs: the rows of a paper's table are trained at different times"""
    looked: int = 0
    """times that seeds were added without a plan; each halves the error"""
    futility: bool = False
    """stop the first of a pair where it can no longer be shown better or practically equal"""


class Decision(NamedTuple):
    """The difference of a pair and the verdict on it."""

    difference: Difference
    verdict: Verdict
    margin: float
    """margin in the unit of the difference"""


Pair = tuple[Name, Name]


def judge(scores: Scores[Name], pairs: Sequence[Pair], criterion: Criterion) -> dict[Pair, Decision]:
    """Decides each declared pair that shares a seed: the one judge of comparisons and of papers' claims.

    With several looks, a pair that was decided keeps its verdict and its interval; a row gets no more seeds once all
    its pairs are decided; and a look that is not complete decides nothing: the pair stays what the look before made of
    it, or is open for the seeds that the first one lacks.
    """
    seeds = criterion.seeds
    if seeds is None or not seeds.auto:
        return _decisions(scores, pairs, criterion, Look(0, error_after(criterion.looked)))
    if not criterion.pair_by_pair:
        return _over_looks(scores, pairs, criterion, seeds.looks)
    share = sum(_counts(scores, pair) for pair in pairs) / max(len(pairs), 1)
    decisions: dict[Pair, Decision] = {}
    for first, second in pairs:
        shared = len(scores.get(first, {}).keys() & scores.get(second, {}).keys())
        if shared:
            until = max((look.seeds for look in seeds.looks if look.seeds <= shared), default=seeds.looks[0].seeds)
            looks = [Look(n, share * error) for n, error in seeds.looks if n <= until]
            decisions[first, second] = _over_looks(scores, pairs, criterion, looks)[first, second]
    return decisions


def _counts(scores: Scores[Name], pair: Pair) -> bool:
    """Whether `differences` counts the pair as one of the family."""
    first, second = (scores.get(name, {}) for name in pair)
    shared = first.keys() & second.keys()
    return len(shared) > 1 and all(math.isfinite(first[seed]) and math.isfinite(second[seed]) for seed in shared)


def _over_looks(
    scores: Scores[Name], pairs: Sequence[Pair], criterion: Criterion, looks: Sequence[Look]
) -> dict[Pair, Decision]:
    decisions: dict[Pair, Decision] = {}
    late: set[Pair] = set()
    stopped: dict[Name, int] = {}
    for look in looks:
        seen = {
            name: {seed: x for seed, x in row.items() if seed < stopped.get(name, look.seeds)}
            for name, row in scores.items()
        }
        for pair, decision in _decisions(seen, pairs, criterion, look).items():
            if pair in late or (pair in decisions and not decisions[pair].verdict.open):
                continue
            lacking = look.seeds - decision.difference.n
            if lacking and decision.difference.problem != "diverged":
                late.add(pair)
                before = decisions.get(pair)
                decision = (
                    _waiting(before, look) if before else decision._replace(verdict=Verdict("undecided", lacking))
                )
            elif criterion.futility and _futile(decision, look, looks[-1], criterion.higher_is_better):
                decision = decision._replace(verdict=Verdict(STOPPED, look=look.seeds))
            decisions[pair] = decision
        for name in {name for pair in pairs for name in pair} - undecided(pairs, decisions):
            stopped.setdefault(name, look.seeds)
    return decisions


def _futile(decision: Decision, look: Look, last: Look, higher_is_better: bool) -> bool:
    """Whether an undecided pair has a chance below `FUTILE` of a favourable word at the last look.

    To be shown better it is given the benefit of the doubt: its true difference is taken to be the margin, or the
    mean so far if that is larger. To be shown practically equal it is taken to be the mean so far.
    """
    difference, margin = decision.difference, decision.margin
    if look.seeds >= last.seeds or decision.verdict.word != "undecided":
        return False
    assert difference.spread is not None
    level = 1 - (1 - difference.level) * last.error / look.error
    share = difference.degrees / (difference.n - 1)
    half = t_quantile((1 + level) / 2, share * (last.seeds - 1)) * difference.spread
    half *= math.sqrt(1 / last.seeds + difference.overlap)
    mean = difference.mean if higher_is_better else -difference.mean
    better, equal = chances(
        mean, difference.spread, difference.degrees, half, margin, difference.n / last.seeds, last.seeds
    )
    return better < FUTILE and equal < FUTILE


def chances(mean: Any, spread: Any, degrees: Any, half: Any, margin: float, part: float, seeds: int) -> tuple[Any, Any]:
    """The chances that the mean of all seeds exceeds `half`, and that its interval lies within the margin.

    `part` of the seeds have this mean; arguments may be arrays.
    """
    import numpy as np
    from scipy.special import stdtr

    # the mean of all seeds, given that of the first part, varies by what the rest of the seeds will bring
    scale = spread * np.sqrt((1 - part) / seeds)
    hoped = part * mean + (1 - part) * np.maximum(mean, margin)
    better = stdtr(degrees, (hoped - half) / scale)
    room = margin - half
    equal = stdtr(degrees, (room - mean) / scale) - stdtr(degrees, (-room - mean) / scale)
    return better, np.where(room > 0, equal, 0.0)


def _waiting(decision: Decision, look: Look) -> Decision:
    """An open pair between two looks: its estimated need, but at least the seeds of the next look."""
    more = decision.verdict.more
    if more is None:
        return decision
    return decision._replace(verdict=Verdict("undecided", max(more, look.seeds - decision.difference.n)))


def undecided(pairs: Sequence[Pair], decisions: Mapping[Pair, Decision]) -> set[Name]:
    """The rows that need more seeds: those with an open pair, so a baseline runs until the last row is decided."""
    return {name for pair in pairs if pair not in decisions or decisions[pair].verdict.open for name in pair}


def _decisions(scores: Scores[Name], pairs: Sequence[Pair], criterion: Criterion, look: Look) -> dict[Pair, Decision]:
    planned = criterion.seeds is not None and criterion.seeds.auto
    at, next_error = (look.seeds, 1.0) if planned else (None, 0.5)
    measured = differences(scores, pairs, look.error, criterion.overlap)
    means = {name: summarise(filter(is_measurement, row.values())) for name, row in scores.items()}
    out = {}
    for pair, difference in measured.items():
        mean = means[pair[1]]
        margin = criterion.margin.size(mean.mean if mean else 0.0)
        word = verdict_of(difference, margin, criterion.higher_is_better, at, next_error)
        out[pair] = Decision(difference, word, margin)
    return out


# claims: the same decisions in a paper's words

Opinion = Literal["agrees", "disagrees", "practically equal", "not resolved", "not run"]


@dataclass(frozen=True)
class Claim:
    """A statement about two rows."""

    text: str
    first: str
    second: str
    kind: Literal["better", "comparable"] = "better"
    """the first is better; or it is not worse by more than the margin"""

    @property
    def pair(self) -> tuple[str, str]:
        return self.first, self.second


@dataclass(frozen=True)
class CostClaim:
    """A statement about the costs of two rows: the first has at most this share of the second."""

    text: str
    first: str
    second: str
    quantity: Literal["parameters", "step"]
    """parameters; or the time of a training step, measured interleaved"""
    at_most: float


@dataclass(frozen=True)
class ClaimResult:
    """A claim and the judge's opinion of it."""

    claim: Claim
    opinion: Opinion
    difference: Difference | None = None
    margin: float = 0.0
    """margin in the unit of the difference"""
    more: int | None = None
    """seeds that would resolve it, about (default: more than can be estimated)"""
    first_look: int = 0
    """seeds at the first look"""

    @property
    def early(self) -> bool:
        """Whether the first look is still to come: an interval would say nothing yet."""
        return self.difference is not None and self.difference.n < self.first_look

    @property
    def settled(self) -> bool:
        """Whether more seeds would change nothing."""
        return self.opinion in ("agrees", "disagrees", "practically equal")


@dataclass(frozen=True)
class CostResult:
    """The relative cost of two rows, and the opinion on the claim."""

    claim: CostClaim
    opinion: Opinion
    ratio: Ratio | None = None


def claim_result(claim: Claim, decision: Decision | None, criterion: Criterion) -> ClaimResult:
    """The opinion on a claim that follows from the decision on its pair."""
    if decision is None:
        return ClaimResult(claim, "not run")
    difference, margin = decision.difference, decision.margin
    first_look = criterion.seeds.looks[0].seeds if criterion.seeds else 0
    lacking = max(first_look - difference.n, 0)
    opinion = "not resolved" if lacking else _opinion(claim, decision, criterion.higher_is_better)
    more = None
    if opinion == "not resolved":
        more = lacking or _more_for(claim, difference, margin, criterion.higher_is_better)
    return ClaimResult(claim, opinion, difference, margin, more, first_look)


def _opinion(claim: Claim, decision: Decision, higher_is_better: bool) -> Opinion:
    """*Better* follows the verdict; *comparable* holds if the whole interval lies above minus the margin."""
    difference, word = decision.difference, decision.verdict.word
    if claim.kind == "better":
        if word == "practically equal":
            return word
        return "agrees" if word in BETTER else "disagrees" if word in WORSE else "not resolved"
    if difference.low is None or difference.high is None:
        return "not resolved"
    low, high = (difference.low, difference.high) if higher_is_better else (-difference.high, -difference.low)
    return "agrees" if low > -decision.margin else "disagrees" if high < -decision.margin else "not resolved"


def _more_for(claim: Claim, difference: Difference, margin: float, higher_is_better: bool) -> int | None:
    """Seeds that would resolve a claim, if difference and spread stay what they are."""
    if difference.low is None:
        return 1
    if claim.kind == "comparable":  # minus the margin takes the place of zero
        shifted = difference.mean + (margin if higher_is_better else -margin)
        return more_seeds(replace(difference, mean=shifted), 0.0)
    return more_seeds(difference, margin)


def cost_result(claim: CostClaim, ratio: Ratio | None) -> CostResult:
    """The opinion on a claim about costs, given the measured ratio."""
    if ratio is None:
        return CostResult(claim, "not run")
    if ratio.high <= claim.at_most:
        return CostResult(claim, "agrees", ratio)
    return CostResult(claim, "disagrees" if ratio.low > claim.at_most else "not resolved", ratio)
