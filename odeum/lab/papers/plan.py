"""The plan of the papers' runs: planned and used core-hours per table.

A row that carries a claim is planned with its tuning runs and `PLANNED` seeds, each at its MACs over `IDLE_SPEED`. What
was used is the number of kept runs × the measured CPU time of a step (`odeum table NAME --pace`), or × the planned time
where no step was measured. A run that two tables share counts in the first. Evaluations are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from odeum.lab.papers import TABLES
from odeum.lab.papers.base import LAPTOP, PaperTable
from odeum.lab.study.forecast import run_cost
from odeum.lab.study.grid import Column, Grid
from odeum.lab.study.prose import NONE
from odeum.lab.study.runs import Store, at_rate
from odeum.lab.study.tuning import SEED as TUNING_SEED

BUDGET = 30.0
"""core-hours in all"""
PLANNED = 6
"""seeds per row of a claim: the second of three looks"""
IDLE_SPEED = 44e9
"""training MACs per second of one idle core with AVX512: 5,624 steps of the ladder's `sequential-large` in 256 s"""
RATES_TO_TRY = 8
"""factors of 2 on either side of the setting's rate at which a tuned row may have runs"""


class PlannedRow(NamedTuple):
    """The runs of one row of a claim."""

    table: str
    row: str
    runs: int
    """planned: tuning and evaluation"""
    tuned: int
    """tuning runs that are kept"""
    seeds: int
    """evaluation runs that are kept"""
    minutes: float
    """planned per run"""
    measured: float | None
    """CPU minutes per run (none: its step time is not measured)"""

    @property
    def planned(self) -> float:
        """Core-hours."""
        return self.runs * self.minutes / 60

    @property
    def used(self) -> float:
        """Core-hours."""
        return (self.tuned + self.seeds) * (self.measured or self.minutes) / 60


def plan(store: Store, tables: Sequence[PaperTable] = tuple(TABLES.values())) -> list[PlannedRow]:
    """The rows of all claims in the order in which they are run, each shared recipe once."""
    known: set[str] = set()
    rows = []
    for table in tables:
        for name, spec in table.specs(LAPTOP).items():
            if name not in table.claimed or spec.key in known:
                continue
            known.add(spec.key)
            cost, seconds = run_cost(spec), store.step_seconds(spec)
            recipes = [at_rate(spec, (rate,)) for rate in rates_around(spec.training.learning_rate)]
            seeds = [seed for each in (recipes if table.tune else [spec]) for seed in store.lines(each)]
            tuned = seeds.count(TUNING_SEED)
            rows.append(
                PlannedRow(
                    table.name,
                    name,
                    table.tune + PLANNED,
                    tuned,
                    len(seeds) - tuned,
                    cost.training_macs / IDLE_SPEED / 60,
                    None if seconds is None else seconds * cost.steps / 60,
                )
            )
    return rows


def rates_around(rate: float) -> list[float]:
    """Every rate that tuning around this one may try."""
    exponents = range(-RATES_TO_TRY, RATES_TO_TRY + 1)
    return [float(f"{rate * 2.0**exponent:.3g}") for exponent in exponents]


def plan_grid(rows: Sequence[PlannedRow], by_row: bool = False) -> Grid:
    """One line per table, or per row, and their sum."""
    groups: dict[tuple[str, ...], list[PlannedRow]] = {}
    for row in rows:
        groups.setdefault((row.table, row.row) if by_row else (row.table,), []).append(row)
    body = [*groups.items(), (("in all", "") if by_row else ("in all",), list(rows))]

    def minutes(values: list[float]) -> str:
        if not values:
            return NONE
        low, high = f"{min(values):.1f}", f"{max(values):.1f}"
        return low if low == high else f"{low} to {high}"

    return Grid(
        [
            Column("table", [key[0] for key, _ in body], words=True),
            *([Column("row", [key[1] for key, _ in body], words=True)] if by_row else []),
            *([] if by_row else [Column("rows", [str(len(group)) for _, group in body])]),
            Column("minutes per run", [minutes([row.minutes for row in group]) for _, group in body]),
            Column("measured", [minutes([x for row in group if (x := row.measured)]) for _, group in body]),
            Column("planned runs", [str(sum(row.runs for row in group)) for _, group in body]),
            Column("tuning runs kept", [str(sum(row.tuned for row in group)) for _, group in body]),
            Column("seeds kept", [str(sum(row.seeds for row in group)) for _, group in body]),
            Column("planned core-hours", [f"{math.fsum(row.planned for row in group):.1f}" for _, group in body]),
            Column("used", [f"{math.fsum(row.used for row in group):.1f}" for _, group in body]),
        ]
    )
