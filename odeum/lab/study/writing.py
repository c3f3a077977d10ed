"""Everything that a comparison leaves for people, written beside its runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from odeum.errors import OdeumError, notice
from odeum.lab.study import plots
from odeum.lab.study.formats import markdown, table
from odeum.lab.study.headline import headline
from odeum.lab.study.notes import notes, warnings
from odeum.lab.study.page import page
from odeum.lab.study.records import read
from odeum.lab.study.row import rows
from odeum.storage import write_bytes


@dataclass(frozen=True)
class Report:
    """Where the report lies."""

    page: Path
    markdown: Path
    csv: Path
    plots: tuple[Path, ...]
    headline: str
    remarks: tuple[str, ...] = ()
    """what makes the comparison less than it seems, and was not told yet"""


def write(directory: str | Path, everything: bool = False) -> Report:
    """Write report.html, table.md, table.csv and plots/ into a comparison's directory, over what was there.

    `everything`: also the rows of other comparisons in the directory.
    """
    comparison = read(directory, everything)
    made, root = rows(comparison), comparison.directory
    for sentence in comparison.left_out:
        notice(sentence)
    try:
        figures = plots.draw(comparison, made, root / "plots")
    except OSError as error:
        raise OdeumError(f"cannot write '{root / 'plots'}': {error.strerror or error}") from None
    answer = headline(made, comparison.data)
    doubts = warnings(comparison, made)
    remarks = "".join(f"- {markdown(text)}\n" for text in [*doubts, *notes(comparison, made)])
    told = {f"{sentence}." for sentence in comparison.left_out}
    report = Report(
        root / "report.html",
        root / "table.md",
        root / "table.csv",
        tuple(f.svg for f in figures),
        answer.replace("`", ""),
        tuple(text.replace("`", "") for text in doubts if text not in told),
    )
    _replace(report.markdown, f"{markdown(answer)}\n\n{table(made, 'md')}\n{remarks}")
    _replace(report.csv, table(made, "csv"))
    _replace(report.page, page(comparison, made, figures))
    return report


def _replace(path: Path, text: str) -> None:
    """A reader never sees half a file."""
    write_bytes(path, text.encode(errors="replace"))
