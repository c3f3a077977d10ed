"""What is seen while runs go on: fits any width, and the time left counts only what was done since."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from odeum.lab.commands import board as boards
from odeum.lab.commands.board import Board
from odeum.lab.launch.worker import Event

NAMES = ("sequential", "parallel:independent=3,norm=shared", "transevolve:random-1")
DONE = Event("done", {"test": {"accuracy": 0.98}})


def going(width: int, seeds: int) -> str:
    """The live table of a comparison in its middle."""
    board = Board("accuracy", True, stream=io.StringIO())
    console = Console(file=io.StringIO(), width=width)
    board._live = SimpleNamespace(console=console)
    board.show([(name, seed) for seed in range(seeds) for name in NAMES])
    console.print(board._table())
    for number in range(4):
        board.tell(number, DONE)
    board.tell(4, Event("progress", {"fraction": 0.4}))
    board.tell(5, Event("diverged", {"sentence": "its loss is not finite", "failed": "its loss is not finite"}))
    console.file = io.StringIO()
    console.print(board._table())
    return console.file.getvalue()


@pytest.mark.parametrize("seeds", [3, 12])
@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
def test_the_table_fits_and_loses_names_first(width: int, seeds: int) -> None:
    shown = going(width, seeds)
    assert all(len(line) <= width for line in shown.splitlines())
    assert ("98.0" in shown and "40%" in shown and "diverged" in shown) or f"1/{seeds}" in shown
    assert ("seed 0" in shown) == (width >= {3: 60, 12: 200}[seeds])


def test_before_there_are_runs_it_says_what_is_done() -> None:
    """No empty table, and no "0 of 0 runs, 0s left"."""
    console, out = Console(file=(file := io.StringIO()), width=24), Board("accuracy", True, stream=io.StringIO())
    console.print(out._table())
    shown = file.getvalue()
    assert "measuring" in shown and "0 of 0" not in shown and all(len(line) <= 24 for line in shown.splitlines())


def test_what_was_there_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of ten runs of an earlier call; then ten seconds for half a run, and one and a quarter are left."""
    now = 100.0
    monkeypatch.setattr(boards.time, "monotonic", lambda: now)
    board = Board("accuracy", True, stream=io.StringIO())
    board.show([("sequential", seed) for seed in range(10)])
    for number in range(8):
        board.tell(number, DONE)
    assert board.left == "?"
    now = 200.0  # the pace was measured meanwhile
    board.tell(8, Event("progress", {"fraction": 0.25}))  # it goes on where it was
    now = 210.0
    board.tell(8, Event("progress", {"fraction": 0.75}))
    assert board.left == "25s"
    board.tell(8, DONE)
    now = 230.0
    board.tell(9, DONE)
    assert board.left == "0s"


def test_plain_lines_where_nobody_looks_on_and_none_when_quiet() -> None:
    for quiet in (False, True):
        stream = io.StringIO()
        with Board("perplexity", False, quiet=quiet, stream=stream) as board:
            board.show([("rk4", 0)])
            board.tell(0, Event("progress", {"fraction": 1.0}))  # trained, not yet evaluated
            board.tell(0, Event("said", {"text": "evaluating"}))
            board.tell(0, Event("done", {"test": {"perplexity": 12.345678}}))
        told = "[0/1] rk4 seed 0  evaluating\n[1/1] rk4 seed 0  done: test perplexity 12.35\n"
        assert stream.getvalue() == ("" if quiet else told)
