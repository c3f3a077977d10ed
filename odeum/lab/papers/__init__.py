"""The papers' tables as data, and what is made of them: runs that are missing, verdicts, tables and pages."""

from __future__ import annotations

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
