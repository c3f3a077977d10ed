"""Tables of text cells for terminals, Markdown, spreadsheets and pages; `rendered` writes those of every study."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odeum.errors import choose
from odeum.lab.terminal import not_computed, plain, to_json

FORMATS = ("text", "md", "csv", "json")


@dataclass(frozen=True)
class Column:
    """A heading and its cells."""

    head: str
    cells: Sequence[str]
    words: bool = False
    """left-aligned text instead of right-aligned numbers"""
    verdicts: bool = False
    """verdicts, which a page colours"""
    essential: bool = False
    """shown in a narrow terminal even if columns before it do not fit; its words are folded"""


@dataclass(frozen=True)
class Grid:
    """Columns of equal length, the most important first."""

    columns: Sequence[Column]

    @classmethod
    def of(cls, heads: Sequence[str], lines: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> Grid:
        """From headings and lines; `words` are the numbers of the columns with text."""
        cells = list(zip(*lines, strict=True)) or [()] * len(heads)
        return cls([Column(head, cells[i], i in words) for i, head in enumerate(heads)])

    @property
    def lines(self) -> list[tuple[str, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))

    def text(self, width: int | None = None) -> str:
        """The columns that fit into a terminal of this width; text is folded, numbers are not."""
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        room = width = width or shutil.get_terminal_size((120, 24)).columns
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        shown: list[Column] = []
        full = False
        for column in self.columns:
            needed = max(map(len, [*column.cells, *column.head.split()]))
            if column.essential:
                longest = max((len(word) for cell in column.cells for word in cell.split()), default=1)
                needed = min(needed, max(room - 2, longest))
            elif full:
                continue
            elif column.words:
                needed = min(needed, max(width // 3, 12))
            if room < needed + 2 and len(shown) > 1:
                full = True
                continue
            room -= needed + 2
            shown.append(column)
            justify = "left" if column.words else "right"
            table.add_column(Text(column.head), justify=justify, overflow="fold", width=needed)
        for line in Grid(shown).lines:
            table.add_row(*(Text(plain(cell)) for cell in line))
        console = Console(file=io.StringIO(), width=width, color_system=None)
        with console.capture() as capture:
            console.print(table)
        return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())

    def blocks(self, width: int | None = None) -> str:
        """All columns as text: those that do not fit follow below, again after the first one."""
        width = width or shutil.get_terminal_size((120, 24)).columns
        columns = [[column.head, *column.cells] for column in self.columns]
        widths = [max(map(len, column)) + 2 for column in columns]
        groups, room = [[0]], width - widths[0]
        for i in range(1, len(widths)):
            if widths[i] - 2 > room and len(groups[-1]) > 1:
                groups.append([0])
                room = width - widths[0]
            groups[-1].append(i)
            room -= widths[i]
        lines = list(zip(*columns, strict=True))
        return "\n\n".join(
            "\n".join("".join(f"{line[i]:{widths[i]}}" for i in group).rstrip() for line in lines) for group in groups
        )

    def markdown(self) -> str:
        rule = [":--" if column.words else "--:" for column in self.columns]
        lines = [[column.head for column in self.columns], rule, *self.lines]
        return "".join("| " + " | ".join(markdown(c).replace("|", "\\|") for c in line) + " |\n" for line in lines)


def rendered(
    form: str,
    grids: Sequence[Grid | str],
    records: Sequence[Mapping[str, Any]],
    content: Any = None,
    *,
    indent: int = 2,
    width: int | None = None,
) -> str:
    """Grids and lines between them as text (of this width) or Markdown, the records behind them as CSV or JSON.

    `content` is written as JSON instead of the records, if there is more to say.
    """
    if choose(form, FORMATS, "format") == "json":
        return to_json(records if content is None else content, indent=indent) + "\n"
    if form == "csv":
        return to_csv(records)
    written = (
        part if isinstance(part, str) else part.markdown() if form == "md" else part.text(width) for part in grids
    )
    return "\n".join(written)


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Unscaled values with a heading; no cell is a formula to a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(records[0] if records else [])
    writer.writerows([_spreadsheet(value) for value in record.values()] for record in records)
    return out.getvalue()


def _spreadsheet(value: Any) -> Any:
    if isinstance(value, str):
        return plain(not_computed(value))
    return "" if value is None else value


def markdown(text: str) -> str:
    """Foreign text in Markdown: one line, no tags, no links, no images."""
    return plain(" ".join(text.splitlines())).replace("<", "&lt;").replace("](", "]\\(")
