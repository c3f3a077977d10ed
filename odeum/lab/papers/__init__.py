"""The papers' tables as data. `PaperTable.study` makes a study of one; odeum/lab/study trains, judges and prints it."""

from __future__ import annotations

from collections.abc import Sequence

from odeum.errors import choose
from odeum.lab.papers import dutta2021 as dutta
from odeum.lab.papers import zhong2022 as zhong
from odeum.lab.papers.base import PaperTable

TABLES: dict[str, PaperTable] = {
    table.name: table
    for table in (
        *(zhong.TABLE1, zhong.TABLE3, zhong.TABLE4, dutta.TEXT_CLASSES, zhong.FIGURE2, zhong.TABLE2),
        *(dutta.TRANSLATIONS, dutta.LONG_SEQUENCES, dutta.SPEED, zhong.LADDER, dutta.LADDER),
    )
}
"""every table by name, in the order in which they are run"""


def table_named(name: str) -> PaperTable:
    """The table of that name; raises `OdeumError` with the known names."""
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
