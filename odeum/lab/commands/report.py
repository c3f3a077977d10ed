"""`odeum report DIR`: write tables, plots and page of a comparison from its runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.lab.study.grid import FORMATS
from odeum.storage import make_directory

if TYPE_CHECKING:
    from odeum.lab.study.findings import Findings


def run(argv: list[str]) -> int:
    parser = Parser("report", "Write tables, plots and page of a comparison from its runs.")
    parser.add_argument("directory", nargs="+", type=str, help="directory of a comparison; several are ranked")
    parser.shared("format")
    parser.option("out", "page of several comparisons (default: overview.html)")
    parser.option("all", "also show rows of other comparisons in the directory", bool)
    given = parser.read(argv)
    form = choose(given.get("format", "text"), FORMATS, "format")
    directories = list(dict.fromkeys(given["directory"]))
    if given.get("out") and len(directories) == 1:
        raise OdeumError("--out names the page of several comparisons; the page of one is beside its runs")
    if len(directories) > 1 and form in ("csv", "json"):
        raise OdeumError(f"several comparisons can only be printed as text or md, not {form}; report them separately")

    from odeum.lab.study.league import LEAGUE
    from odeum.lab.study.sizes import LADDER

    if leagues := [directory for directory in directories if (Path(directory) / LEAGUE).exists()]:
        from odeum.lab.commands.league import show_league

        if len(directories) > 1:
            raise OdeumError(f"'{leagues[0]}' is a league; report it alone")
        return show_league(leagues[0], form)
    ladders = [directory for directory in directories if (Path(directory) / LADDER).exists()]
    if ladders:
        if len(directories) > 1:
            raise OdeumError(f"'{ladders[0]}' is a ladder of sizes; report it separately")
        return show_ladder(ladders[0], form)

    from odeum.lab.study.page import overall_ranks
    from odeum.lab.study.report import write_overview

    everything, titled = bool(given.get("all")), len(directories) > 1
    compared = [show_comparison(directory, form, everything, titled=titled) for directory in directories]
    if len(directories) > 1:
        print(_overall(overall_ranks(compared), len(compared)))
        parents = [Path(directory).resolve().parent for directory in directories]
        page = _page(given["out"]) if given.get("out") else Path(os.path.commonpath(parents)) / "overview.html"
        print(f"all of them on one page: {write_overview(compared, page)}", file=sys.stderr)
    return 0


def show_comparison(
    directory: str | Path, form: str, everything: bool = False, *, titled: bool = False, trained: bool = False
) -> Findings:
    """Write the report of a comparison, and print its table, its headline and its notes; returns its findings.

    The notes of a comparison that was just `trained` include those on its data.
    """
    from odeum.lab.study.report import write
    from odeum.lab.study.sentences import cut_note, data_notes, hidden_note
    from odeum.lab.study.tables import table

    report = write(directory, everything)
    findings = report.findings
    if titled:
        print(f"{'## ' if form == 'md' else ''}{findings.study.data} ({directory})\n")
    print(table(findings.rows, form))
    data = data_notes(findings) if trained else []
    remarks = [*report.remarks, *data, *cut_note(findings.rows), *hidden_note(findings)]
    notes = "".join(f"note: {remark.replace('`', '')}\n" for remark in remarks)
    print(f"{report.headline}\n{notes}report: {report.page}", file=sys.stderr)
    return findings


def show_failures(failures: Sequence[str]) -> int:
    """Print the messages of failed runs; returns the exit code."""
    for failure in failures:
        print(f"odeum: {failure}", file=sys.stderr)
    return 1 if failures else 0


def show_ladder(directory: str | Path, form: str) -> int:
    """Write the report of a ladder of sizes and print its table."""
    from odeum.lab.study.ladder_report import headline, ladder_table, write

    ladder, page = write(directory)
    print(ladder_table(ladder, form))
    print(f"{headline(ladder).replace('`', '')}\nreport: {page}", file=sys.stderr)
    return 0


def _page(out: str) -> Path:
    """The given page, or overview.html in the given folder."""
    path = Path(out)
    if path.suffix and not path.is_dir():
        return path
    make_directory(path)
    return path / "overview.html"


def _overall(ranks: dict[str, float], count: int) -> str:
    """Mean ranks, best first; without intervals, so not a verdict."""
    if not ranks:
        return f"no two architectures are in all {count} comparisons, so there is no overall ranking"
    lines = "\n".join(f"{value:6.2f}  {name}" for name, value in ranks.items())
    return f"mean rank over {count} comparisons (1 is best; an order, not a verdict)\n{lines}"
