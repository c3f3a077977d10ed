"""What is told before a comparison: the data as it was understood, the runs to do, and what they take."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import job

from odeum.lab.cli import main
from odeum.lab.study.forecast import Forecast, forecast, run_seconds
from odeum.lab.study.pace import Pace
from odeum.lab.tasks import open_task


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    path = tmp_path / "mail.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "body", "topic"])
        rows.writerows([i, f"a note on {'abc'[i % 3] * 3} number {i}", "abc"[i % 3]] for i in range(300))
    return path


def test_a_table_says_what_was_understood(mail: Path) -> None:
    told = open_task(mail).summary()
    assert told == (
        "mail.csv (classification): text = body, label = topic, 3 classes, 240/30/30 examples, majority 33 %"
    )


def test_columns_without_names_are_told_by_place(tmp_path: Path) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("".join(f"{'good' if i % 2 else 'bad'},text number {i} of them\n" for i in range(60)))
    assert "text = column 2, label = column 1, 2 classes" in open_task(path, kind="classification").summary()


def test_text_and_numbers_say_what_they_are(tmp_path: Path) -> None:
    prose = tmp_path / "prose.txt"
    prose.write_text("so it goes, line after line\n" * 400)
    assert "tokens, vocabulary" in open_task(prose).summary()
    table = tmp_path / "prices.csv"
    table.write_text("text,price\n" + "".join(f"thing {i},{i * 1.5}\n" for i in range(100)))
    told = open_task(table, kind="regression").summary()
    assert "label = price, a number each, 80/10/10 examples, mean" in told


def test_a_dry_run_counts_and_writes_nothing(
    mail: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [str(mail), "--train.steps", "4", "--dry-run"]
    assert main(["compare", *words, "--architectures", "sequential,parallel", "--seeds", "2"]) == 0
    shown = capsys.readouterr()
    assert "text = body, label = topic" in shown.err and "4 runs, about" in shown.err and not shown.out
    assert main(["train", *words]) == 0
    assert "1 run, about" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"mail.csv"}


def test_runs_that_are_there_cost_nothing(tmp_path: Path) -> None:
    runs = {("sequential", seed): replace(job(tmp_path / str(seed)), seed=seed) for seed in range(3)}
    pace = {"sequential": Pace(0.01, 1.0, 1.0, 1.0, 10**8)}
    one = forecast(runs, pace, jobs=1)
    assert (one.runs, one.there, one.memory) == (3, 0, 10**8) and one.seconds == pytest.approx(3 * one.dearest[1])
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "result.json").write_text("{}")
    assert (forecast(runs, pace, jobs=1).runs, forecast(runs, pace, jobs=1, again=True).runs) == (2, 3)
    for path in runs.values():
        path.directory.mkdir(exist_ok=True)
        (path.directory / "result.json").write_text("{}")
    assert forecast(runs, pace, jobs=2).lines() == ["3 runs (3 of them already exist): nothing is left to train"]


def test_a_run_takes_its_steps_and_its_evaluations(tmp_path: Path) -> None:
    small = job(tmp_path)  # 20 steps of 33 examples, no look before the end
    sizes = small.task.sizes()
    per_epoch = small.task.steps_per_epoch(33)
    seen = (sizes["valid"] + sizes["test"]) / (sizes["train"] / per_epoch)
    assert run_seconds(small, 1.0) == pytest.approx(20 + seen / 3)
    timed = replace(small, training=replace(small.training, steps=None, budget="90s"))
    assert run_seconds(timed, 1.0) == pytest.approx(90 + seen / 3)


def test_hours_come_with_a_remedy() -> None:
    long = Forecast(15, 0, 36_000.0, ("rk4", 5000.0), 10**9, 2, at_most=True)
    first, remedy = long.lines()
    assert first == "up to 15 runs, about 10h00m and 1.0 GB each, 2 at once (longest run: rk4, 1h23m)"
    assert "--budget 16m" in remedy
    assert len(replace(long, seconds=60.0).lines()) == 1
    told = replace(long, seconds=60.0, busy=7.0).lines()
    assert len(told) == 2 and "keeps this machine busy" in told[1] and "about 7m00s" in told[1]
