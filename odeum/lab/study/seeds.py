"""How many seeds: a number, or as many as it takes, looked at several times with the error spent over the looks.

`auto` looks at 3, 6 and 12 seeds, `auto:N` goes on doubling up to N. By a look at n of N seeds n / N of the family's
error has been spent, so the parts of all looks add up to it whatever the results are, and rows that are decided may
stop early. `decide` is a function of the results alone: a comparison that continues, and a report written years
later, look at what was there at each look and find the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from odeum.errors import OdeumError
from odeum.lab.study.intervals import ERROR, Difference, Name, Scores, differences
from odeum.lab.study.metric import Margin
from odeum.lab.study.statistics import is_measurement, summarise
from odeum.lab.study.verdicts import Verdict, judge

NO_BASELINE = "none"
"""how a plan says that all rows are compared with each other"""
FIRST = 3
MOST_SEEDS = 10_000  # each is a run, and all are planned before the first begins
LIMIT = 12


class Look(NamedTuple):
    """A time at which words are said."""

    seeds: int
    error: float
    """the family's error that it may spend"""


@dataclass(frozen=True)
class Seeds:
    """A number of seeds, or the looks on the way to it."""

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
        found = re.fullmatch(r"\s*(?:(-?\d+)|auto(?::(\d+))?)\s*", str(text))
        if not found:
            raise OdeumError(f"the number of seeds '{text}' should be a whole number, auto, or auto:{2 * LIMIT}")
        return cls(int(found[1])) if found[1] else cls(int(found[2] or LIMIT), auto=True)

    def __str__(self) -> str:
        return f"auto:{self.limit}" if self.auto else str(self.limit)

    @property
    def looks(self) -> tuple[Look, ...]:
        """When words are said, and at what price."""
        if not self.auto:
            return (Look(self.limit, ERROR),)
        at = [0, FIRST]
        while 4 * at[-1] <= self.limit:
            at.append(2 * at[-1])
        if at[-1] < self.limit:
            at.append(self.limit)
        return tuple(Look(n, ERROR * (n - before) / self.limit) for before, n in pairwise(at))


@dataclass(frozen=True)
class Criterion:
    """What is asked of a table, fixed before the run."""

    higher_is_better: bool
    margin: Margin
    seeds: Seeds | None = None
    """none: whatever seeds there are, looked at once"""
    overlap: float = 0.0
    """see `differences`"""


class Decision(NamedTuple):
    """A pair's difference and the word for it."""

    difference: Difference
    verdict: Verdict
    margin: float
    """in the unit of the difference"""


def decide(
    scores: Scores[Name], pairs: Sequence[tuple[Name, Name]], criterion: Criterion
) -> dict[tuple[Name, Name], Decision]:
    """What the results say of each declared pair that shares a seed.

    With several looks, a pair that was decided keeps its word and its interval; a row gets no more seeds once all its
    pairs are decided; and a look that is not complete decides nothing: the pair stays what the look before found, or
    is open for the seeds that the first one lacks.
    """
    seeds = criterion.seeds
    if seeds is None or not seeds.auto:
        return _decisions(scores, pairs, criterion, Look(0, ERROR))
    decisions: dict[tuple[Name, Name], Decision] = {}
    late: set[tuple[Name, Name]] = set()
    stopped: dict[Name, int] = {}
    for look in seeds.looks:
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
                decision = _waiting(before, look) if before else decision._replace(verdict=Verdict("open", lacking))
            decisions[pair] = decision
        for name in {name for pair in pairs for name in pair} - going(pairs, decisions):
            stopped.setdefault(name, look.seeds)
    return decisions


def _waiting(decision: Decision, look: Look) -> Decision:
    """An open pair between two looks: what it was estimated to need, but at least the seeds of the next look."""
    more = decision.verdict.more
    if more is None:
        return decision
    return decision._replace(verdict=Verdict("open", max(more, look.seeds - decision.difference.n)))


def going(pairs: Sequence[tuple[Name, Name]], decisions: Mapping[tuple[Name, Name], Decision]) -> set[Name]:
    """The rows that need more seeds: those with an open pair. So a baseline goes on until the last row is decided."""
    return {name for pair in pairs if pair not in decisions or decisions[pair].verdict.open for name in pair}


def _decisions(
    scores: Scores[Name], pairs: Sequence[tuple[Name, Name]], criterion: Criterion, look: Look
) -> dict[tuple[Name, Name], Decision]:
    at = look.seeds if criterion.seeds and criterion.seeds.auto else None
    found = differences(scores, pairs, look.error, criterion.overlap)
    means = {name: summarise(filter(is_measurement, row.values())) for name, row in scores.items()}
    out = {}
    for pair, difference in found.items():
        mean = means[pair[1]]
        margin = criterion.margin.size(mean.mean if mean else 0.0)
        out[pair] = Decision(difference, judge(difference, margin, criterion.higher_is_better, at), margin)
    return out
