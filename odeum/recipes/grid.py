"""A grid of words for a terminal, Markdown or a spreadsheet."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from odeum.report.formats import markdown
from odeum.terminal import plain


@dataclass(frozen=True)
class Grid:
    """Headings and lines; the columns in `left` are read from the left, all others are numbers."""

    heads: tuple[str, ...]
    lines: Sequence[Sequence[str]]
    left: tuple[int, ...] = (0,)

    def text(self, width: int | None = None) -> str:
        """As wide as the terminal: what does not fit is folded."""
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for place, head in enumerate(self.heads):
            text = place in self.left
            made.add_column(Text(head), justify="left" if text else "right", overflow="fold", no_wrap=not text)
        for line in self.lines:
            made.add_row(*(Text(plain(cell)) for cell in line))
        width = width or shutil.get_terminal_size((120, 24)).columns
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
