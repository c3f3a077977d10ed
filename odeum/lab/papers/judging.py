"""What the kept runs say of each claim: agrees, disagrees, or not resolved at this scale.

The statistics are those of `odeum.lab.study`: differences paired by seed, the claims of a table as one family, looks
after 3, 6 and 12 seeds. Each claim is judged at the last look for which both of its rows have all seeds; seeds beyond
it wait for the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from odeum.lab.papers.base import REST_SEEDS, Claim, CostClaim, PaperTable, TableRow
from odeum.lab.papers.store import Store, StoredRun
from odeum.lab.study.intervals import Difference
from odeum.lab.study.pace import Pace
from odeum.lab.study.seeds import Criterion, Decision, Look, Seeds, decide
from odeum.lab.study.statistics import Ratio, Summary, summarise
from odeum.lab.study.verdicts import BETTER, WORSE, more_seeds
from odeum.lab.train.spec import RunSpec

Opinion = Literal["agrees", "disagrees", "not resolved", "not run"]


@dataclass(frozen=True)
class RowResult:
    """A row with its runs."""

    row: TableRow
    recipe: RunSpec
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
    first_look: int = 0
    """seeds at which words are said for the first time"""

    @property
    def early(self) -> bool:
        """Whether the first look is still to come: an interval would say nothing yet."""
        return self.difference is not None and self.difference.n < self.first_look


@dataclass(frozen=True)
class CostResult:
    """What two rows cost beside each other, and what that says of the claim."""

    claim: CostClaim
    opinion: Opinion
    ratio: Ratio | None = None


@dataclass(frozen=True)
class TableResult:
    """A whole table at one scale."""

    table: PaperTable
    scale: str
    rows: tuple[RowResult, ...]
    claims: tuple[ClaimResult, ...]
    costs: tuple[CostResult, ...] = ()
    paces: Mapping[str, Pace] = field(default_factory=dict)
    """of rows, by name, that took turns with others"""

    def of(self, name: str) -> RowResult:
        """The row of this name."""
        return next(found for found in self.rows if found.row.name == name)


@dataclass(frozen=True)
class _Reached(Seeds):
    """The planned looks as far as they have come; what later ones, and claims without runs yet, may spend is theirs."""

    until: int = 0
    share: float = 1.0
    """of the table's claims that have runs"""

    @property
    def looks(self) -> tuple[Look, ...]:
        return tuple(Look(n, self.share * error) for n, error in super().looks if n <= self.until)


def read_results(table: PaperTable, scale: str, store: Store) -> TableResult:
    """The table as the kept runs have it."""
    recipes = {row.name: table.spec(row, scale) for row in table.rows}
    paces: dict[str, Pace] = {}
    for group in groups_of(table):
        found = store.paces(recipes[row.name] for row in group)
        paces |= {row.name: found[recipes[row.name].key] for row in group if recipes[row.name].key in found}
    rows = {row.name: RowResult(row, recipes[row.name], store.runs(recipes[row.name])) for row in table.rows}
    costs = tuple(_cost(claim, rows, paces) for claim in table.costs)
    return TableResult(table, scale, tuple(rows.values()), judge_claims(table, list(rows.values())), costs, paces)


def judge_claims(table: PaperTable, rows: Sequence[RowResult]) -> tuple[ClaimResult, ...]:
    """A verdict for each claim."""
    scores = {found.row.name: found.scores(table.split, table.metric) for found in rows}
    pairs = [claim.pair for claim in table.claims]
    share = sum(_counts(scores[first], scores[second]) for first, second in pairs) / max(len(pairs), 1)
    claims = []
    for claim in table.claims:
        shared = len(scores[claim.first].keys() & scores[claim.second].keys())
        if not shared:
            claims.append(ClaimResult(claim, "not run"))
            continue
        planned = table.seeds.looks
        until = max([look.seeds for look in planned if look.seeds <= shared], default=planned[0].seeds)
        reached = _Reached(table.seeds.limit, table.seeds.auto, until, share) if table.seeds.auto else table.seeds
        criterion = Criterion(table.judged.higher_is_better, table.margin, reached)
        claims.append(_judge(claim, decide(scores, pairs, criterion)[claim.pair], table))
    return tuple(claims)


def _counts(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    """Whether `differences` counts the pair as one of the family."""
    shared = first.keys() & second.keys()
    return len(shared) > 1 and all(math.isfinite(first[seed]) and math.isfinite(second[seed]) for seed in shared)


def _judge(claim: Claim, decision: Decision, table: PaperTable) -> ClaimResult:
    found, margin = decision.difference, decision.margin
    lacking = table.seeds.looks[0].seeds - found.n
    opinion = "not resolved" if lacking > 0 else _opinion(claim, decision, table.judged.higher_is_better)
    more = None
    if opinion == "not resolved":
        more = lacking if lacking > 0 else _more(claim, found, margin, table.judged.higher_is_better)
    return ClaimResult(claim, opinion, found, margin, more, table.seeds.looks[0].seeds)


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


def groups_of(table: PaperTable) -> list[list[TableRow]]:
    """The rows that take turns when steps are timed: those that claims about speed name, with what they are beside."""
    groups: dict[str, list[str]] = {}
    for claim in table.costs:
        if claim.quantity == "step":
            groups.setdefault(claim.second, [claim.second]).append(claim.first)
    return [[table.row(name) for name in names] for names in groups.values()]


def _cost(claim: CostClaim, rows: Mapping[str, RowResult], paces: Mapping[str, Pace]) -> CostResult:
    if claim.quantity == "step":
        if claim.first not in paces or claim.second not in paces:
            return CostResult(claim, "not run")
        ratio = paces[claim.first].beside(paces[claim.second])
    else:
        first, second = (rows[name].fact("parameters") for name in (claim.first, claim.second))
        if not first or not second:
            return CostResult(claim, "not run")
        ratio = Ratio(first / second, first / second, first / second)
    if ratio.high <= claim.at_most:
        return CostResult(claim, "agrees", ratio)
    return CostResult(claim, "disagrees" if ratio.low > claim.at_most else "not resolved", ratio)


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
