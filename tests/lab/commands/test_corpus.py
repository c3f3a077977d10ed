"""Bad command lines, data files and run folders: exit code 2, one sentence, at once, and nothing left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from corpus import bridges, commands, data_files, run_folders
from corpus.case import Case

from odeum.lab.cli import main

LIMIT = 60
"""seconds for one case on a machine that does other things too; each takes a fraction of one"""

CASES = [*commands.CASES, *data_files.CASES, *run_folders.CASES, *bridges.CASES]


@pytest.fixture(scope="module", autouse=True)
def finished(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two finished runs and an imported one, to be copied and damaged."""
    root = tmp_path_factory.mktemp("runs")
    (root / "rows.csv").write_bytes(data_files.ROWS)
    for source, out in (("digits", "images"), (str(root / "rows.csv"), "texts")):
        assert main(["train", source, *run_folders.TINY, "--out", str(root / out)]) == 0
    run_folders.made_in[:] = [root]
    bridges.make(root)


@contextmanager
def at_once(seconds: int) -> Generator[None]:
    """What does not come back is a failure too."""

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError(f"no answer in {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def content(folder: Path) -> dict[str, object]:
    """Every name below a folder, with what would show that it was written to."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = os.lstat(path)
        found[str(path.relative_to(folder))] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
    return found


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=pytest.mark.slow if case.again else ()) for case in CASES]
)
def test_one_sentence(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    case.prepare(tmp_path)
    before = content(tmp_path)
    with at_once(LIMIT):
        code = main(list(case.words))
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.startswith("odeum: ") and err.count("\n") == 1, (code, out, err)
    assert case.fragment in err and "Traceback" not in err
    assert content(tmp_path) == before


def test_there_are_enough() -> None:
    names = [case.name for case in CASES]
    assert sum(not case.again for case in CASES) >= 300 and len(names) == len(set(names))
