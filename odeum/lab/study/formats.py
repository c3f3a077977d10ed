"""The table, for a paper, a spreadsheet, a program or a terminal."""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odeum.errors import choose
from odeum.lab.study.metric import metric_named
from odeum.lab.study.prose import NONE, Scale, count, memory, step_time, verdict
from odeum.lab.study.row import Row
from odeum.lab.terminal import not_computed, plain, to_json

if TYPE_CHECKING:
    from rich.table import Table

FORMATS = ("text", "md", "csv", "json")
VERDICT = "verdict"
"""the head of the column that nobody should miss"""


class Column(NamedTuple):
    """A heading and how a row is written below it."""

    head: str
    write: Callable[[Row], str]
    numeric: bool = True


def columns(rows: Sequence[Row]) -> list[Column]:
    """What a person is shown, the most important first: a terminal shows as many as fit."""
    scale = Scale.of(rows)
    metric = rows[0].metric if rows else "metric"
    split = rows[0].split if rows else "test"
    unit = f" ({scale.unit.strip()})" if scale.unit else ""
    judged, other = (split, "valid") if split == "test" else (split, "test")

    def score(part: str) -> Column:
        return Column(f"{part} {metric}{unit}", lambda row: scale.summary(row.test if part == "test" else row.valid))

    known = [score(other)] if any(row.test if other == "test" else row.valid for row in rows) else []
    unjudged = next((row.other[0] for row in rows if row.other), None)
    if unjudged:
        known.append(Column(f"{unjudged} difference (not judged)", lambda row: not_judged(row)))
    return [
        Column("architecture", lambda row: row.architecture, numeric=False),
        score(judged),
        *_compared(rows, scale),
        Column("step time", step_time),
        Column("parameters", lambda row: count(row.parameters)),
        Column("multiply–adds an example", lambda row: count(row.macs)),
        Column("peak memory", lambda row: memory(row.peak_memory)),
        Column("seeds", seeds),
        *known,
        Column("evaluations", lambda row: count(row.evaluations)),
        Column("multiply–adds of training", lambda row: count(row.training_macs)),
        Column("steps", lambda row: NONE if row.steps is None else f"{row.steps:.0f}"),
    ]


def _compared(rows: Sequence[Row], scale: Scale) -> list[Column]:
    """Differences to a baseline, or letters where there is none."""
    base = next((row.architecture for row in rows if row.is_baseline), None)
    if base is None and any(row.group for row in rows):
        return [Column("group", lambda row: row.group or NONE, numeric=False)]
    unit = f" ({scale.points.strip()})" if scale.points else ""
    return [
        Column(f"difference to {base or 'baseline'}{unit}", scale.difference),
        Column(VERDICT, verdict, numeric=False),
    ]


def not_judged(row: Row) -> str:
    """−0.012 [−0.031, +0.007] of the metric that does not decide."""
    if row.other is None:
        return NONE
    name, found = row.other
    share = metric_named(name).share
    spread = (found.spread or 0.0) * (100 if share else 1)
    digits = min(max(-math.floor(math.log10(spread)), 1), 4) if spread else 2
    return Scale(100.0 if share else 1.0, digits, "", "").interval(found.mean, found.low, found.high)


def seeds(row: Row) -> str:
    """3, or what is missing of them."""
    text = str(len(row.seeds))
    if row.diverged:
        text += f" ({len(row.diverged)} diverged)"
    return text + (f" + {len(row.unfinished)} unfinished" if row.unfinished else "")


def table(rows: Sequence[Row], format: str = "text", width: int | None = None) -> str:
    """The rows as text (of the terminal's width), Markdown, CSV or JSON; the last two hold unscaled numbers."""
    choose(format, FORMATS, "format")
    if format == "md":
        return _markdown(rows)
    if format == "json":
        return to_json([row.as_dict() for row in rows], indent=2) + "\n"
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        dicts = [row.as_dict() for row in rows]
        writer.writerow(dicts[0] if dicts else [])
        writer.writerows([_spreadsheet(value) for value in item.values()] for item in dicts)
        return out.getvalue()
    from rich.console import Console

    width = width or shutil.get_terminal_size((120, 24)).columns
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(rich_table(rows, width))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def rich_table(rows: Sequence[Row], width: int = 120) -> Table:
    """The table for `rich.print`: as much as a terminal of this width can hold, verdicts coloured.

    A verdict is what the table is for: it is broken into lines, and stands there even if the difference has no room.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    room, shown, full = width, [], False
    for column in columns(rows):
        cells = [column.write(row) for row in rows]
        needed = max(map(len, [*cells, *column.head.split()]))
        needed = min(needed, max(width // 4, 12)) if column.head == "architecture" else needed
        if column.head == VERDICT:
            needed = min(needed, max(room - 2, max(len(word) for cell in cells for word in cell.split())))
        elif full:
            continue
        if room < needed + 2 and len(shown) > 1:
            full = True
            continue
        room -= needed + 2
        shown.append(cells)
        justify = "right" if column.numeric else "left"
        made.add_column(Text(column.head), justify=justify, overflow="fold", width=needed)
    for line in zip(*shown, strict=True):
        made.add_row(*(Text(cell, style=_colour(cell)) for cell in line))
    return made


def _colour(cell: str) -> str:
    return "green" if cell.startswith("better") else "red" if cell.startswith("worse") else ""


def _markdown(rows: Sequence[Row]) -> str:
    shown = columns(rows)
    lines = [[column.head for column in shown], ["--:" if column.numeric else ":--" for column in shown]]
    lines += [[column.write(row) for column in shown] for row in rows]
    return "".join("| " + " | ".join(markdown(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def markdown(text: str) -> str:
    """Words from elsewhere in Markdown: one line, no tags, no links, no images."""
    return plain(" ".join(text.splitlines())).replace("<", "&lt;").replace("](", "]\\(")


def _spreadsheet(value: Any) -> Any:
    """A cell that a spreadsheet shows and does not compute; numbers are numbers."""
    if isinstance(value, str):
        return plain(not_computed(value))
    return "" if value is None else value
