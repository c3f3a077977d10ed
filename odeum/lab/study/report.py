"""Reports: results are read once and judged once; table, plots and page are written from that. No model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from odeum.errors import OdeumError, notice
from odeum.lab.study import plots
from odeum.lab.study.findings import Findings, judged
from odeum.lab.study.grid import markdown
from odeum.lab.study.page import comparison_page, overview_page, table_page
from odeum.lab.study.runs import read
from odeum.lab.study.sentences import conclusion, notes, warnings
from odeum.lab.study.tables import paper_table, table, tuning_grid
from odeum.storage import make_directory, slug, write_bytes


@dataclass(frozen=True)
class Report:
    """The findings of a comparison and the paths of its report."""

    findings: Findings
    page: Path
    markdown: Path
    csv: Path
    plots: tuple[Path, ...]
    headline: str
    remarks: tuple[str, ...] = ()
    """warnings that have not been printed yet"""


def write(directory: str | Path, everything: bool = False) -> Report:
    """Write report.html, table.md, table.csv and plots/ into a comparison's directory, over what was there."""
    findings = judged(read(directory, everything))
    root, problems = findings.results.directory, findings.results.problems
    for sentence in problems:
        notice(sentence)
    figures = _draw(findings, root / "plots")
    answer, doubts = conclusion(findings), warnings(findings)
    remarks = "".join(f"- {markdown(text)}\n" for text in [*doubts, *notes(findings)])
    printed = {f"{sentence}." for sentence in problems}
    report = Report(
        findings,
        root / "report.html",
        root / "table.md",
        root / "table.csv",
        tuple(figure.svg for figure in figures),
        answer.replace("`", ""),
        tuple(text.replace("`", "") for text in doubts if text not in printed),
    )
    tuning = tuning_grid(findings)
    tuned = f"**Tuning**\n\n{tuning.markdown()}\n" if tuning else ""
    _write(report.markdown, f"{markdown(answer)}\n\n{table(findings.rows, 'md')}\n{tuned}{remarks}")
    _write(report.csv, table(findings.rows, "csv"))
    _write(report.page, comparison_page(findings, figures))
    return report


def write_table(findings: Findings, directory: Path) -> Path:
    """Write table.md, table.csv, report.html and plots/ of a paper's table into a folder of its name."""
    folder = directory / slug(findings.study.name)
    make_directory(folder)
    figures = _draw(findings, folder / "plots") if findings.results.runs else []
    _write(folder / "table.md", paper_table(findings, "md"))
    _write(folder / "table.csv", paper_table(findings, "csv"))
    _write(folder / "report.html", table_page(findings, figures))
    return folder / "report.html"


def write_overview(compared: Sequence[Findings], path: Path) -> Path:
    """Write one page of several comparisons."""
    _write(path, overview_page(compared, path))
    return path


def _draw(findings: Findings, folder: Path) -> list[plots.Figure]:
    try:
        return plots.draw(findings, folder)
    except OSError as error:
        raise OdeumError(f"cannot write '{folder}': {error.strerror or error}") from None


def _write(path: Path, text: str) -> None:
    """A reader never sees half a file."""
    write_bytes(path, text.encode(errors="replace"))
