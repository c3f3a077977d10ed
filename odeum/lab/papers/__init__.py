"""The papers' tables as data. `PaperTable.study` makes a study of one; odeum/lab/study trains, judges and prints it."""

from __future__ import annotations

from collections.abc import Sequence

from odeum.errors import choose
from odeum.lab.papers.base import PaperTable
from odeum.lab.papers.dutta2021 import DUTTA2021
from odeum.lab.papers.sweeps import SWEEPS
from odeum.lab.papers.zhong2022 import ZHONG2022

TABLES: dict[str, PaperTable] = {table.name: table for table in (*SWEEPS, *ZHONG2022, *DUTTA2021)}
"""every table by name, in the order in which they are run"""


def table_named(name: str) -> PaperTable:
    """The table of that name, or a sentence that lists them."""
    return TABLES[choose(name, TABLES, "table")]


def list_tables(tables: Sequence[PaperTable]) -> str:
    """Names, rows and claims of tables."""
    lines = []
    for table in tables:
        lines += [f"{table.name}: {table.title}", f"  scales: {', '.join(table.scales)}"]
        lines.append(f"  rows: {', '.join(row.name for row in table.rows if not row.control)}")
        if controls := [row.name for row in table.rows if row.control]:
            lines.append(f"  controls: {', '.join(controls)}")
        lines += [f"  claim: {claim.text} ({claim.first}, {claim.second})" for claim in table.claims]
    return "".join(f"{line}\n" for line in lines)
