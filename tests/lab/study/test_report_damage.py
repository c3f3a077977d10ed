"""What is torn, hostile or of nobody: named and left out of a report, and never its end."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from full_disk import files_up_to
from synthetic_runs import digits, findings, write_plan, write_run
from test_report import compared

from odeum.errors import Notice, OdeumError
from odeum.lab.study import report

BROKEN = ["", '{"task": "dig', "[1, 2]", "\x00\x00", '{"step": NaN}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_run_is_unfinished_not_fatal(tmp_path: Path, text: str) -> None:
    digits(tmp_path)
    (tmp_path / "rk4" / "seed-1" / "run.json").write_text(text)
    (tmp_path / "macaron" / "seed-1" / "result.json").write_text(text)
    (tmp_path / "parallel" / "seed-1" / "metrics.jsonl").write_text(text)
    rows = {row.architecture: row for row in findings(tmp_path).rows}
    assert rows["macaron"].seeds == (0, 2) and rows["macaron"].unfinished == ("seed 1: at step 500",)
    assert rows["parallel"].seeds == (0, 1, 2)
    if text != '{"step": NaN}':
        assert rows["rk4"].seeds == (0, 2) and rows["rk4"].unfinished == ("seed 1: its run.json is missing or broken",)


def test_a_report_is_written_of_runs_broken_in_every_way(tmp_path: Path) -> None:
    digits(tmp_path)
    names = ("rk4", "macaron", "parallel", "sequential", "transevolve-full-1")
    for architecture, text in zip(names, BROKEN, strict=True):
        for seed, name in enumerate(("run.json", "result.json", "metrics.jsonl")):
            (tmp_path / architecture / f"seed-{seed}" / name).write_text(text)
    with pytest.warns(Notice, match="it is left out"):
        made = report.write(tmp_path)
    assert len(made.plots) == 5 and all(name in made.markdown.read_text() for name in names[:4])


def test_torn_lines_are_skipped_and_a_step_measured_twice_counts_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "sequential", 0, 0.9)
    (folder / "metrics.jsonl").write_bytes(
        b'{"step": 1, "split": "valid", "accuracy": 0.1}\n{"step": 2, "spl'
        b'\n{"step": 1, "split": "valid", "accuracy": 0.2}\n{"step": 2, "split": "valid", "accuracy": 0.3}\n{"st\xc3'
    )
    curve = findings(tmp_path).results.runs[0].curve
    assert [(r["step"], r["accuracy"]) for r in curve] == [(1, 0.2), (2, 0.3)]


def test_nothing_finished_and_nothing_started(tmp_path: Path) -> None:
    write_run(tmp_path, "sequential", 0, 0.9, finished=False)
    write_plan(tmp_path, ["sequential", "rk4"])
    made = report.write(tmp_path)
    assert made.headline == "No run on digits has finished yet, so nothing can be said."
    assert "rk4</strong> has no run yet" in made.page.read_text()


@pytest.mark.parametrize(
    "damage", [{"margin": "x"}, {"seeds": "often"}, {"looked": "x"}, {"judge": 3}, {"overlap": []}]
)
def test_a_damaged_plan_falls_back_to_the_defaults(tmp_path: Path, damage: dict) -> None:
    _, rows = compared(tmp_path, ("rk4", (0.950, 0.971, 0.961), 0.05), **damage)
    assert rows[1].verdict == "better by more than the margin" and rows[1].margin == 0.01


def test_a_damaged_result_is_named_and_left_out(tmp_path: Path) -> None:
    digits(tmp_path)
    damaged = {
        "rk4/seed-0": '{"a":' * 200_000 + "1" + "}" * 200_000,
        "rk4/seed-1": "[]",
        "macaron/seed-0": "\x00",
        "parallel/seed-2": '{"test": 1',
    }
    for name, content in damaged.items():
        (tmp_path / name / "result.json").write_text(content)
    with pytest.warns(Notice) as told:
        report.write(tmp_path)
    assert len(told) == len(damaged)
    for name in damaged:
        pattern = rf"{name}/result\.json' is damaged.*it is left out"
        assert any(re.search(pattern, str(warning.message)) for warning in told)


def test_a_disk_that_takes_no_report_is_a_sentence(tmp_path: Path) -> None:
    digits(tmp_path)
    for size in (0, 3000):
        with files_up_to(size), pytest.raises(OdeumError, match="cannot write"):
            report.write(tmp_path)


def test_numbers_that_no_sum_holds(tmp_path: Path) -> None:
    digits(tmp_path)
    for path in tmp_path.glob("rk4/*/result.json"):
        result = json.loads(path.read_text())
        result["test"]["accuracy"], result["steps"] = 1e308, 10**400
        path.write_text(json.dumps(result))
    report.write(tmp_path)


def left_out(folder: Path) -> list[str]:
    """What is said in the terminal, after it was found on the page and below the table too."""
    with pytest.warns(Notice) as seen:
        made = report.write(folder)
    sentences = [str(warning.message) for warning in seen]
    for sentence in sentences:
        name = sentence.split("'")[1]
        assert name in made.page.read_text() and name in made.markdown.read_text()
    return sentences


def test_a_run_that_cannot_be_used_does_not_vanish(tmp_path: Path) -> None:
    folder = digits(tmp_path)
    spoiled = {
        "rk4/seed-0": (lambda r: r["test"].update(accuracy="high"), "has no number as test accuracy ('high')"),
        "macaron/seed-0": (lambda r: r["test"].update(accuracy=None), "has no number as test accuracy (None)"),
        "macaron/seed-1": (lambda r: r["test"].pop("accuracy"), "has no number as test accuracy ('nothing')"),
        "parallel/seed-0": (lambda r: (r.pop("test"), r.pop("valid")), "has numbers of no part of the data"),
    }
    for name, (spoil, _) in spoiled.items():
        path = folder / name / "result.json"
        result = json.loads(path.read_text())
        spoil(result)
        path.write_text(json.dumps(result))
    sentences = left_out(folder)
    assert len(sentences) == len(spoiled)
    for name, (_, complaint) in spoiled.items():
        assert any(name in sentence and complaint in sentence for sentence in sentences)
    found = findings(folder)
    assert found.results.split == "test"  # where all others are judged
    assert [len(found.results.finished(name)) for name in ("sequential", "rk4", "macaron", "parallel")] == [3, 2, 1, 2]


def test_a_result_of_nobody_and_two_of_one_are_named(tmp_path: Path) -> None:
    folder = digits(tmp_path)
    (folder / "macaron" / "seed-0" / "run.json").unlink()
    shutil.copytree(folder / "rk4" / "seed-0", folder / "rk4" / "seed-0-copy")
    sentences = left_out(folder)
    assert len(sentences) == 2
    assert any("has a result and no run.json" in sentence for sentence in sentences)
    assert any("are both rk4 with seed 0; one counts" in sentence for sentence in sentences)


def test_tables_hold_no_formulas_and_no_markup(tmp_path: Path) -> None:
    evil = ["=HYPERLINK(1)", "+1", "-1", "@x", "<img src=x>", "a|b", "![x](http://x)", "\x1b[2J", "two\nlines"]
    for seed in range(2):
        write_run(tmp_path, "sequential", seed, 0.9)
        for number, name in enumerate(evil):
            write_run(tmp_path, f"evil-{number}", seed, 0.9, info={"architecture": name})
    write_plan(tmp_path, ["sequential", *evil], data="".join(evil))
    made = report.write(tmp_path)
    cells = [row[0] for row in csv.reader(made.csv.read_text().splitlines())]
    assert not any(cell[:1] in ("=", "+", "-", "@", "\t") for cell in cells)
    text = made.markdown.read_text()
    assert "<img" not in text and "](http" not in text and "\x1b" not in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 3 + len(evil) and len({line.replace("\\|", "").count("|") for line in lines}) == 1
