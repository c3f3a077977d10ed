"""Run directories -> one honest table, plots, and a page that a person likes to read; no model is ever loaded."""

from __future__ import annotations

from odeum.lab.study.formats import FORMATS, rich_table, table
from odeum.lab.study.headline import headline
from odeum.lab.study.notes import cut_note, data_notes, hidden_note
from odeum.lab.study.overview import overall_ranks, write_overview
from odeum.lab.study.records import ComparisonRecord, RunRecord, read
from odeum.lab.study.row import Row, rows
from odeum.lab.study.writing import Report, write

__all__ = [
    "FORMATS",
    "ComparisonRecord",
    "Report",
    "Row",
    "RunRecord",
    "cut_note",
    "data_notes",
    "headline",
    "hidden_note",
    "overall_ranks",
    "read",
    "rich_table",
    "rows",
    "table",
    "write",
    "write_overview",
]
