"""One self-contained page: the answer, the table, the plots, how it was measured, and what to doubt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from odeum.report import plots
from odeum.report.confusion import confusion
from odeum.report.forest import forest, key, reach
from odeum.report.formats import not_judged, seeds
from odeum.report.headline import groups, headline
from odeum.report.notes import differing, notes, warnings
from odeum.report.prose import NONE, Scale, count, duration, memory, step_time, verdict
from odeum.report.records import ComparisonRecord
from odeum.report.row import Row
from odeum.report.style import CSS
from odeum.report.svg import PlotStyle, looks

AXIS = "Worse ← 0 → better"


def page(comparison: ComparisonRecord, rows: Sequence[Row], figures: Sequence[plots.Figure]) -> str:
    """The whole of report.html."""
    title = f"Which layer is worth it on {comparison.data}?"
    parts = [
        f'<p class="eyebrow">Odeum comparison · {_text(title)}</p>',
        f"<h1>{_marked(headline(rows, comparison.data))}</h1>",
        _groups(rows),
        _warnings(comparison, rows),
        "<h2>Results</h2>",
        _results(comparison, rows),
        _every_run(comparison, rows),
        _plots(figures),
        confusion(comparison, rows),
        _equations(rows),
        "<h2>How it was measured</h2>",
        _facts(comparison),
        "<h2>How to read it</h2>",
        _list(notes(comparison, rows)),
        _repeat(comparison),
        '<p class="foot">Written by Odeum from the run directories beside this page; table.csv and plots/ hold the '
        "numbers.</p>",
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_text(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, parts))
        + "\n</main>\n</body>\n</html>\n"
    )


def _text(value: Any) -> str:
    return escape(str(value))


def _breakable(name: str) -> str:
    """A long spelling may break after its : , and =."""
    return re.sub("([:,=])", r"\1<wbr>", _text(name))


def _marked(text: str) -> str:
    """Escape first, then turn `names` bold."""
    return re.sub(r"`([^`]*)`", r"<strong>\1</strong>", _text(text))


def _pill(word: str) -> str:
    kind = next((kind for kind in ("better", "worse") if word.startswith(kind)), "even")
    sign = {"better": "▲ ", "worse": "▼ "}.get(kind, "")
    return f'<span class="pill {kind}">{sign}{_text(word)}</span>'


def _groups(rows: Sequence[Row]) -> str:
    items = [f"<li>{_pill(kind)} {_text(', '.join(names))}</li>" for kind, names in groups(rows)]
    return f'<ul class="groups">{"".join(items)}</ul>' if items else ""


def _warnings(comparison: ComparisonRecord, rows: Sequence[Row]) -> str:
    found = warnings(comparison, rows)
    return f'<div class="warn">{"".join(f"<p>{_marked(text)}</p>" for text in found)}</div>' if found else ""


def _results(comparison: ComparisonRecord, rows: Sequence[Row]) -> str:
    scale, look = Scale.of(rows), looks(comparison)
    head = (
        f"{comparison.split.capitalize()} {_text(comparison.metric)}{f', {scale.unit.strip()}' if scale.unit else ''}"
    )
    body = []
    for row in rows:
        name = f"{key(look[row.architecture])}<div>{_breakable(row.architecture)}<small>{_seeds(row)}</small></div>"
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
        return [("words", "Group", f"<b>{row.group}</b>" if row.group else _pill(row.verdict))]
    change, _, interval = scale.difference(row).partition(" ")
    unit = f", {scale.points.strip()}" if scale.points else ""
    return [
        ("", f"Difference to {_text(comparison.baseline)}{unit}", _two(change, interval)),
        ("words", AXIS, forest(row, rows, look, _by_seed(comparison, row))),
        ("words", "Verdict", _two(_pill(verdict(row)), _beside(row))),
    ]


def _beside(row: Row) -> str:
    """The metric that does not decide, small, below the verdict that it has no part in."""
    return f"{_text(row.other[0])} {not_judged(row)},<br>not judged" if row.other else ""


def _legend(rows: Sequence[Row]) -> str:
    if not any(row.margin for row in rows):
        return ""
    return (
        f'<p class="soft">The grey band is the margin of ± {_text(rows[0].margin_text)}: inside it architectures are '
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
    return f"{number} seed{'' if number == '1' else 's'} {_text(rest)}".strip()


def _cell(kind: str, head: str, content: str) -> str:
    label = f' data-head="{head}"' if kind != "name" else ""
    return f'<td class="{kind}"{label}>{content}</td>' if kind else f"<td{label}>{content}</td>"


def _every_run(comparison: ComparisonRecord, rows: Sequence[Row]) -> str:
    """The numbers behind the means: nothing is hidden in an average."""
    scale = Scale.of(rows)
    numbers = sorted({run.seed for run in comparison.runs})
    lines = []
    for name in comparison.architectures:
        found = {run.seed: run for run in comparison.of(name)}
        cells = []
        for seed in numbers:
            run = found.get(seed)
            value = run.score(comparison.split, comparison.metric) if run else None
            cells.append(scale.number(value) if value is not None else "unfinished" if run else NONE)
        lines.append(f'<tr><td class="name">{_text(name)}</td>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    head = "<th>Architecture</th>" + "".join(f"<th>seed {seed}</th>" for seed in numbers)
    return (
        f"<details><summary>Every run: {comparison.split} {_text(comparison.metric)} by seed</summary>"
        f'<div class="card wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        "</details>"
    )


def _plots(figures: Sequence[plots.Figure]) -> str:
    drawn = [
        f'<figure class="card"><h3>{_text(f.title)}</h3><div class="draw">{plots.inline(f)}</div>'
        f"<figcaption>{_text(f.caption)}</figcaption></figure>"
        for f in figures
    ]
    return f'<h2>Plots</h2><div class="plots">{"".join(drawn)}</div>' if drawn else ""


def _equations(rows: Sequence[Row]) -> str:
    lines = [
        f"<dt>{_text(row.architecture)}</dt><dd><code>{_text(row.equation)}</code>{_evaluations(row)}</dd>"
        for row in rows
        if row.equation
    ]
    return f'<h2>What each layer computes</h2><dl class="equations">{"".join(lines)}</dl>' if lines else ""


def _evaluations(row: Row) -> str:
    """What an integrator costs, in its own unit."""
    return f'<div class="soft">{row.evaluations} evaluations a forward pass</div>' if row.evaluations else ""


def _facts(comparison: ComparisonRecord) -> str:
    """What is equal in all runs, once; what differs is named in the warnings."""
    infos = [run.info for run in comparison.runs if run.info]
    if not infos:
        return "<p>No run.json could be read.</p>"
    first = infos[0]
    settled = {
        "Data": " · ".join(
            part
            for part in (comparison.data, str(first.get("kind") or ""), _mark(first)) if part
        ),
        "Judged by": f"{comparison.metric} on the {comparison.split} part, "
        f"{'higher' if comparison.higher_is_better else 'lower'} is better; "
        f"a difference matters from {comparison.facts.spell_margin(comparison.margin)} on",
        "Recipe": _settings([info.get("training") for info in infos]),
        "Model": _settings([info.get("model") for info in infos]),
        "Seeds": ", ".join(map(str, sorted({run.seed for run in comparison.runs}))),
        "Device": ", ".join(dict.fromkeys(_device(info) for info in infos if info.get("device"))),
        "Versions": _settings([info.get("versions") for info in infos]),
        "Source": str(first.get("git") or ""),
        "Dates": " to ".join(dict.fromkeys(_ends(str(info["date"]) for info in infos if info.get("date")))),
    }  # fmt: skip
    return (
        "<dl>" + "".join(f"<dt>{key}</dt><dd>{_text(value)}</dd>" for key, value in settled.items() if value) + "</dl>"
    )


def _device(info: dict[str, Any]) -> str:
    threads, processes = info.get("threads"), info.get("processes") or 1
    parts = [str(info["device"]), f"{threads} thread{'' if threads == 1 else 's'}" if threads else ""]
    return ", ".join(filter(None, [*parts, f"{processes} processes" if processes != 1 else ""]))


def _mark(info: dict[str, Any]) -> str:
    return f"fingerprint {info['fingerprint']}" if info.get("fingerprint") else ""


def _ends(values: Any) -> list[str]:
    found = sorted(values)
    return [found[0], found[-1]] if found else []


def _settings(found: Sequence[Any]) -> str:
    """`batch_size 64, epochs 10.0`: what is set, in one line; what differs shows its values."""
    dicts = [item for item in found if isinstance(item, dict)]
    varied = differing(dicts)
    pairs = [
        f"{key.replace('_', ' ')} {' or '.join(varied[key]) if key in varied else value}"
        for key, value in (dicts[0] if dicts else {}).items()
        if key in varied or value not in (None, False, "")
    ]
    return ", ".join(pairs)


def _list(items: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{_marked(item)}</li>" for item in items)}</ul>'


def _repeat(comparison: ComparisonRecord) -> str:
    command = comparison.command or next(
        (run.info["command"] for run in comparison.runs if run.info.get("command")), None
    )
    if not command:
        return ""
    return (
        f"<h2>Repeat or extend it</h2><pre>{_text(command)}</pre>"
        '<p class="soft">With more seeds or architectures, the same command keeps the runs that exist and adds the '
        "missing ones.</p>"
    )
