"""Runs far off their neighbours: noise that no interval of a few seeds can bear, so the reader is told."""

from __future__ import annotations

import math
from collections.abc import Mapping

from odeum.lab.study.intervals import Name
from odeum.lab.study.statistics import median

OF_TABLE, OF_ROW = 8.0, 4.0


def far_runs(scores: Mapping[Name, Mapping[int, float]]) -> list[tuple[Name, int]]:
    """(row, seed) of each row's furthest run, where it is far off.

    Far is more than eight times what is usual in the table and four times the next in the row, both from the row's
    median. Of tables with normal noise fewer than one in fifty has such a run; one that collapsed by twenty spreads
    is found more than nine times in ten (a test says so).
    """
    found: dict[Name, list[tuple[float, int]]] = {}
    for name, row in scores.items():
        finite = {seed: x for seed, x in row.items() if math.isfinite(x)}
        middle = median(finite.values())
        if middle is not None and len(finite) > 2:
            found[name] = sorted((abs(x - middle), seed) for seed, x in finite.items())
    usual = median(distance for row in found.values() for distance, _ in row[1:])
    if not usual:
        return []
    return [
        (name, row[-1][1])
        for name, row in found.items()
        if row[-1][0] > OF_TABLE * usual and row[-1][0] > OF_ROW * row[-2][0]
    ]
