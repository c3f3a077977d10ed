"""Run directories -> one honest table, plots, and a page that a person likes to read; no model is ever loaded."""

from __future__ import annotations

from odeum.report.files import Report, write
from odeum.report.row import Row, rows
from odeum.report.runs import Comparison, Run, read
from odeum.report.tables import FORMATS, rich_table, table
from odeum.report.words import headline

__all__ = ["FORMATS", "Comparison", "Report", "Row", "Run", "headline", "read", "rich_table", "rows", "table", "write"]
