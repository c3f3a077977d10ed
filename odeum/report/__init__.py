"""Run directories -> one honest table, plots, and a page that a person likes to read; no model is ever loaded."""

from __future__ import annotations

from odeum.report.formats import FORMATS, rich_table, table
from odeum.report.headline import headline
from odeum.report.notes import data_notes
from odeum.report.overview import overall_ranks, write_overview
from odeum.report.records import ComparisonRecord, RunRecord, read
from odeum.report.row import Row, rows
from odeum.report.writing import Report, write

__all__ = [
    "FORMATS",
    "ComparisonRecord",
    "Report",
    "Row",
    "RunRecord",
    "data_notes",
    "headline",
    "overall_ranks",
    "read",
    "rich_table",
    "rows",
    "table",
    "write",
    "write_overview",
]
