"""The result of `odeum surgery`: sentences, tables, frontier, picture and page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from odeum.lab.study import plots
from odeum.lab.study.grid import Column, Grid
from odeum.lab.study.operating import Result, Row
from odeum.lab.study.page import render
from odeum.lab.study.prose import count
from odeum.lab.study.statistics import ERROR, Difference, Ratio
from odeum.surgery import not_saved

POST_NORM = (
    "post-norm has no small-step limit: a step of length dt ends in a norm of x + dt f, so more steps are not a finer "
    "solution of one equation, and a model trained with unit steps need not gain by them"
)
ABOUT = {
    "edit": "What was changed. Layers are numbered by depth from 0.",
    "evaluations": "Evaluations of self-attention in one forward pass.",
    "parameters": "Weights that the edited model stores.",
    "depth": "Layers that wait for each other; two layers in parallel count as one.",
    "time": "Time of a forward pass beside the model as it was trained: median and range over turns.",
    "loss": "Mean loss over the confirming examples.",
    "change of loss": "Mean difference to the model as trained, paired by example, with a simultaneous interval.",
    "verdict": "Follows from the interval and the margin, as in odeum compare; undecided: how many more examples.",
    "frontier": "Costs at which no confirmed row has a lower loss for as little.",
    "influence": "1 − cosine between the states before and after the changed layers: near 0 they hardly turn a state.",
    "screened loss": "Mean loss over the screening examples.",
}
ENOUGH = 100
"""confirming examples, or groups of them, below which a note says that they are few"""


def _time(row: Row) -> float:
    """The measured time beside the model as trained: one where the turns do not agree which is faster."""
    time = row.time
    return 1.0 if time is None or time.low <= 1 <= time.high else time.middle


AXES: dict[str, Callable[[Row], float]] = {
    "evaluations": lambda row: row.cost.evaluations,
    "parameters": lambda row: row.cost.parameters,
    "time": _time,
}


def frontier(rows: Sequence[Row], axis: str) -> list[Row]:
    """The rows with the lowest loss for at most their cost, from the cheapest on."""
    cost = AXES[axis]
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (cost(row), row.loss)):
        if not best or row.loss < best[-1].loss:
            best.append(row)
    return best


def recommended(result: Result) -> Row | None:
    """The row with the fewest evaluations, then parameters, that is shown to lose nothing; none if there is none."""
    base, *others = result.rows
    fine = [row for row in others if row.loses_nothing and row.cost != base.cost and row.cost.within(base.cost)]
    return min(fine, key=lambda row: (row.cost.evaluations, row.cost.parameters, row.loss), default=None)


def headline(result: Result) -> list[str]:
    """Whether evaluations can be saved, and whether anything lowers the loss, each with its interval."""
    base, *others = result.rows
    fewer = [row for row in others if row.cost.evaluations < base.cost.evaluations]
    best = recommended(result)
    out = []
    if best is not None and best in fewer:
        saved = base.cost.evaluations - best.cost.evaluations
        out.append(f"Yes, {saved} of {base.cost.evaluations} evaluations can be saved: `{best.label}`, {_shown(best)}.")
    elif fewer and (open_rows := [row for row in fewer if row.verdict is not None and row.verdict.open]):
        nearest = min(open_rows, key=lambda row: row.loss)
        out.append(f"Undecided whether evaluations can be saved; the nearest is `{nearest.label}`, {_shown(nearest)}.")
    elif fewer:
        nearest = min(fewer, key=lambda row: row.loss)
        out.append(
            f"No, keep all {base.cost.evaluations} evaluations: the best edit with fewer, `{nearest.label}`, is "
            f"{_shown(nearest)}."
        )
    else:
        out.append("No edit with fewer evaluations was confirmed.")
    if best is not None and best not in fewer:
        out.append(f"Without fewer evaluations, `{best.label}` saves other costs: {_shown(best)}.")
    if gains := [row for row in others if row.gains]:
        lowest = min(gains, key=lambda row: row.loss)
        if lowest is not best:
            out.append(
                f"The lowest loss has `{lowest.label}`, with {lowest.cost.evaluations} evaluations: {_shown(lowest)}."
            )
    return out


def _shown(row: Row) -> str:
    assert row.verdict is not None and row.change is not None
    fine = row.verdict.open and row.loses_nothing  # whether it is also better is open
    word = "not worse by more than the margin" if fine else verdict_text(row)
    return f"{word} (change of loss {change_text(row.change)}, margin {row.margin:.2g})"


def change_text(change: Difference | None) -> str:
    """+0.004 [-0.006, +0.014]"""
    if change is None:
        return "–"
    if change.low is None or change.high is None:
        return change.problem or "–"
    if math.isinf(change.high):
        return f"{change.mean:+.3g} [too few examples change]"
    return f"{change.mean:+.3g} [{change.low:+.3g}, {change.high:+.3g}]"


def end_of(value: float | None) -> float | None:
    """The end of an interval for a file: none if it is infinite or not known."""
    return None if value is None or math.isinf(value) else value


def verdict_text(row: Row) -> str:
    """The verdict as words; of an open one the number of examples that would decide it."""
    verdict = row.verdict
    if verdict is None:
        return ""
    if verdict.word == "undecided" and (row.change is None or end_of(row.change.high) is not None):
        more = "> 1,000" if verdict.more is None else f"≈ {verdict.more}"
        return f"undecided ({more} more {row.unit})"
    return verdict.word


def ratio_text(ratio: Ratio | None) -> str:
    """0.83 [0.81, 0.90]"""
    return "–" if ratio is None else f"{ratio.middle:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def table(result: Result) -> Grid:
    """One row per confirmed edit."""
    fronts = {axis: frontier(result.rows, axis) for axis in AXES}
    heads = ["", "edit", "evaluations", "verdict", "change of loss", "loss", "parameters", "depth", "time", "frontier"]
    lines = []
    for number, row in enumerate(result.rows):
        on = ", ".join(axis for axis, rows in fronts.items() if row in rows)
        costs = [count(row.cost.parameters), str(row.cost.depth), ratio_text(row.time)]
        lines.append(
            [
                str(number or ""),
                row.label,
                str(row.cost.evaluations),
                verdict_text(row),
                change_text(row.change) if row.edit is not None else "",
                f"{row.loss:.4g}",
                *costs,
                on,
            ]
        )
    words, essential = ("", "edit", "verdict", "frontier"), ("edit", "verdict")
    cells = list(zip(*lines, strict=True))
    return Grid([Column(head, cells[i], head in words, head in essential) for i, head in enumerate(heads)])


def screened_table(result: Result) -> Grid:
    """One row per measured candidate, the lowest loss first."""
    heads = ["edit", "evaluations", "parameters", "depth", "influence", "screened loss"]
    lines = [
        [
            each.edit.label,
            str(each.cost.evaluations),
            count(each.cost.parameters),
            str(each.cost.depth),
            f"{each.influence:.3g}",
            f"{each.loss:.4g}",
        ]
        for each in sorted(result.screened, key=lambda each: each.loss)
    ]
    return Grid.of(heads, lines)


def notes(result: Result, model: Any) -> list[str]:
    """Notes on the examples, the intervals and the limits of the edits."""
    confirmed = result.rows[1:]
    looks = {row.look for row in confirmed}
    out = [
        f"{result.candidates} candidates, {len(result.screened)} measured on {result.examples[0]} examples, "
        f"{len(confirmed)} confirmed on {result.examples[1]} others.",
    ]
    if looks:
        out.append(
            f"Intervals hold together with {100 * (1 - ERROR):g} % confidence over all looks at the confirming half "
            f"({result.looks} so far; look k spends {100 * ERROR:g} % / 2^k)."
        )
    if result.groups is not None:
        out.append(
            f"The examples are windows of running text. Those of one group are not independent, so the interval counts "
            f"{result.groups[1]} {result.unit}, not {result.examples[1]} examples; no group lies in both halves."
        )
    units = result.examples if result.groups is None else result.groups
    if units[1] < ENOUGH:
        out.append(
            f"{units[1]} confirming {result.unit} are few: an effect on rare ones may not be seen in them at all."
        )
    fixed = [str(i) for i, row in enumerate(result.rows) if row.edit is not None and not_saved(model, row.edit)]
    if fixed:
        out.append(f"Measured, but --save cannot write it as a run: row {', '.join(fixed)}.")
    out += [f"refused: {name}: {reason}" for name, reason in result.refused.items()]
    if getattr(getattr(model, "architecture", None), "norm", "") in ("post", "post-sum"):
        out.append(POST_NORM)
    return out


def records(result: Result) -> list[dict[str, Any]]:
    """Rows of table.csv."""
    return [
        {
            "edit": row.label,
            "evaluations": row.cost.evaluations,
            "parameters": row.cost.parameters,
            "depth": row.cost.depth,
            "time": None if row.time is None else row.time.middle,
            "loss": row.loss,
            "screened_loss": row.screened,
            "change": None if row.change is None else row.change.mean,
            "low": None if row.change is None else end_of(row.change.low),
            "high": None if row.change is None else end_of(row.change.high),
            "verdict": verdict_text(row),
            "look": row.look or None,
        }
        for row in result.rows
    ]


def as_json(result: Result) -> dict[str, Any]:
    """All numbers."""
    return {
        "headline": headline(result),
        "examples": {"screen": result.examples[0], "confirm": result.examples[1]},
        **({} if result.groups is None else {"groups": {"unit": result.unit, "confirm": result.groups[1]}}),
        "candidates": result.candidates,
        "looks": result.looks,
        "rows": [
            record
            | {"scores": row.scores, "margin": row.margin}
            | {"level": None if row.change is None else row.change.level}
            | {"time_range": None if row.time is None else [row.time.low, row.time.high]}
            for record, row in zip(records(result), result.rows, strict=True)
        ],
        "screened": [
            {"edit": each.edit.label, **asdict(each.cost), "influence": each.influence, "loss": each.loss}
            for each in sorted(result.screened, key=lambda each: each.loss)
        ],
        "refused": result.refused,
    }


def picture(result: Result) -> bytes:
    """Loss against evaluations, parameters and time, as svg."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    base = result.rows[0]
    with plt.rc_context(plots.STYLE):
        figure, every = plt.subplots(1, len(AXES), figsize=(11, 3.6), sharey=True)
        for axes, (axis, cost) in zip(every, AXES.items(), strict=True):
            front = frontier(result.rows, axis)
            axes.plot([cost(row) for row in front], [row.loss for row in front], "-", color=plots.PALETTE[0], lw=1)
            for row in result.rows:
                colour = plots.INK if row.edit is None else plots.PALETTE[0]
                style = {"color": colour, "markersize": 5, "markerfacecolor": colour if row in front else "none"}
                axes.plot([cost(row)], [row.loss], "s" if row.edit is None else "o", **style)
                low, high = (None, None) if row.change is None else (end_of(row.change.low), end_of(row.change.high))
                if low is not None and high is not None:
                    ends = (base.loss + low, base.loss + high)
                    axes.plot([cost(row)] * 2, ends, "-", color=colour, lw=0.8)
            axes.axhline(base.loss, color=plots.GRID, lw=1, ls=":")
            axes.set_xlabel(f"{axis}{', of the model as trained' if axis == 'time' else ''}")
        every[0].set_ylabel("loss, lower is better")
        figure.tight_layout()
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
        plt.close(figure)
    return content.getvalue()


def page(result: Result, model: Any, title: str, sample: str, command: str) -> str:
    """page.html"""
    from markupsafe import Markup

    svg = picture(result).decode()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for colour, name in ((plots.INK, "ink"), (plots.GRID, "grid"), (plots.PALETTE[0], "s0")):
        svg = svg.replace(colour, f"var(--{name})")
    return render(
        "surgery.html",
        title=title,
        sample=sample,
        headline=headline(result),
        table=table(result),
        screened=screened_table(result),
        picture=Markup(svg),
        about=ABOUT,
        notes=notes(result, model),
        command=command,
    )
