"""Which classes are taken for which: the confusion matrix of the best architecture, over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from odeum.errors import notice
from odeum.lab.study.records import ComparisonRecord, RunRecord
from odeum.lab.study.row import Row
from odeum.lab.train.rundir import RunDir, whole

MOST = 20
"""classes that a page has room for"""


def best(rows: Sequence[Row]) -> Row | None:
    """The row with the best mean."""
    done = [row for row in rows if row.score]
    return max(
        done, key=lambda row: (row.score.mean if row.score else 0.0) * (1 if row.higher_is_better else -1), default=None
    )


def confusion(comparison: ComparisonRecord, rows: Sequence[Row]) -> str:
    """A table of shares of each true class; nothing where the runs kept no matrix."""
    row = best(rows)
    found = [kept for run in comparison.finished(row.architecture) if (kept := _read(run))] if row else []
    if row is None or not found or any(classes != found[0][0] for classes, _ in found):
        return ""
    classes = found[0][0]
    total = [[sum(counts[i][j] for _, counts in found) for j in range(len(classes))] for i in range(len(classes))]
    head = "".join(f"<th>{escape(name)}</th>" for name in classes)
    lines = "".join(
        f'<tr><td class="name">{escape(name)}</td>'
        f"{''.join(_cell(x, sum(counts), i == j) for j, x in enumerate(counts))}</tr>"
        for i, (name, counts) in enumerate(zip(classes, total, strict=True))
    )
    return (
        f"<h2>What {escape(row.architecture)} takes for what</h2>"
        f'<div class="card wide"><table class="confusion"><thead><tr><th>true ↓ said →</th>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
        f'<p class="soft">Test examples of the architecture with the best mean, summed over {len(found)} '
        f"seed{'' if len(found) == 1 else 's'}; colours are shares of the true class.</p>"
    )


def _cell(value: int, total: int, right: bool) -> str:
    share = round(100 * value / total) if total else 0
    colour = "--s2" if right else "--s1"
    style = f' style="background: color-mix(in srgb, var({colour}) {share * 0.7:.0f}%, transparent)"' if value else ""
    return f"<td{style}>{value or '·'}</td>"


def _read(run: RunRecord) -> tuple[list[str], list[list[int]]] | None:
    """What a run kept, if it is a square of counts that has a place on a page."""
    damaged: list[str] = []
    content = RunDir(run.path).read("confusion.json", damaged) or {}
    for sentence in damaged:
        notice(sentence)
    classes, counts = content.get("classes"), content.get("counts")
    if not isinstance(classes, list) or not isinstance(counts, list) or not 0 < len(classes) <= MOST:
        return None
    square = [[whole(x) for x in line] if isinstance(line, list) else [] for line in counts]
    if len(square) != len(classes) or any(len(line) != len(classes) or None in line for line in square):
        return None
    return [str(name) for name in classes], [[x or 0 for x in line] for line in square]
