"""A comparison asks one question, fixed before its first run, and trains as many seeds as the answer takes."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import findings, write_run

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.commands.board import Board
from odeum.lab.launch.worker import Event
from odeum.lab.papers import table_named
from odeum.lab.study import report
from odeum.lab.study.design import Factor, Study, StudyRow, cells, rows_of
from odeum.lab.study.execute import Comparison, ComparisonRuns, compare, failure_message, sized_runs
from odeum.lab.study.judge import Seeds
from odeum.lab.study.metric import METRICS, Margin
from odeum.lab.study.pace import Pace
from odeum.lab.study.sentences import warnings
from odeum.lab.study.tuning import Tuning, TuningResults
from odeum.lab.tasks import open_task
from odeum.lab.train.job import Job
from odeum.lab.train.run import with_changes
from odeum.registry.spelling import parse

TINY = ["--model.width", "16", "--model.heads", "2", "--model.depth", "2", "--train.steps", "12"]
AUTO = ["compare", "digits", *TINY, "--architectures", "sequential,parallel,transevolve", "--seeds", "auto:6"]


def table(out: Path) -> dict[str, dict[str, str]]:
    with (out / "table.csv").open(encoding="utf-8") as file:
        return {row["architecture"]: row for row in csv.DictReader(file)}


def runs(out: Path) -> dict[str, int]:
    return {folder.name: len(list(folder.glob("seed-*/result.json"))) for folder in out.iterdir() if folder.is_dir()}


@pytest.mark.slow
def test_rows_stop_when_they_are_decided_and_the_same_command_adds_nothing(tmp_path: Path) -> None:
    """By a loss that twelve steps hardly move: some rows are within 3.4 % after three seeds, some are not."""
    words = [*AUTO, "--judge", "loss", "--margin", "3.4%", "--out", str(tmp_path)]
    assert main(words) == 0
    found, there = table(tmp_path), runs(tmp_path)
    others = ("parallel", "transevolve")
    for name in others:
        assert there[name] == int(found[name]["decided_at"] or 6), name
        assert found[name]["decided_at"] or found[name]["verdict"] == "undecided"
    assert there["sequential"] == max(there[name] for name in others)
    assert found["parallel"]["metric"] == "loss" and found["parallel"]["not_judged"] == "accuracy"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/seed-*/result.json")}
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/seed-*/result.json")} == before
    assert table(tmp_path) == found


@pytest.mark.slow
def test_all_decided_at_the_first_look_ends_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*AUTO, "--out", str(tmp_path)]
    assert main([*words, "--margin", "99"]) == 0
    assert runs(tmp_path)["sequential"] == 3 and "practically equal" in capsys.readouterr().err
    plan = json.loads((tmp_path / "comparison.json").read_text())
    assert plan["margin"] == {"value": 0.99, "relative": False} and plan["judge"] == "metric"
    assert plan["seeds"] == "auto:6"
    for change, told in (
        (["--margin", "2"], "with a margin of 99 points, not 2 points"),
        (["--judge", "loss"], "judged by its metric, not by its loss"),
        (["--seeds", "6"], "with --seeds auto:6, not 6"),
        (["--seeds", "auto"], "with --seeds auto:6, not auto:12"),
        (["--baseline", "parallel"], "with the baseline sequential"),
        (["--baseline", "none"], "with the baseline sequential"),
    ):
        assert main([*words, *change]) == 2
        assert told in capsys.readouterr().err
    assert main(words) == 0  # what is not said again stays as it was planned
    assert json.loads((tmp_path / "comparison.json").read_text())["margin"] == plan["margin"]


def planned(directory: Path, judge: str | None = None, margin: str | None = None, **changes: Any) -> Study:
    rows = StudyRow("a", "a"), StudyRow("b", "b")
    study = Study("digits", rows, METRICS["accuracy"], Margin(0.01), Seeds(3), "a", match="steps")
    return replace(study, **changes).settled(directory, judge, margin)


def test_an_old_plan_has_the_default_margin_and_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(json.dumps({"architectures": ["a", "c"], "match": "steps", "seeds": 3}))
    plan = planned(tmp_path)
    assert plan.margin == Margin(0.01) and plan.judge == "metric" and plan.labels == ("a", "b")
    assert plan.earlier == ("c",)
    assert planned(tmp_path, margin="1").margin == Margin(0.01)
    with pytest.raises(OdeumError, match="with a margin of 1 point, not 2 points"):
        planned(tmp_path, margin="2")
    with pytest.raises(OdeumError, match="with --seeds 3, not auto:12"):
        planned(tmp_path, seeds=Seeds.parse("auto"))


def test_seeds_that_are_added_are_remembered(tmp_path: Path) -> None:
    planned(tmp_path).write(tmp_path)
    assert planned(tmp_path).looked == ()
    more = planned(tmp_path, seeds=Seeds(6))
    assert more.looked == (3,) and more.seeds == Seeds(6)
    more.write(tmp_path)
    assert planned(tmp_path).seeds == Seeds(6) and planned(tmp_path).looked == (3,)
    assert planned(tmp_path, seeds=Seeds(9)).looked == (3, 6)


def test_the_judge_brings_its_own_margin(tmp_path: Path) -> None:
    plan = planned(tmp_path, judge="loss")
    assert plan.metric.name == "loss" and plan.margin == Margin(0.01)
    assert not plan.criterion.higher_is_better
    with pytest.raises(OdeumError, match="unknown judge 'luck'"):
        planned(tmp_path, judge="luck")


def test_without_a_baseline_every_two_are_the_family(tmp_path: Path) -> None:
    plan = planned(tmp_path, baseline=None)
    assert plan.pairs == [("a", "b")]
    plan.write(tmp_path)
    assert json.loads((tmp_path / "comparison.json").read_text())["baseline"] == "none"


def test_a_failed_run_is_named_and_a_bug_is_told_in_full() -> None:
    lost = Event("failed", {"sentence": "the process of this run ended by signal 9"})
    assert failure_message("rk4 seed 1", lost) == "rk4 seed 1: the process of this run ended by signal 9"
    bug = Event("failed", {"sentence": "KeyError: 'x'", "traceback": "Traceback …\nKeyError: 'x'\n"})
    assert failure_message("rk4 seed 1", bug) == "rk4 seed 1: KeyError: 'x'\nTraceback …\nKeyError: 'x'\n"
    assert failure_message("rk4 seed 1", Event("done", {"test": {}})) is None


def test_two_spellings_of_one_architecture_are_one_row_and_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    names = "parallel,sequential,sequential:method=lie-trotter,parallel"
    assert main(["compare", "digits", "--architectures", names, "--print_config"]) == 0
    told = capsys.readouterr().err
    assert "sequential:method=lie-trotter is the same architecture as sequential; the table has one row" in told
    assert "parallel is named twice" in told


@pytest.mark.usefixtures("without_plots")
def test_a_comparison_shows_its_own_rows_and_others_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two comparisons with other architectures in one folder: rows of the first appear nowhere in the second."""
    words = ["compare", "digits", *TINY, "--seeds", "2", "--jobs", "1", "--match", "steps", "--out", str(tmp_path)]
    assert main([*words, "--architectures", "sequential,parallel"]) == 0
    assert main([*words, "--architectures", "rk4,macaron"]) == 0
    capsys.readouterr()
    assert main([*words, "--architectures", "macaron,parallel"]) == 0
    told = capsys.readouterr()
    assert table(tmp_path).keys() == {"macaron", "parallel"}
    note = "Runs of other comparisons in this folder are not shown: rk4 and sequential"
    assert note in told.err.replace("`", "") and "rk4" not in told.out
    headline = (tmp_path / "table.md").read_text(encoding="utf-8").partition("\n")[0]
    assert not {"rk4", "sequential"} & set(headline.replace("`", " ").split())
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("rk4") == 1, "in the note alone"
    assert main(["report", str(tmp_path), "--all"]) == 0
    assert table(tmp_path).keys() == {"macaron", "parallel", "rk4", "sequential"}
    for row in table(tmp_path).values():
        assert float(row["step_ratio_low"]) <= float(row["step_ratio"]) <= float(row["step_ratio_high"]), row


