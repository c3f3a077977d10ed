"""Data sets as people have them: each is read as meant or refused by name, and docs/data.md says which.

`python tests/lab/data/test_realistic_data.py` writes the table of docs/data.md again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from corpus.realistic import SETS, RealisticSet

from odeum.errors import OdeumError
from odeum.lab.tasks import open_task

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
BEGIN, END = "<!-- realistic data sets: begin -->\n", "<!-- realistic data sets: end -->"


def outcome(item: RealisticSet, folder: Path) -> tuple[str, list[str]]:
    """The kind, or `refused`; and what was said: the lines that stand before a run and every notice."""
    item.write(folder)
    paths = [word for word in item.words if not word.startswith("--")]
    options: dict[str, Any] = dict(word[2:].split("=") for word in item.words if word.startswith("--"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            task = open_task(*paths, **options)
        return task.kind, [*task.understood(), *task.notes, *(str(warning.message) for warning in told)]
    except OdeumError as error:
        return "refused", [str(error)]
    finally:
        os.chdir(before)


def row(item: RealisticSet, kind: str, said: list[str]) -> str:
    """A row of the table: the command, and the summary or the refusal."""
    words = [word if word.startswith("--kind") else word.replace("--", "--data.", 1) for word in item.words]
    command = " ".join(f"`{word}`" for word in words)
    found = said[0].partition(": ")[2] if kind != "refused" else said[0]
    notes = [line.strip() for line in said[1:] if item.fact in line]
    shown = found if item.fact in found else "; ".join([found, *notes[:1]])
    cells = (item.title, command, kind, shown)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |".replace("\n", " ")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[str]]]:
    root = tmp_path_factory.mktemp("sets")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    try:
        found = {}
        for number, item in enumerate(SETS):
            (root / str(number)).mkdir()
            found[item.title] = outcome(item, root / str(number))
        return found
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        os.environ.update({} if before is None else {"XDG_CACHE_HOME": before})


@pytest.mark.parametrize("item", SETS, ids=[item.title for item in SETS])
def test_is_read_as_meant_or_refused_by_name(item: RealisticSet, outcomes: dict[str, tuple[str, list[str]]]) -> None:
    kind, said = outcomes[item.title]
    assert kind == item.outcome and any(item.fact in line for line in said), (kind, said)


def test_the_page_has_the_table(outcomes: dict[str, tuple[str, list[str]]]) -> None:
    assert len(SETS) >= 60
    rows = [row(item, *outcomes[item.title]) for item in SETS]
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert table.splitlines()[2:] == rows, "python tests/lab/data/test_realistic_data.py writes it"


def _write_page() -> None:
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_CACHE_HOME"] = f"{root}/cache"
        rows = []
        for number, item in enumerate(SETS):
            folder = Path(root) / str(number)
            folder.mkdir()
            rows.append(row(item, *outcome(item, folder)))
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    lines = ["| you have | you give | read as | what is said |", "|---|---|---|---|", *rows]
    PAGE.write_text(head + BEGIN + "\n".join(lines) + "\n" + END + tail, encoding="utf-8")


if __name__ == "__main__":
    _write_page()
