"""A tuned comparison: tuning runs of a seed of their own, then evaluation seeds with the settings that they chose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.study.design import TUNING
from odeum.lab.study.report import write
from odeum.lab.study.runs import read
from odeum.lab.study.tuning import SEED
from odeum.lab.train import run

WORDS = [
    *("compare", "digits", "--architectures", "sequential,parallel", "--seeds", "2", "--jobs", "1", "--match", "time"),
    *("--model.width", "16", "--model.heads", "2", "--model.depth", "1", "--train.steps", "4", "--quiet"),
]
pytestmark = pytest.mark.usefixtures("without_plots")


def results(out: Path) -> dict[str, str]:
    return {str(path.relative_to(out)): path.read_text() for path in sorted(out.rglob("result.json"))}


def scores(out: Path) -> dict[str, dict[int, float]]:
    return read(out).scores("loss")


def rate(path: Path) -> float:
    return json.loads(path.read_text())["training"]["learning_rate"]


def test_tuning_runs_choose_the_settings_of_the_evaluation_and_resume(tmp_path: Path) -> None:
    words = [*WORDS, "--tune", "3", "--out", str(tmp_path)]
    assert main(words) == 0
    plan = json.loads((tmp_path / "comparison.json").read_text())
    tuning = read(tmp_path).study.tuning
    assert tuning is not None and plan["tuning"]["seed"] == SEED
    for row in ("sequential", "parallel"):
        folders = {path.name for path in (tmp_path / TUNING / row).iterdir()}
        assert folders == {f"learning_rate={point[0]:g}" for point in tuning.values[row]} and 3 <= len(folders) <= 6
        choice = tuning.choice(row, higher_is_better=True)
        assert choice is not None and choice.value == max(tuning.values[row].values())
        for seed in (0, 1):
            assert rate(tmp_path / row / f"seed-{seed}" / "run.json") == choice.changes["learning_rate"]
        assert all("test" not in json.loads(path.read_text()) for path in (tmp_path / TUNING).rglob("result.json"))
        lengths = {json.loads(path.read_text())["steps"] for path in (tmp_path / TUNING / row).rglob("result.json")}
        assert lengths == {json.loads((tmp_path / row / "seed-0" / "result.json").read_text())["steps"]}
    # What was lost is made again, what is there stays, and the table is the same.
    before, table = results(tmp_path), scores(tmp_path)
    shutil.rmtree(tmp_path / TUNING / "parallel")
    shutil.rmtree(tmp_path / "sequential" / "seed-1")
    assert main(words) == 0
    after = results(tmp_path)
    assert after.keys() == before.keys() and scores(tmp_path) == table
    assert after["sequential/seed-0/result.json"] == before["sequential/seed-0/result.json"]


def test_another_tuning_in_the_same_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "--seeds", "1", "--out", str(tmp_path)]
    assert main([*words, "--tune", "3"]) == 0
    for change, told in (
        (["--tune", "4"], "tuned with --tune 3 around learning_rate 0.004, not --tune 4"),
        ([], "with --tune, and this command is without it"),
        (["--tune", "3", "--train.learning_rate", "0.01"], "not --tune 3 around learning_rate 0.01"),
    ):
        assert main([*words, *change]) == 2
        assert told in capsys.readouterr().err
    report = write(tmp_path)
    assert "**Tuning**" in report.markdown.read_text() and "Tuning" in report.page.read_text()


def test_several_settings_are_tuned_at_equal_points(tmp_path: Path) -> None:
    words = [*WORDS, "--seeds", "1", "--tune", "3", "--tune-over", "learning_rate,weight_decay"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    rows = {row.name: {path.name for path in row.iterdir()} for row in (tmp_path / TUNING).iterdir()}
    assert rows["sequential"] == rows["parallel"] and len(rows["parallel"]) == 3


def test_tuning_runs_that_all_diverge_end_in_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "--tune", "3", "--train.learning_rate", "1e30", "--out", str(tmp_path)]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "sequential: every tuning run diverged" in told and "--train.learning_rate" in told
    assert len(list((tmp_path / TUNING).rglob("result.json"))) == 12  # nothing is lost


@pytest.mark.parametrize("reason", ["the disk is full", ""])
def test_a_tuning_run_that_fails_is_told_though_there_is_no_table(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error without words too: the run is not tried for ever."""

    def fail(*given: object, **options: object) -> None:
        raise OdeumError(reason)

    monkeypatch.setattr(run, "train", fail)
    assert main([*WORDS, "--tune", "3", "--out", str(tmp_path)]) != 0
    assert f"tuning sequential learning_rate=0.004: {reason or 'OdeumError'}\n" in capsys.readouterr().err


def test_a_dry_run_tells_tuning_and_evaluation_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--tune", "3", "--dry-run", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert "tuning: 6 runs" in told and "up to 12 runs" in told and "evaluation: 4 runs" in told
    assert not list(tmp_path.iterdir())
