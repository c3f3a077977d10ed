"""Progress of many runs: a live table in a terminal, occasional lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from odeum.lab.launch.worker import Event
from odeum.lab.terminal import beneath, readable
from odeum.lab.train.progress import clock_time

MARKS = {"done": "✓", "diverged": "diverged", "cut off": "cut off", "failed": "failed", "interrupted": "stopped"}
EVERY = 15.0
"""seconds between two lines without a terminal"""
BEFORE = "measuring the cost of a step …"
"""shown before the first run"""
NAME_ROOM = 16
"""width for names below which seeds share one cell"""


class Board:
    """The runs of a study: one line per row, one cell per seed, and the estimated time left."""

    def __init__(self, metric: str, percent: bool, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.metric, self.percent, self.quiet = metric, percent, quiet
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and not quiet
        self.last = time.monotonic()
        self.began: float | None = None  # time of the first progress event
        self.runs: list[tuple[str, int]] = []  # architecture and seed
        self.fractions: dict[int, float] = {}
        self.places: dict[tuple[str, int], int] = {}  # index of each in `runs`
        self.over: set[int] = set()  # runs that ended
        self.resumed_at: dict[int, float] = {}  # progress of resumed runs at their start
        self.cells: dict[int, str] = {}
        self._live: Any = None

    def show(self, runs: Sequence[tuple[str, int]], split: str = "test") -> None:
        """Adds rows and seeds that come next; those of an earlier look stay in the table.

        `split` is the part whose metric is shown: of tuning runs that of the validation part alone.
        """
        self.offset, self.split = len(self.runs), split
        self.runs += runs
        self.places = {run: index for index, run in enumerate(self.runs)}

    def __enter__(self) -> Board:
        if self.live:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=beneath(self.stream))
            self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)
            self._live = None

    def tell(self, number: int, event: Event) -> None:
        """Receives an event of a run of the last `show`."""
        index = self.offset + number
        (name, seed), content = self.runs[index], event.content
        title = f"{name} seed {seed}"
        if event.kind == "progress":
            self.fractions[index] = float(content.get("fraction", self.fractions.get(index, 0.0)))
            self.began = self.began or time.monotonic()
            self.resumed_at.setdefault(index, self.fractions[index])
            self.cells[index] = f"{self.fractions[index]:.0%}"
            self._now_and_then()
        elif event.ends:
            self.over |= {index} if event.kind != "interrupted" else set()
            self.fractions[index] = 1.0 if event.kind != "interrupted" else self.fractions.get(index, 0.0)
            self.resumed_at.setdefault(index, 0.0 if self.began else 1.0)
            self.cells[index] = self._result(event)
            self._line(f"{title}  {self._ending(event)}")
        elif event.kind == "said":
            self._line(f"{title}  {content['text']}", only_plain=True)

    def _ending(self, event: Event) -> str:
        if event.kind == "done" and self.metric in event.content.get(self.split, {}):
            return f"done: {self.split} {self.metric} {self._result(event)}"
        return f"{MARKS[event.kind]}: {event.content.get('sentence', event.content.get('failed', ''))}"

    def _result(self, event: Event) -> str:
        value = event.content.get(self.split, {}).get(self.metric) if event.kind == "done" else None
        if not isinstance(value, int | float):
            return MARKS[event.kind]
        return f"{100 * value:.1f}" if self.percent else f"{value:.4g}"

    @property
    def left(self) -> str:
        """Estimated time left for all runs; earlier progress of resumed runs does not count as done now."""
        done = sum(self.fractions.values()) - sum(self.resumed_at.values())
        left = len(self.runs) - sum(self.fractions.values())
        if self.began is None or done <= 0.01 * (done + left):
            return "?" if left else clock_time(0)
        return clock_time((time.monotonic() - self.began) * left / done)

    @property
    def ended(self) -> int:
        return len(self.over)

    def _summary(self) -> str:
        return f"{self.ended} of {len(self.runs)} runs, {self.left} left"

    def _now_and_then(self) -> None:
        now = time.monotonic()
        if not self.live and not self.quiet and now - self.last > EVERY:
            self.last = now
            going = [
                f"{name} seed {seed} {self.cells[i]}"
                for i, (name, seed) in enumerate(self.runs)
                if self.fractions.get(i, 0) > 0 and i not in self.over
            ]
            self._write(f"{self._summary()}: {', '.join(going)}")

    def _line(self, text: str, only_plain: bool = False) -> None:
        if self.quiet or (only_plain and self.live):
            return
        self._write(f"[{self.ended}/{len(self.runs)}] {text}")

    def _write(self, text: str) -> None:
        text = readable(text, self.stream)
        try:
            if self._live is not None:
                self._live.console.print(text, highlight=False, markup=False, overflow="ellipsis", no_wrap=True)
            else:
                self.stream.write(text + "\n")
                self.stream.flush()
        except BrokenPipeError:  # the reader is gone; the runs continue
            self.quiet = True

    def _table(self) -> Any:
        """A table that fits the terminal: one cell per seed if there is room, else the number of finished runs."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        if not self.runs:
            return Text(BEFORE)
        names = list(dict.fromkeys(name for name, _ in self.runs))
        seeds = sorted({seed for _, seed in self.runs})
        rows = [[self._cell(name, seed) for seed in seeds] for name in names]
        heads = [f"seed {seed}" for seed in seeds]
        width = self._live.console.width if self._live is not None else 80
        if self._room(heads, rows, width) < min(NAME_ROOM, max(map(len, names), default=0)):
            heads, rows = ["done"], [[self._done(name)] for name in names]
        table = Table(box=SIMPLE_HEAD, caption=self._summary(), caption_justify="left")
        table.add_column(
            "architecture", no_wrap=True, overflow="ellipsis", max_width=max(1, self._room(heads, rows, width))
        )
        for head in heads:
            table.add_column(head, justify="right", no_wrap=True)
        for name, cells in zip(names, rows, strict=True):
            table.add_row(Text(name), *map(Text, cells))
        return table

    def _room(self, heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
        """The width left for names beside these columns."""
        columns = zip(heads, *rows, strict=True)
        return width - 4 - sum(3 + max(map(len, column)) for column in columns)

    def _cell(self, name: str, seed: int) -> str:
        index = self.places.get((name, seed))
        return "" if index is None else self.cells.get(index, "·")

    def _done(self, name: str) -> str:
        seeds = [index for (other, _), index in self.places.items() if other == name]
        return f"{len(self.over & set(seeds))}/{len(seeds)}"
