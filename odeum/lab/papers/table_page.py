"""One self-contained page a table: the verdicts, the figures beside the paper's, plots, and what was made smaller."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from odeum.lab.papers.grid import Grid
from odeum.lab.papers.judging import RowResult, TableResult
from odeum.lab.papers.picture import claims_picture
from odeum.lab.papers.printing import claim_grid, cost_claim_grid, print_table, remarks, row_grid
from odeum.lab.study import plots
from odeum.lab.study.records import ComparisonRecord, RunRecord
from odeum.lab.study.row import rows
from odeum.lab.study.style import CSS
from odeum.storage import make_directory, slug, write_bytes


def write_table(result: TableResult, directory: Path) -> Path:
    """table.md, table.csv, report.html and plots/ in a folder of the table's name below the directory."""
    folder = directory / slug(result.table.name)
    make_directory(folder)
    record = as_comparison(result, folder)
    figures = plots.draw(record, rows(record), folder / "plots") if record.runs else []
    write_bytes(folder / "table.md", print_table(result, "md").encode())
    write_bytes(folder / "table.csv", print_table(result, "csv").encode())
    write_bytes(folder / "report.html", table_page(result, figures).encode(errors="replace"))
    return folder / "report.html"


def table_page(result: TableResult, figures: list[plots.Figure]) -> str:
    """The whole of report.html."""
    table = result.table
    told = [found.opinion for found in result.claims]
    counts = ", ".join(f"{told.count(word)} {word}" for word in dict.fromkeys(told))
    drawn = "".join(
        f'<figure class="card"><h3>{escape(f.title)}</h3><div class="draw">{plots.inline(f)}</div>'
        f"<figcaption>{escape(f.caption)}</figcaption></figure>"
        for f in figures
    )
    parts = [
        f'<p class="eyebrow">{escape(table.name)} · {result.scale} scale</p>',
        f"<h1>{escape(table.title)}</h1>",
        f"<p>{len(told)} claims: {escape(counts)}.</p>" if told else "",
        f'<div class="card wide">{claims_picture([result])}</div>' if told else "",
        f"<h2>Claims</h2>{_table(claim_grid(result, result.claims))}" if told else "",
        f"<h2>Costs</h2>{_table(cost_claim_grid(result))}" if result.costs else "",
        f"<h2>Rows</h2>{_table(row_grid(result, result.rows))}",
        f'<h2>Plots</h2><div class="plots">{drawn}</div>' if drawn else "",
        "<h2>How to read it</h2>",
        f'<ul class="notes">{"".join(f"<li>{escape(line)}</li>" for line in remarks(result))}</ul>',
        '<p class="foot">Written by Odeum from kept results; table.csv and plots/ hold the numbers.</p>',
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(table.title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{CSS}td.words {{ white-space: normal; }}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, parts))
        + "\n</main>\n</body>\n</html>\n"
    )


def _table(grid: Grid) -> str:
    """As the page of a comparison has it: numbers right, words left."""
    heads = "".join(f"<th{_left(grid, place)}>{escape(head)}</th>" for place, head in enumerate(grid.heads))
    lines = "\n".join(
        "<tr>" + "".join(f"<td{_left(grid, place)}>{escape(cell)}</td>" for place, cell in enumerate(line)) + "</tr>"
        for line in grid.lines
    )
    return f'<div class="card wide"><table><thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>'


def _left(grid: Grid, place: int) -> str:
    return ' class="words"' if place in grid.left else ""


def as_comparison(result: TableResult, directory: Path) -> ComparisonRecord:
    """The rows that ran as the runs of one comparison, so that its plots are drawn alike; its verdicts are not used."""
    table = result.table
    found = [row for row in result.rows if row.runs]
    return ComparisonRecord(
        directory=directory,
        runs=tuple(record for row in found for record in _records(row, table.metric, directory)),
        architectures=tuple(row.row.name for row in found),
        baseline=found[0].row.name if found else None,
        metric=table.metric,
        other=None,
        higher_is_better=table.judged.higher_is_better,
        margin=table.margin,
        seeds=table.seeds,
        looked=(),
        overlap=0.0,
        split=table.split,
        data=table.title,
        match=None,
        command=None,
        left_out=(),
        pace=None,
    )


def _records(row: RowResult, metric: str, directory: Path) -> list[RunRecord]:
    out = []
    for seed, run in row.runs.items():
        curve: tuple[dict[str, Any], ...] = tuple(
            {"split": "valid", "step": int(step), metric: value} for step, value in run.curve
        )
        info = dict(run.content.get("facts") or {})
        out.append(RunRecord(row.row.name, seed, directory, info, curve, dict(run.content)))
    return out
