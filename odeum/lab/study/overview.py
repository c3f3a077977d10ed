"""Several comparisons on one page: a table each, and who is ahead over all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from odeum.lab.study.headline import headline
from odeum.lab.study.markup import document, escaped, marked, verdict_list, warning_box
from odeum.lab.study.notes import warnings
from odeum.lab.study.ranking import mean_ranks
from odeum.lab.study.records import ComparisonRecord
from odeum.lab.study.results_table import results_table
from odeum.lab.study.row import Row
from odeum.storage import write_bytes

Compared = tuple[ComparisonRecord, Sequence[Row]]


def overall_ranks(found: Sequence[Compared]) -> dict[str, float]:
    """The mean rank of each architecture that all comparisons have, the best first; of one alone there is none."""
    tables = [{row.architecture: row.score.mean for row in rows if row.score} for _, rows in found]
    ranks = mean_ranks(tables, [record.higher_is_better for record, _ in found])
    return ranks if len(ranks) > 1 else {}


def _names(found: Sequence[Compared]) -> list[str]:
    """Of the comparisons: their data and, where two have the same, also their folder."""
    data = [record.data for record, _ in found]
    return [name if data.count(name) == 1 else f"{name} ({record.directory.name})"
            for name, (record, _) in zip(data, found, strict=True)]  # fmt: skip


def write_overview(found: Sequence[Compared], path: Path) -> Path:
    """Write one page of several comparisons, which links to the page of each."""
    title = f"Which layer is worth it? {len(found)} comparisons"
    parts = [
        f'<p class="eyebrow">Odeum · {len(found)} comparisons</p>',
        f"<h1>{marked(_answer(overall_ranks(found)))}</h1>",
        _ranking(overall_ranks(found), found),
    ]
    for name, (record, rows) in zip(_names(found), found, strict=True):
        place = quote(os.path.relpath(record.directory / "report.html", path.parent))
        parts += [
            f"<h2>{escaped(name)}</h2>",
            f"<p>{marked(headline(rows, record.data))}</p>",
            verdict_list(rows),
            warning_box(warnings(record, rows)),
            results_table(record, rows),
            f'<p class="soft"><a href="{place}">The whole report</a>: plots, how it was measured, what to doubt.</p>',
        ]
    write_bytes(path, document(title, parts).encode(errors="replace"))
    return path


def _answer(ranks: Mapping[str, float]) -> str:
    """A rank has no interval, so it is an order and no verdict."""
    if not ranks:
        return "No two architectures are in all of these comparisons, so there is no order over all of them."
    best = [name for name, rank in ranks.items() if rank == min(ranks.values())]
    names = " and ".join(f"`{name}`" for name in best)
    return (
        f"{names} {'has' if len(best) == 1 else 'have'} the best mean rank; what each comparison decides stands below."
    )


def _ranking(ranks: Mapping[str, float], found: Sequence[Compared]) -> str:
    """Mean ranks beside the word of each comparison."""
    if not ranks:
        return ""
    heads = "".join(f'<th class="words">{escaped(name)}</th>' for name in _names(found))
    lines = []
    for name, rank in ranks.items():
        verdicts = [next(row.verdict for row in rows if row.architecture == name) for _, rows in found]
        cells = "".join(f'<td class="words">{escaped(word)}</td>' for word in verdicts)
        lines.append(f'<tr><td class="name">{escaped(name)}</td><td>{rank:.2f}</td>{cells}</tr>')
    return (
        f'<div class="card wide"><table><thead><tr><th>Architecture</th><th>Mean rank</th>{heads}</tr></thead>'
        f'<tbody>{"".join(lines)}</tbody></table></div><p class="soft">Ranks by the mean score of each comparison, 1 '
        "is best: an order, not a verdict.</p>"
    )