def test_factors_make_rows_and_a_row_is_found_by_its_label(tmp_path: Path) -> None:
    """Two learning rates and two sizes of one architecture are four rows of one study, with their own runs."""
    spec = table_named("zhong2022/table1").specs("laptop")["sequential"]
    rates = Factor.training("learning_rate", [1e-3, 4e-3])
    sizes = Factor.model("size", {"24x2": {"width": 24, "depth": 2}, "48x4": {"width": 48, "depth": 4}})
    one = Factor.architecture([parse("sequential"), parse("parallel")])
    assert list(cells(spec, [one])) == ["sequential", "parallel"] and not cells(spec, [one])["parallel"].row
    rows = cells(spec, [Factor.architecture([parse("parallel")]), rates, sizes])
    label = "parallel learning_rate=0.004 24x2"
    assert len(rows) == 4 and label in rows and len({run.key for run in rows.values()}) == 4
    run = rows[label]
    assert (run.row, run.training.learning_rate, run.model.depth, run.name) == (label, 4e-3, 2, "parallel")
    for place in rows:
        write_run(
            tmp_path, place.replace(" ", "-").replace(".", "-"), 0, 0.9, info={"architecture": "parallel", "row": place}
        )
    assert set(findings(tmp_path).study.labels) == set(rows)


