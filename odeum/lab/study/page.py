"""One self-contained page: the answer, the table, the plots, how it was measured, and what to doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odeum.lab.study import plots
from odeum.lab.study.confusion import confusion
from odeum.lab.study.headline import headline
from odeum.lab.study.markup import document, escaped, marked, verdict_list, warning_box
from odeum.lab.study.notes import differing, notes, warnings
from odeum.lab.study.prose import NONE, Scale
from odeum.lab.study.records import ComparisonRecord
from odeum.lab.study.results_table import results_table
from odeum.lab.study.row import Row


def page(comparison: ComparisonRecord, rows: Sequence[Row], figures: Sequence[plots.Figure]) -> str:
    """The whole of report.html."""
    title = f"Which layer is worth it on {comparison.data}?"
    parts = [
        f'<p class="eyebrow">Odeum comparison · {escaped(title)}</p>',
        f"<h1>{marked(headline(rows, comparison.data))}</h1>",
        verdict_list(rows),
        warning_box(warnings(comparison, rows)),
        "<h2>Results</h2>",
        results_table(comparison, rows),
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
    return document(title, parts)


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
        lines.append(f'<tr><td class="name">{escaped(name)}</td>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    head = "<th>Architecture</th>" + "".join(f"<th>seed {seed}</th>" for seed in numbers)
    return (
        f"<details><summary>Every run: {comparison.split} {escaped(comparison.metric)} by seed</summary>"
        f'<div class="card wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        "</details>"
    )


def _plots(figures: Sequence[plots.Figure]) -> str:
    drawn = [
        f'<figure class="card"><h3>{escaped(f.title)}</h3><div class="draw">{plots.inline(f)}</div>'
        f"<figcaption>{escaped(f.caption)}</figcaption></figure>"
        for f in figures
    ]
    return f'<h2>Plots</h2><div class="plots">{"".join(drawn)}</div>' if drawn else ""


def _equations(rows: Sequence[Row]) -> str:
    lines = [
        f"<dt>{escaped(row.architecture)}</dt><dd><code>{escaped(row.equation)}</code>{_evaluations(row)}</dd>"
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
        "<dl>"
        + "".join(f"<dt>{key}</dt><dd>{escaped(value)}</dd>" for key, value in settled.items() if value)
        + "</dl>"
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
    return f'<ul class="notes">{"".join(f"<li>{marked(item)}</li>" for item in items)}</ul>'


def _repeat(comparison: ComparisonRecord) -> str:
    command = comparison.command or next(
        (run.info["command"] for run in comparison.runs if run.info.get("command")), None
    )
    if not command:
        return ""
    # The looks of --seeds auto are planned once: a larger limit would be another promise.
    added = "architectures" if comparison.seeds and comparison.seeds.auto else "seeds or architectures"
    return (
        f"<h2>Repeat or extend it</h2><pre>{escaped(command)}</pre>"
        f'<p class="soft">With more {added}, the same command keeps the runs that exist and adds the missing ones.</p>'
    )
