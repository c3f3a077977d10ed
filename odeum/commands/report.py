"""`odeum report DIR`: tables, plots and page of a comparison again, from its runs alone."""

from __future__ import annotations

import sys

from odeum.commands.options import Parser
from odeum.compare.ranking import mean_ranks
from odeum.errors import OdeumError, choose


def run(argv: list[str]) -> int:
    parser = Parser("report", "Write the tables, plots and page of a comparison again, from its runs alone.")
    parser.add_argument("directory", nargs="+", type=str, help="of the comparison; several: a table each and a ranking")
    parser.add_argument("--format", type=str, default="text", help="of the printed table: text, md, csv or json")
    given = parser.read(argv)
    form = choose(given.get("format", "text"), ("text", "md", "csv", "json"), "format")
    directories = list(dict.fromkeys(given["directory"]))
    if len(directories) > 1 and form in ("csv", "json"):
        raise OdeumError(f"several comparisons are printed as text or md, not as {form}; report them one by one")

    from odeum.report import read, rows, table, write

    tables, higher = [], []
    for directory in directories:
        report = write(directory)
        found = read(directory)
        made = rows(found)
        if len(directories) > 1:
            print(f"{'## ' if form == 'md' else ''}{found.data} ({directory})\n")
        print(table(made, form))
        print(f"{report.headline}\nreport: {report.page}", file=sys.stderr)
        tables.append({row.architecture: row.score.mean for row in made if row.score})
        higher.append(found.higher_is_better)
    if len(directories) > 1:
        print(_overall(mean_ranks(tables, higher), len(tables)))
    return 0


def _overall(ranks: dict[str, float], count: int) -> str:
    """The mean ranks, best first; a rank has no interval, so it is no verdict."""
    if not ranks:
        return f"no architecture is in all {count} comparisons, so there is no overall ranking"
    lines = "\n".join(f"{value:6.2f}  {name}" for name, value in ranks.items())
    return f"mean rank over {count} comparisons (1 is best; an order, not a verdict)\n{lines}"
