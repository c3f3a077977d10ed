"""A grid of words for a terminal, Markdown or a spreadsheet."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from odeum.lab.study.formats import markdown
from odeum.lab.terminal import plain


@dataclass(frozen=True)
class Grid:
    """Headings and lines; the columns in `left` are read from the left, all others are numbers."""

    heads: tuple[str, ...]
    lines: Sequence[Sequence[str]]
    left: tuple[int, ...] = (0,)

    def text(self, width: int | None = None) -> str:
        """As many columns as a terminal of this width holds; words are folded, numbers are not."""
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        room = width = width or shutil.get_terminal_size((120, 24)).columns
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        shown = 0
        for place, head in enumerate(self.heads):
            cells = [line[place] for line in self.lines]
            needed = max(map(len, [*cells, *head.split()]))
            needed = min(needed, max(width // 3, 12)) if place in self.left else needed
            room -= needed + 2
            if room < 0 and shown > 1:
                break
            justify = "left" if place in self.left else "right"
            made.add_column(Text(head), justify=justify, overflow="fold", width=needed)
            shown += 1
        for line in self.lines:
            made.add_row(*(Text(plain(cell)) for cell in line[:shown]))
        console = Console(file=io.StringIO(), width=width, color_system=None)
        with console.capture() as capture:
            console.print(made)
        return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())

    def markdown(self) -> str:
        rule = [":--" if place in self.left else "--:" for place in range(len(self.heads))]
        lines = [list(self.heads), rule, *self.lines]
        return "".join("| " + " | ".join(markdown(c).replace("|", "\\|") for c in line) + " |\n" for line in lines)

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.heads)
        writer.writerows([[f"'{cell}" if cell[:1] in "=+@" and cell else cell for cell in line] for line in self.lines])
        return out.getvalue()
