"""The plan of the papers' runs: planned and used core-hours per table, from measured step times and kept runs.

A row that carries a claim is planned with its tuning runs and `PLANNED` seeds. A run that two tables share counts in
the first. Core-hours are training steps × CPU seconds per step (`odeum table NAME --pace`); evaluations are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from odeum.lab.papers import TABLES
from odeum.lab.papers.base import LAPTOP, PaperTable
from odeum.lab.study.grid import Column, Grid
from odeum.lab.study.prose import NONE
from odeum.lab.study.runs import Store, at_rate

BUDGET = 30.0
"""core-hours in all"""
PLANNED = 6
"""seeds per row of a claim: the second of three looks"""
RATES_TO_TRY = 8
"""factors of 2 on either side of the setting's rate at which a tuned row may have runs"""


class PlannedRow(NamedTuple):
    """The runs of one row of a claim."""

    table: str
    row: str
    runs: int
    """planned: tuning and evaluation"""
    done: int
    minutes: float | None
    """CPU minutes per run (none: its step time is not measured)"""

    @property
    def planned(self) -> float | None:
        """Core-hours."""
        return None if self.minutes is None else self.runs * self.minutes / 60

    @property
    def used(self) -> float | None:
        """Core-hours."""
        return None if self.minutes is None else self.done * self.minutes / 60


def plan(store: Store, tables: Sequence[PaperTable] = tuple(TABLES.values())) -> list[PlannedRow]:
    """The rows of all claims in the order in which they are run, each shared recipe once."""
    known: set[str] = set()
    rows = []
    for table in tables:
        for name, spec in table.specs(LAPTOP).items():
            if name not in table.claimed or spec.key in known:
                continue
            known.add(spec.key)
            seconds, steps = store.step_seconds(spec), spec.training.steps
            minutes = None if seconds is None or steps is None else seconds * steps / 60
            recipes = [at_rate(spec, (rate,)) for rate in rates_around(spec.training.learning_rate)]
            done = sum(len(store.lines(each)) for each in (recipes if table.tune else [spec]))
            rows.append(PlannedRow(table.name, name, table.tune + PLANNED, done, minutes))
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
    lines = [(key, group) for key, group in groups.items()]
    total = (("in all", "") if by_row else ("in all",), list(rows))
    body = [*lines, total]

    def hours(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        if not known:
            return NONE
        return f"{math.fsum(known):.1f}{'' if len(known) == len(values) else ' + not measured'}"

    def minutes(group: list[PlannedRow]) -> str:
        known = [row.minutes for row in group if row.minutes is not None]
        if not known:
            return NONE
        low, high = f"{min(known):.1f}", f"{max(known):.1f}"
        return low if low == high else f"{low} to {high}"

    return Grid(
        [
            Column("table", [key[0] for key, _ in body], words=True),
            *([Column("row", [key[1] for key, _ in body], words=True)] if by_row else []),
            *([] if by_row else [Column("rows", [str(len(group)) for _, group in body])]),
            Column("minutes per run", [minutes(group) for _, group in body]),
            Column("planned runs", [str(sum(row.runs for row in group)) for _, group in body]),
            Column("runs so far", [str(sum(row.done for row in group)) for _, group in body]),
            Column("planned core-hours", [hours([row.planned for row in group]) for _, group in body]),
            Column("used core-hours", [hours([row.used for row in group]) for _, group in body]),
        ]
    )
