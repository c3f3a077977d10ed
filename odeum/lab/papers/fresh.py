"""Rows that are trained again, beside what is kept of them: the same figure, or how far it is from the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odeum.lab.papers.base import PaperTable, TableRow
from odeum.lab.papers.store import Store
from odeum.lab.study.statistics import summarise

SPREADS = 4.0
"""how far from the mean of its row a figure may lie whose code, or machine, is another"""


class FreshRun(NamedTuple):
    """One run and what is kept of it."""

    sentence: str
    holds: bool


def beside_kept(table: PaperTable, scale: str, rows: Sequence[TableRow], fresh: Store, kept: Store) -> list[FreshRun]:
    """A sentence for each fresh run; rows of which nothing is kept can hold nothing against it."""
    out = []
    for row in rows:
        recipe = table.spec(row, scale)
        before = {seed: run.score(table.split, table.metric) for seed, run in kept.runs(recipe).items()}
        known = summarise(value for value in before.values() if value is not None and value == value)
        for seed, run in fresh.runs(recipe).items():
            value = run.score(table.split, table.metric)
            name = f"{row.name} seed {seed}: {table.split} {table.metric} {_figure(value)}"
            if known is None or value is None:
                out.append(FreshRun(f"{name}; nothing is kept to compare it with", True))
            elif value == before.get(seed):
                out.append(FreshRun(f"{name}: the kept figure", True))
            elif known.spread is None:
                out.append(FreshRun(f"{name}; kept: {_figure(known.mean)} of one seed, so its spread is unknown", True))
            else:
                far = abs(value - known.mean) / known.spread if known.spread else float("inf")
                where = f"{far:.1f} spreads from the kept mean {_figure(known.mean)} ± {_figure(known.spread)}"
                out.append(FreshRun(f"{name}: {where}", far <= SPREADS))
    return out


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
