"""What the kept runs say of each claim: agrees, disagrees, or not resolved at this scale.

The statistics are those of `odeum.compare`: differences paired by seed, the claims of a table as one family, looks
after 3, 6 and 12 seeds. Each claim is judged at the last look for which both of its rows have all seeds; seeds beyond
it wait for the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from odeum.compare.intervals import Difference
from odeum.compare.seeds import Criterion, Decision, Look, Seeds, decide
from odeum.compare.statistics import Summary, summarise
from odeum.compare.verdicts import BETTER, WORSE, more_seeds
from odeum.recipes.base import REST_SEEDS, Claim, PaperTable, RowRecipe, TableRow, recipe_of
from odeum.recipes.store import Store, StoredRun

Opinion = Literal["agrees", "disagrees", "not resolved", "not run"]


@dataclass(frozen=True)
class RowResult:
    """A row with its runs."""

    row: TableRow
    recipe: RowRecipe
    runs: Mapping[int, StoredRun]

    def scores(self, split: str, metric: str) -> dict[int, float]:
        """By seed; not finite where a run diverged."""
        found = {seed: run.score(split, metric) for seed, run in self.runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def summary(self, split: str, metric: str) -> Summary | None:
        """Over the seeds that did not diverge."""
        return summarise(filter(math.isfinite, self.scores(split, metric).values()))

    @property
    def diverged(self) -> int:
        return sum(bool(run.content.get("failed")) for run in self.runs.values())

    def fact(self, name: str) -> float | None:
        """A number that all runs of a row share, such as `parameters`."""
        found = next((run.fact(name) for run in self.runs.values()), None)
        return float(found) if isinstance(found, int | float) else None


@dataclass(frozen=True)
class ClaimResult:
    """A claim and what became of it."""

    claim: Claim
    opinion: Opinion
    difference: Difference | None = None
    margin: float = 0.0
    """in the unit of the difference"""
    more: int | None = None
    """of one that is not resolved: about so many more seeds would do it (none: more than can be estimated)"""


@dataclass(frozen=True)
class TableResult:
    """A whole table at one scale."""

    table: PaperTable
    scale: str
    rows: tuple[RowResult, ...]
    claims: tuple[ClaimResult, ...]

    def of(self, name: str) -> RowResult:
        """The row of this name."""
        return next(found for found in self.rows if found.row.name == name)


@dataclass(frozen=True)
class _Reached(Seeds):
    """The planned looks as far as they have come; what the later ones may spend is kept for them."""

    until: int = 0

    @property
    def looks(self) -> tuple[Look, ...]:
        return tuple(look for look in super().looks if look.seeds <= self.until)


def read_results(table: PaperTable, scale: str, store: Store) -> TableResult:
    """The table as the kept runs have it."""
    recipes = {row.name: recipe_of(table, row, scale) for row in table.rows}
    return judge_table(
        table, scale, [RowResult(row, recipes[row.name], store.runs(recipes[row.name])) for row in table.rows]
    )


def judge_table(table: PaperTable, scale: str, rows: Sequence[RowResult]) -> TableResult:
    """A verdict for each claim."""
    scores = {found.row.name: found.scores(table.split, table.metric) for found in rows}
    pairs = [claim.pair for claim in table.claims]
    claims = []
    for claim in table.claims:
        shared = len(scores[claim.first].keys() & scores[claim.second].keys())
        if not shared:
            claims.append(ClaimResult(claim, "not run"))
            continue
        planned = table.seeds.looks
        until = max([look.seeds for look in planned if look.seeds <= shared], default=planned[0].seeds)
        reached = _Reached(table.seeds.limit, table.seeds.auto, until) if table.seeds.auto else table.seeds
        criterion = Criterion(table.judged.higher_is_better, table.margin, reached)
        claims.append(_judge(claim, decide(scores, pairs, criterion)[claim.pair], table))
    return TableResult(table, scale, tuple(rows), tuple(claims))


def _judge(claim: Claim, decision: Decision, table: PaperTable) -> ClaimResult:
    found, margin = decision.difference, decision.margin
    lacking = table.seeds.looks[0].seeds - found.n
    opinion = "not resolved" if lacking > 0 else _opinion(claim, decision, table.judged.higher_is_better)
    more = None
    if opinion == "not resolved":
        more = lacking if lacking > 0 else _more(claim, found, margin, table.judged.higher_is_better)
    return ClaimResult(claim, opinion, found, margin, more)


def _opinion(claim: Claim, decision: Decision, higher_is_better: bool) -> Opinion:
    """*Better*: the whole interval on its side of zero; or on the other side, or within the margin. *Comparable*: the
    whole interval above minus the margin, or below it."""
    found, word = decision.difference, decision.verdict.word
    if claim.kind == "better":
        return "agrees" if word in BETTER else "disagrees" if word in (*WORSE, "practically equal") else "not resolved"
    if found.low is None or found.high is None:
        return "not resolved"
    low, high = (found.low, found.high) if higher_is_better else (-found.high, -found.low)
    return "agrees" if low > -decision.margin else "disagrees" if high < -decision.margin else "not resolved"


def _more(claim: Claim, found: Difference, margin: float, higher_is_better: bool) -> int | None:
    """Seeds that would do, if difference and spread stay what they are."""
    if found.low is None:
        return 1
    if claim.kind == "comparable":  # zero stands where minus the margin was
        found, margin = replace(found, mean=found.mean + (margin if higher_is_better else -margin)), 0.0
    return more_seeds(found, margin)


def wanted_seeds(result: TableResult, row: TableRow, until: int) -> int:
    """How many seeds a row should have by a look: of a claim that is settled no more, of a row without any, a few."""
    claims = [found for found in result.claims if row.name in found.claim.pair]
    if not claims:
        return min(until, REST_SEEDS)
    return (
        until
        if any(found.opinion in ("not resolved", "not run") for found in claims)
        else len(result.of(row.name).runs)
    )