def test_screening_leaves_out_rows_that_diverged(tmp_path: Path) -> None:
    """Even the baseline: a league then has no finalists, which is its own message."""
    task = open_task("digits")
    base = Job.on(task, task.model(), parse("sequential"), with_changes(task.training(), {"steps": 2}))
    factors = [Factor.architecture([base.architecture, parse("parallel")])]
    rows, metric = rows_of(cells(base, factors)), METRICS["accuracy"]
    tuning, pace = Tuning(("learning_rate",), (1e-3,), 3), {row.label: Pace(1e-3, 1.0, 1.0, 1.0) for row in rows}
    study = Study("digits", rows, metric, metric.margin, Seeds(2), rows[0].label, match="time", pace=pace)
    study = replace(study, tuning=TuningResults(tuning))
    request = Comparison(study, base, factors, tmp_path)
    for tolerant in (True, False):
        runs = ComparisonRuns(request, study, sized_runs(request))
        tried = [0.9, 0.8, 0.7, math.nan, math.nan, math.nan]
        for label, values in (("sequential", [math.nan] * 6), ("parallel", tried)):
            points = [(1e-3 * 2.0**i,) for i in (-1, 0, 1, -2, -3, -4)]
            runs.finals[label] = {point: {"accuracy": x} for point, x in zip(points, values, strict=True)}
        if tolerant:
            with pytest.warns(UserWarning, match="sequential: every tuning run diverged"):
                assert runs.choose(tolerant) == [] and list(runs.rows()) == ["parallel"]
        else:
            with pytest.raises(OdeumError, match="sequential: every tuning run diverged"):
                runs.choose(tolerant)


@pytest.mark.usefixtures("without_plots")
def test_a_factor_is_trained_and_read_again(tmp_path: Path) -> None:
    """A study over learning rates: rows have their own folders, and the reader finds them by their labels."""
    task = open_task("digits")
    model = replace(task.model(), width=16, heads=2, depth=1)  # ty: ignore[unknown-argument]
    base = Job.on(task, model, parse("sequential"), with_changes(task.training(), {"steps": 2}))
    factors = [Factor.architecture([base.architecture]), Factor.training("learning_rate", [1e-3, 4e-3])]
    rows, metric = rows_of(cells(base, factors)), METRICS["accuracy"]
    study = Study("digits", rows, metric, metric.margin, Seeds(2), rows[0].label, ("learning_rate",), match="steps")
    assert compare(Comparison(study, base, factors, tmp_path, jobs="1"), Board("accuracy", True, quiet=True)) == []
    judged = report.write(tmp_path).findings
    assert judged.study.labels == ("sequential learning_rate=0.001", "sequential learning_rate=0.004")
    rates = {run.row: run.info["training"]["learning_rate"] for run in judged.results.runs}
    assert list(rates.values()) == [1e-3, 4e-3] and [row.seeds for row in judged.rows] == [(0, 1), (0, 1)]
    assert not any("recipe" in warning for warning in warnings(judged))
