"""Trackers are told what metrics.jsonl says, by group and name, from workers too; a broken one costs no run."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from small_runs import lines, run

from odeum.errors import Notice, OdeumError
from odeum.lab.cli import main
from odeum.lab.train import tracking

SMALL = ["--model.width", "8", "--model.heads", "2", "--model.depth", "1", "--train.steps", "3"]


class Kept:
    """A tracker that keeps what it is told, or fails."""

    def __init__(self, run: tracking.TrackedRun, fails: bool = False) -> None:
        self.run, self.fails, self.told, self.ended = run, fails, [], False
        SEEN.append(self)

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fails:
            raise ConnectionError("no network\nand more")
        self.told.append((step, values))

    def finish(self) -> None:
        self.ended = True


SEEN: list[Any] = []
THEIRS = tracking.TRACKERS["trackio"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    monkeypatch.setitem(tracking.TRACKERS, "trackio", Kept)


def test_a_tracker_is_told_what_stands_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "comparison" / "sequential" / "seed-0"
    result = run(out, track="trackio", steps=3, evaluate_every=2)
    [kept] = SEEN
    assert (kept.run.group, kept.run.name) == ("comparison", "sequential/seed-0") and kept.ended
    assert kept.run.config["train.steps"] == 3 and kept.run.config["architecture"] == "sequential"
    losses = {step: values["train/loss"] for step, values in kept.told if "train/loss" in values}
    assert losses == {line["step"]: line["loss"] for line in lines(out)}
    assert [values["test/accuracy"] for _, values in kept.told if "test/accuracy" in values] == [
        result["test"]["accuracy"]
    ]


def test_a_tracker_that_fails_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tracking.TRACKERS, "trackio", lambda run: Kept(run, fails=True))
    with pytest.warns(
        Notice, match="--track trackio failed and is disabled for the rest of the run: ConnectionError: no network$"
    ):
        assert run(tmp_path / "run", track="trackio", steps=3)["steps"] == 3
    assert SEEN[0].told == [] and not SEEN[0].ended


def test_one_that_is_not_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint, capsys: pytest.CaptureFixture[str]
) -> None:
    for library in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(OdeumError, match=f"--track {library} needs {library}; `pip install {library}`"):
            run(tmp_path / library, track=library, steps=1)
    capsys.readouterr()
    assert main(["train", "digits", "--track", "wanb", "--out", str(tmp_path / "x")]) == 2
    assert "unknown tracker 'wanb'; did you mean 'wandb'?" in complaint() and not (tmp_path / "x").exists()


@pytest.mark.slow
def test_workers_side_by_side_write_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'track' is not installed")
    out = tmp_path / "all"
    words = ["--architectures", "sequential,parallel", "--seeds", "1", "--jobs", "2", "--quiet"]
    assert main(["compare", "digits", *words, *SMALL, "--track", "tensorboard", "--out", str(out)]) == 0
    for name in ("sequential", "parallel"):
        assert list((out / name / "seed-0" / "tensorboard").iterdir())


def test_trackio_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "kept"))
    trackio = pytest.importorskip("trackio", reason="trackio is not installed")
    monkeypatch.setitem(tracking.TRACKERS, "trackio", THEIRS)
    out = tmp_path / "c" / "sequential" / "seed-0"
    run(out, track="trackio", steps=3)
    [found] = trackio.Api().runs("odeum")
    assert found.name == "sequential/seed-0" and found.config["_Group"] == "c" and found.config["train.steps"] == 3
    assert "Trackio" not in capsys.readouterr().out


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run(tmp_path / "c" / "sequential" / "seed-0", track="wandb", steps=3)
    [folder] = (tmp_path / "c" / "sequential" / "seed-0" / "wandb").glob("offline-run-*")
    assert any(path.suffix == ".wandb" and path.stat().st_size for path in folder.iterdir())


def test_mlflow_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    if not importlib.util.find_spec("sqlalchemy"):
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = f"sqlite:///{tmp_path}/m.db" if importlib.util.find_spec("sqlalchemy") else (tmp_path / "m").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    out = tmp_path / "c" / "sequential" / "seed-0"
    run(out, track="mlflow", steps=3)
    client = mlflow.MlflowClient()
    [found] = client.search_runs([client.get_experiment_by_name("odeum").experiment_id])
    assert found.info.run_name == "sequential/seed-0" and found.data.tags["group"] == "c"
    assert found.data.metrics["test/accuracy"] == json.loads((out / "result.json").read_text())["test"]["accuracy"]
