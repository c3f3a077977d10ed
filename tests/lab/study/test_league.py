"""A league at a tiny scale: screened, confirmed, ranked; killed and continued; one row repeated; kept as lines."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from registries import kept_registries

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.study.design import TUNING
from odeum.lab.study.league import Cell, keep_league, plan_of, read_league
from odeum.lab.study.league_report import Outcome, answer, commands, read, records
from odeum.lab.study.runs import read as read_comparison
from odeum.lab.study.tuning import SEED

pytestmark = pytest.mark.usefixtures("without_plots")

PLAN = """
name: tiny
baseline: sequential
entries: [parallel, "keel", mudd]
tune: 3
finalists: 2
seeds: 3
tasks:
  images:
    words: digits --model.heads 2 --train.batch_size 64
    sizes:
      8x1: --model.width 8 --model.depth 1 --train.steps 6
      16x2: --model.width 16 --model.depth 2 --train.steps 6
"""
PLUGIN = """
from dataclasses import dataclass
import odeum

@odeum.register.architecture("mine")
@dataclass(frozen=True)
class Mine(odeum.Stepped):
    def field(self, shape):
        return odeum.Sum(*odeum.terms(shape))
"""


def write_plan(folder: Path, plan: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(plan)
    return path


def words(folder: Path, plan: str = PLAN) -> list[str]:
    (folder / "mine.py").write_text(PLUGIN)
    league = ["league", str(write_plan(folder, plan)), "--entries", "mine", "--out", str(folder / "out")]
    return [*league, "--plugin", str(folder / "mine.py"), "--jobs", "1", "--quiet"]


def odeum(words: list[str]) -> int:
    """The command, without keeping the names that its plugin registers."""
    with kept_registries():
        return main(words)


def results(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("result.json"))}


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("league")
    assert odeum(words(folder)) == 0
    return folder / "out"


def test_all_entries_are_screened_and_the_best_confirmed_with_fresh_seeds(league: Path) -> None:
    found = read(league)
    assert found.league.entries == ("parallel", "keel", "mudd", "mine") and len(found.outcomes) == 2
    for each in found.outcomes:
        folder = each.cell.folder(league)
        assert {path.name for path in (folder / TUNING).iterdir()} == {"sequential", *found.league.entries}
        assert {path.name for path in folder.glob(f"{TUNING}/*/*/*")} == {f"seed-{SEED}"}
        assert list(each.values.values()) == sorted(each.values.values(), reverse=True)  # accuracy
        assert each.confirmed == tuple(each.values)[:2]
        assert {run.row for run in read_comparison(folder).runs} == {"sequential", *each.confirmed}
        assert set(each.gains) == {"sequential", *each.confirmed} and not each.problem
    sentences = answer(found)
    assert len(sentences) == 5 and sentences[0].startswith("4 architectures beside `sequential` on 1 task (images)")
    page, table = (league / "report.html").read_text(), (league / "league.md").read_text()
    assert "Repeat a row" in page and sentences[4] in page
    assert "| mine |" in table and "images/8x1" in table and (league / "league.csv").exists()


def test_a_row_is_repeated_by_its_command(league: Path, tmp_path: Path) -> None:
    each = read(league).outcomes[1]
    label, command = next((label, command) for label, command in commands(read(league), each) if label != "mine")
    repeated = shlex.split(command)[1:-1]
    assert main([*repeated, str(tmp_path), "--jobs", "1", "--quiet"]) == 0
    before, after = (read_comparison(folder).scores("loss")[label] for folder in (each.cell.folder(league), tmp_path))
    assert before == after and len(before) == 3


def test_killed_and_continued(tmp_path: Path) -> None:
    """What was finished stays as it is, and the league is whole; then nothing is left to do."""
    command = words(tmp_path, PLAN.replace("16x2", "8x2").replace("width 16", "width 8"))
    process = subprocess.Popen([sys.executable, "-m", "odeum", *command], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(before := results(tmp_path)) < 4 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and before
    with kept_registries():
        assert main(command) == 0
        after = results(tmp_path)
        assert before.items() <= after.items() and not any(each.problem for each in read(tmp_path / "out").outcomes)
        assert main(command) == 0 and results(tmp_path) == after


def test_a_kept_league_says_the_same(league: Path, tmp_path: Path) -> None:
    keep_league(league, tmp_path / "kept")
    assert not list((tmp_path / "kept").rglob("result.json"))
    assert records(read(tmp_path / "kept")) == records(read(league))
    assert main(["report", str(tmp_path / "kept")]) == 0


def test_undecided_rows_share_a_place() -> None:
    gains = {
        "base": (0.0, 0.0, 0.0),
        "a": (2.0, 1.5, 2.5),
        "b": (1.0, 0.5, 1.6),
        "c": (0.1, -1, 1.2),
        "d": (-2, -3, -1),
    }
    each = Outcome(Cell("task", "size", ()), {}, tuple(gains), None, gains)  # ty: ignore[invalid-argument-type]
    assert {label: each.place(label) for label in gains} == {"a": 1, "b": 1, "c": 2, "base": 3, "d": 4}


def test_core_hours_are_printed_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert odeum([*words(tmp_path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("images/8x1: 24 to 39 runs, ") and "core-hours" in lines[0]  # 5 × 3 or 6, and 3 × 3
    assert lines[2].startswith("4 entries × 1 tasks, 2 comparisons: ") and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("tune: 3", "tune: 2", "tune in .* must be an integer from 3 to 100, not 2"),
        ("seeds: 3", "sedes: 3", "lacks seeds and has the unknown sedes"),
        ("finalists: 2", "finalists: many", "finalists in .* must be an integer"),
        ('[parallel, "keel", mudd]', "parallel", "entries in .* must be a list of architectures"),
        ("mudd]", "mud]", "unknown architecture 'mud'"),
        ("words: digits", "word: digits", "task 'images' in .* needs `words`"),
        ("16x2:", "8x1!:", "have the same folder"),
        ("name: tiny", "name: [tiny", "cannot read the plan"),
    ],
)
def test_a_plan_that_is_not_understood(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in PLAN
    with pytest.raises(OdeumError, match=sentence):
        plan_of(write_plan(tmp_path, PLAN.replace(old, new)))


def test_another_plan_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    plan = plan_of(write_plan(tmp_path, PLAN), ["rk4"])
    plan.write(tmp_path)
    with pytest.raises(OdeumError, match="holds another league"):
        plan_of(write_plan(tmp_path, PLAN.replace("seeds: 3", "seeds: 4")), ["rk4"]).write(tmp_path)
    with pytest.raises(OdeumError, match="holds the entry rk4, which this plan lacks"):
        plan_of(write_plan(tmp_path, PLAN)).write(tmp_path)
    plan_of(write_plan(tmp_path, PLAN), ["rk2", "rk4"]).write(tmp_path)
    assert read_league(tmp_path).entries == ("parallel", "keel", "mudd", "rk2", "rk4")
    (tmp_path / "league.json").write_text(json.dumps({"name": "x"}))
    with pytest.raises(OdeumError, match="is not the plan of a league"):
        read_league(tmp_path)
