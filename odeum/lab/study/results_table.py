"""The results as a table of a page: a row an architecture, with its interval drawn."""

from __future__ import annotations

from collections.abc import Sequence

from odeum.lab.study.forest import forest, key, reach
from odeum.lab.study.formats import not_judged, seeds
from odeum.lab.study.markup import breakable, escaped, pill
from odeum.lab.study.prose import NONE, Scale, count, duration, memory, step_time, verdict
from odeum.lab.study.records import ComparisonRecord
from odeum.lab.study.row import Row
from odeum.lab.study.svg import PlotStyle, looks

AXIS = "Worse ← 0 → better"


def results_table(comparison: ComparisonRecord, rows: Sequence[Row]) -> str:
    """The table and what its drawings mean."""
    scale, look = Scale.of(rows), looks(comparison)
    head = (
        f"{comparison.split.capitalize()} {escaped(comparison.metric)}{f', {scale.unit.strip()}' if scale.unit else ''}"
    )
    body = []
    for row in rows:
        name = f"{key(look[row.architecture])}<div>{breakable(row.architecture)}<small>{_seeds(row)}</small></div>"
        total = count(row.training_macs) if row.training_macs else ""
        cells = [
            ("name", "Architecture", f'<div class="named">{name}</div>'),
            ("main", head, _quality(row, scale)),
            *_compared(comparison, row, rows, scale, look[row.architecture]),
            ("", "Step time", _step(row)),
            ("", "Parameters", count(row.parameters)),
            ("", "Multiply–adds an example; in training", _two(count(row.macs), total)),
            ("", "Peak memory", memory(row.peak_memory)),
        ]
        body.append(cells)
    heads = "".join(f'<th class="{kind if kind == "words" else ""}">{text}</th>' for kind, text, _ in body[0])
    heads = heads.replace(AXIS, _axis(rows, scale))
    lines = "\n".join("<tr>" + "".join(_cell(*cell) for cell in cells) + "</tr>" for cells in body)
    return (
        f'<div class="card wide"><table class="results"><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody></table></div>{_legend(rows)}"
    )


def _axis(rows: Sequence[Row], scale: Scale) -> str:
    """Which way is better, and how far the drawings reach."""
    far, up = reach(rows), 1 if rows[0].higher_is_better else -1
    ends = [scale.number(-up * far, True), "0", scale.number(up * far, True)]
    numbers = "".join(f"<span>{end}</span>" for end in ends)
    return (
        f'<span class="ends"><span>← worse</span><span>better →</span></span><span class="ends scale">{numbers}</span>'
    )


def _by_seed(comparison: ComparisonRecord, row: Row) -> list[float]:
    """The differences behind the mean, one a shared seed."""
    scores = comparison.scores(comparison.metric)
    own, base = scores.get(row.architecture, {}), scores.get(comparison.baseline or "", {})
    return [own[seed] - base[seed] for seed in sorted(own.keys() & base.keys())]


def _quality(row: Row, scale: Scale) -> str:
    summary, (other, second) = row.score, ("valid", row.valid) if row.split == "test" else ("test", row.test)
    spread = f" <span>± {scale.number(summary.spread)}</span>" if summary and summary.spread is not None else ""
    mean = f"{scale.number(summary.mean) if summary else NONE}{spread}"
    f1 = row.beside.get("macro_f1")
    below = [f"{other} {scale.number(second.mean)}" if second else "", f"macro-F1 {100 * f1.mean:.1f}" if f1 else ""]
    return _two(mean, "<br>".join(filter(None, below)))


def _compared(
    comparison: ComparisonRecord, row: Row, rows: Sequence[Row], scale: Scale, look: PlotStyle
) -> list[tuple[str, str, str]]:
    """Difference, drawing and verdict; without a baseline, letters."""
    if comparison.baseline is None:
        return [("words", "Group", f"<b>{row.group}</b>" if row.group else pill(row.verdict))]
    change, _, interval = scale.difference(row).partition(" ")
    unit = f", {scale.points.strip()}" if scale.points else ""
    return [
        ("", f"Difference to {escaped(comparison.baseline)}{unit}", _two(change, interval)),
        ("words", AXIS, forest(row, rows, look, _by_seed(comparison, row))),
        ("words", "Verdict", _two(pill(verdict(row)), _beside(row))),
    ]


def _beside(row: Row) -> str:
    """The metric that does not decide, small, below the verdict that it has no part in."""
    return f"{escaped(row.other[0])} {not_judged(row)},<br>not judged" if row.other else ""


def _legend(rows: Sequence[Row]) -> str:
    if not any(row.margin for row in rows):
        return ""
    return (
        f'<p class="soft">The grey band is the margin of ± {escaped(rows[0].margin_text)}: inside it architectures are '
        "practically equal. A small dot is one seed; an arrow is an interval that goes on.</p>"
    )


def _step(row: Row) -> str:
    """The ratio; small below it its range and what a step takes."""
    middle, _, span = step_time(row).partition(" ")
    return _two(middle, "<br>".join(filter(None, [span, duration(row.step_seconds) if row.step_seconds else ""])))


def _two(first: str, second: str) -> str:
    """A number and, small below it, what else belongs to it."""
    return f"<div>{first}<small>{second}</small></div>" if second else first


def _seeds(row: Row) -> str:
    number, _, rest = seeds(row).partition(" ")
    return f"{number} seed{'' if number == '1' else 's'} {escaped(rest)}".strip()


def _cell(kind: str, head: str, content: str) -> str:
    label = f' data-head="{head}"' if kind != "name" else ""
    return f'<td class="{kind}"{label}>{content}</td>' if kind else f"<td{label}>{content}</td>"
