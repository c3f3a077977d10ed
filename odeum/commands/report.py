"""`odeum report DIR`: tables, plots and page of a comparison again, from its runs alone."""

from __future__ import annotations

import sys

from odeum.commands.options import Parser
from odeum.errors import choose


def run(argv: list[str]) -> int:
    parser = Parser("report", "Write the tables, plots and page of a comparison again, from its runs alone.")
    parser.add_argument("directory", type=str, help="of the comparison")
    parser.add_argument("--format", type=str, default="text", help="of the printed table: text, md, csv or json")
    given = parser.read(argv)
    form = choose(given.get("format", "text"), ("text", "md", "csv", "json"), "format")

    from odeum.report import read, rows, table, write

    report = write(given["directory"])
    print(table(rows(read(given["directory"])), form))
    print(f"{report.headline}\nreport: {report.page}", file=sys.stderr)
    return 0
