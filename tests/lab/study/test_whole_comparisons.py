"""The same comparison by every launcher, whole or killed on the way: the same numbers, the same words.

Each measures its own step times, so those of the first are given to the others.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
psutil = pytest.importorskip("psutil")

SMALL = "--model.width 16 --model.heads 2 --model.depth 1"
TINY = f"{SMALL} --train.steps 250 --train.batch_size 16 --train.checkpoint_every 20"
ASKED = f"digits --architectures sequential,transevolve --seeds 2 {TINY}"
CLOCK = ("seconds", "step_seconds", "step_ratio", "step_ratio_low", "step_ratio_high", "peak_memory")
"""columns that say how fast and how large, not what was found"""


def command(out: Path, launcher: str) -> list[str]:
    return [sys.executable, "-m", "odeum", "compare", *ASKED.split(), *launcher.split(), "--out", str(out)]


@contextmanager
def begun(out: Path, launcher: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command(out, launcher), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()  # of a test that failed on the way
        process.wait()


def whole(out: Path, launcher: str) -> None:
    with begun(out, launcher) as process:
        end(process)


def end(process: subprocess.Popen[str]) -> str:
    _, told = process.communicate(timeout=1200)
    assert process.returncode == 0, told
    return told


def found(out: Path) -> list[dict[str, str]]:
    """The table without its clock: metrics, intervals, verdicts, steps."""
    with (out / "table.csv").open(encoding="utf-8") as file:
        return [{key: value for key, value in row.items() if key not in CLOCK} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By one process, one run after the other."""
    out = tmp_path_factory.mktemp("one") / "out"
    whole(out, "--jobs 1")
    return out


@pytest.fixture(scope="module")
def expected(first: Path) -> list[dict[str, str]]:
    table = found(first)
    assert len(table) == 2 and all(row["seeds"] == "2" and row["verdict"] for row in table)
    return table


@pytest.fixture
def there(first: Path) -> str:
    return f"--step-times {first}"


def in_mid_run(out: Path) -> bool:
    """Whether some run has a state to go on from and no result yet."""
    return any(not (path.parent.parent / "result.json").exists() for path in out.glob("*/seed-*/checkpoint/step-*"))


def wait_for(what: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    until = time.monotonic() + 900
    while not (seen := what()):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    return seen


def workers(process: subprocess.Popen[str]) -> Iterator[Any]:
    for child in psutil.Process(process.pid).children(recursive=True):
        if "multiprocessing.spawn" in " ".join(child.cmdline()):
            yield child


def test_side_by_side(expected: list[dict[str, str]], there: str, tmp_path: Path) -> None:
    whole(tmp_path, f"--jobs 2 {there}")
    assert found(tmp_path) == expected


def test_a_killed_worker(expected: list[dict[str, str]], there: str, tmp_path: Path) -> None:
    with begun(tmp_path, f"--jobs 2 {there}") as process:
        wait_for(lambda: in_mid_run(tmp_path), process)
        next(workers(process)).kill()
        assert "it is tried again" in end(process)
    assert found(tmp_path) == expected


def test_the_whole_comparison_killed(expected: list[dict[str, str]], there: str, tmp_path: Path) -> None:
    with begun(tmp_path, f"--jobs 2 {there}") as process:
        wait_for(lambda: in_mid_run(tmp_path), process)
        orphans = list(workers(process))
        os.kill(process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(orphans, timeout=300)
    assert orphans and not alive, "workers whose parent is gone save and end"
    assert not (tmp_path / "table.csv").exists()
    whole(tmp_path, f"--jobs 2 {there}")
    assert found(tmp_path) == expected


def test_what_one_launcher_began_another_ends(expected: list[dict[str, str]], there: str, tmp_path: Path) -> None:
    with begun(tmp_path, f"--jobs 2 {there}") as process:
        wait_for(lambda: in_mid_run(tmp_path), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
        assert process.returncode == 130
    whole(tmp_path, f"--jobs 1 {there}")
    assert found(tmp_path) == expected


def test_by_ray_and_its_worker_killed(expected: list[dict[str, str]], there: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with begun(tmp_path, f"--on ray --jobs 2 {there}") as process:
        wait_for(lambda: in_mid_run(tmp_path), process)
        below = psutil.Process(process.pid).children(recursive=True)
        (busy, *_) = [child for child in below if "ray::execute" in " ".join(child.cmdline())]
        busy.kill()
        end(process)
    assert found(tmp_path) == expected
