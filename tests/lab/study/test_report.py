"""The report reads whatever a killed machine left behind, and never says more than the seeds can tell."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from full_disk import files_up_to
from synthetic_runs import digits, findings, page_of, write_plan, write_run

from odeum.errors import Notice, OdeumError
from odeum.lab.cli import main
from odeum.lab.study import report
from odeum.lab.study.findings import Row
from odeum.lab.study.pace import Pace
from odeum.lab.study.prose import Scale, count, duration
from odeum.lab.study.sentences import conclusion, headline, notes, warnings
from odeum.lab.study.statistics import mean_ranks
from odeum.lab.study.tables import other_figures, table

BASE = (0.90, 0.92, 0.91)


def compared(root: Path, *others: tuple[str, tuple[float, ...], float], **plan: Any) -> tuple[str, list[Row]]:
    """A baseline and others: (name, scores, step seconds) -> headline and rows."""
    for seed, score in enumerate(BASE):
        write_run(root, "sequential", seed, score)
    for name, scores, seconds in others:
        for seed, score in enumerate(scores):
            write_run(root, name, seed, score, step_seconds=seconds)
    write_plan(root, ["sequential", *(name for name, _, _ in others)], **plan)
    comparison = findings(root)
    rows = comparison.rows
    return headline(rows, comparison.study.data), rows


def test_rows_hold_what_the_runs_hold(tmp_path: Path) -> None:
    rows = {row.architecture: row for row in findings(digits(tmp_path)).rows}
    assert list(rows) == ["sequential", "parallel", "rk4", "macaron", "transevolve:full-1"]
    rk4, late = rows["rk4"], rows["transevolve:full-1"]
    assert rk4.test is not None and rk4.test.mean == pytest.approx(0.961) and rk4.test.n == 3
    assert rk4.step_ratio == pytest.approx(3.55) and rk4.macs == 36_000_000 and rk4.steps == 500
    assert rk4.training_macs == 3 * 36_000_000 * 64 * 500 and rk4.peak_memory == 229_200_000
    assert rk4.difference is not None and rk4.difference.level == pytest.approx(1 - 0.05 / 4)
    assert rows["sequential"].difference is None and rows["sequential"].step_ratio == 1.0
    assert late.seeds == (0, 1) and late.unfinished == ("seed 2: at step 500",)
    assert [rows[name].verdict for name in rows] == [
        "baseline",
        "practically equal",
        "undecided",
        "better by more than the margin",
        "worse",
    ]
    assert rk4.answer is not None and rk4.answer.more is not None and 0 < rk4.answer.more < 20


def test_without_a_plan_rows_are_in_order_of_name_and_sequential_is_the_baseline(tmp_path: Path) -> None:
    for name in ("sequential", "rk4", "macaron"):
        write_run(tmp_path, name, 0, 0.9)
    comparison = findings(tmp_path)
    assert comparison.study.labels == ("macaron", "rk4", "sequential") and comparison.study.baseline == "sequential"
    assert "not recorded" in notes(comparison)[0]


def test_an_empty_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OdeumError, match="holds no runs"):
        findings(tmp_path)
    with pytest.raises(OdeumError, match="there is no folder"):
        report.write(tmp_path / "missing")


def test_a_baseline_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    write_run(tmp_path, "rk4", 0, 0.9)
    write_plan(tmp_path, ["rk4"], baseline="sequental")
    with pytest.raises(OdeumError, match=r"'sequental'.*it has: rk4"):
        findings(tmp_path)


def test_better_is_said_with_its_price(tmp_path: Path) -> None:
    told, _ = compared(tmp_path, ("rk4", (0.950, 0.971, 0.961), 0.05))
    assert told.startswith("`rk4` is better on digits") and "5.1 points higher" in told
    assert "2.50× the time per step" in told


def test_open_is_not_called_equal_and_a_saving_is_named(tmp_path: Path) -> None:
    told, rows = compared(tmp_path, ("parallel", (0.905, 0.914, 0.913), 0.016))
    assert told.startswith("Undecided on digits between `sequential` and `parallel`.")
    assert (
        "`parallel` needs 0.80× the step time of `sequential`, but whether it is as good is undecided (at worst" in told
    )
    assert "more seeds would decide" in told and rows[1].verdict == "undecided"


def test_equal_within_the_margin_is_said_and_the_price_decides(tmp_path: Path) -> None:
    told, rows = compared(tmp_path, ("parallel", (0.901, 0.918, 0.912), 0.016))
    assert rows[1].verdict == "practically equal" and rows[1].margin == 0.01
    assert told == (
        "Use `parallel` on digits: it is practically equal to `sequential` (within 1 point) and needs 0.80× its step "
        "time."
    )


@pytest.mark.parametrize("times", [(0.0195, 0.0194, 0.0194), (0.012, 0.015, 0.021)])
def test_a_small_or_shaky_gap_of_step_times_is_a_tie(tmp_path: Path, times: tuple[float, ...]) -> None:
    """3 % in every seed, or much in two and the opposite in the third: no reason to change a layer."""
    for seed, score in enumerate(BASE):
        write_run(tmp_path, "sequential", seed, score)
        write_run(tmp_path, "parallel", seed, score + (0.001, -0.002, 0.002)[seed], step_seconds=times[seed])
    write_plan(tmp_path, ["sequential", "parallel"])
    told = headline(findings(tmp_path).rows, "digits")
    assert told.startswith("Keep `sequential`") and told.endswith("and no cheaper.")


def test_step_times_are_those_measured_in_turns_and_not_of_runs_side_by_side(tmp_path: Path) -> None:
    """The runs' own clocks say 3.5 × in every seed; in turns it was a tie, and rk4 was 3 × as dear."""
    for seed, score in enumerate(BASE):
        for name, clock in (("sequential", 0.02), ("parallel", 0.007), ("rk4", 0.021)):
            write_run(tmp_path, name, seed, score + (0.001, -0.002, 0.002)[seed] * (name != "sequential"),
                      step_seconds=clock)  # fmt: skip
    pace = {"sequential": Pace(0.01, 1.0, 1.0, 1.0), "parallel": Pace(0.01, 1.0, 0.95, 1.04)}
    pace["rk4"] = Pace(0.03, 3.0, 2.9, 3.1)
    write_plan(tmp_path, [*pace], pace={name: found.record() for name, found in pace.items()})
    found = findings(tmp_path)
    rows = found.rows
    told = headline(rows, "digits")
    assert told.startswith("Keep `sequential`") and "no cheaper" in told
    assert "1.00× [0.95, 1.04]" in table(rows, "md") and "3.00× [2.90, 3.10]" in table(rows, "md")
    flat = rows[2].as_dict()
    assert (flat["step_ratio"], flat["step_ratio_low"], flat["step_seconds"], flat["seconds"]) == (3.0, 2.9, 0.03, 15.0)
    page = report.write(tmp_path).page.read_text()
    assert "3.00× <small>[2.90, 3.10]</small>" in page and "30 ms" in page
    assert "measured before the runs" in " ".join(notes(found))
    with (tmp_path / "plots" / "curves-time.csv").open() as file:
        last = [line for line in file if line.startswith("rk4")][-1]
    assert float(last.split(",")[1]) == pytest.approx(15.0)


def test_what_the_clock_cuts_off_gets_no_verdict_and_the_rest_keeps_theirs(tmp_path: Path) -> None:
    for seed, score in enumerate(BASE):
        write_run(tmp_path, "sequential", seed, score)
        write_run(tmp_path, "rk4", seed, score + 0.05 + 0.001 * seed, finished=seed != 1)
        write_run(tmp_path, "macaron", seed, score + 0.04 - 0.001 * seed)
    write_plan(tmp_path, ["sequential", "rk4", "macaron"])
    with (tmp_path / "rk4" / "seed-1" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 500, "split": "limit", "cut_off": "1h"}) + "\n")
    found = findings(tmp_path)
    rows = found.rows
    assert [row.verdict for row in rows[1:]] == ["cut off: no verdict", "better by more than the margin"]
    assert rows[1].diverged == () and rows[1].unfinished == ("seed 1: cut off at step 500 by the limit of 1h",)
    assert "cut off at step 500 by the limit of 1h" in " ".join(warnings(found))
    shutil.rmtree(tmp_path / "macaron")
    write_plan(tmp_path, ["sequential", "rk4"])
    told = headline(findings(tmp_path).rows, "digits")
    assert told == "No verdict on digits: runs reached their time limit; a longer --train.limit continues them."


def test_the_margin_of_the_plan_decides_what_is_equal(tmp_path: Path) -> None:
    _, rows = compared(tmp_path, ("rk4", (0.901, 0.918, 0.912), 0.05), margin={"value": 0.001, "relative": False})
    assert rows[1].verdict == "undecided" and rows[1].margin_text == "0.1 points"


def test_better_by_less_than_the_margin_is_no_more_than_better(tmp_path: Path) -> None:
    told, rows = compared(tmp_path, ("rk4", (0.910, 0.932, 0.921), 0.02))
    assert rows[1].verdict == "better"
    assert told.startswith("Use `rk4` on digits, possibly by less than the margin of 1 point")


def test_intervals_are_shown_within_what_is_possible_and_words_are_not_touched_by_it(tmp_path: Path) -> None:
    for seed, (base, ours) in enumerate([(0.97, 0.999), (0.99, 0.985), (0.95, 0.99)]):
        write_run(tmp_path, "sequential", seed, base)
        write_run(tmp_path, "rk4", seed, ours)
    rows = findings(tmp_path).rows
    row = next(row for row in rows if row.architecture == "rk4")
    assert row.difference is not None and row.difference.high is not None and row.ends is not None
    assert row.difference.high > 0.03 and row.ends[1] == pytest.approx(0.03) and row.ends[0] == row.difference.low
    assert row.verdict == "undecided"
    assert "+3.0]" in table(rows, "md") and float(row.as_dict()["difference_high"]) == pytest.approx(0.03)


def test_the_metric_that_decides_is_the_declared_one(tmp_path: Path) -> None:
    _, rows = compared(tmp_path / "a", ("rk4", (0.950, 0.971, 0.961), 0.05))
    assert rows[1].metric == "accuracy" and rows[1].other is not None and rows[1].other[0] == "loss"
    assert "loss difference (not judged)" in other_figures(rows).markdown() and "loss" not in table(rows, "md")
    _, rows = compared(tmp_path / "b", ("rk4", (0.950, 0.971, 0.961), 0.05), judge="loss")
    assert rows[1].metric == "loss" and not rows[1].higher_is_better and rows[1].margin_text == "0.01"
    assert rows[1].other is not None and rows[1].other[0] == "accuracy"
    more = other_figures(rows).markdown()
    assert "accuracy difference (not judged)" in more and "+5.07 [" in more
    assert "+5.07 <small>[+4.89, +5.24]</small>" in page_of(tmp_path / "b")
    assert "The accuracy is shown with its interval" in " ".join(notes(findings(tmp_path / "b")))


@pytest.mark.parametrize("width", [42, 60, 80, 120])
def test_a_terminal_of_any_width_shows_the_verdicts(tmp_path: Path, width: int) -> None:
    _, rows = compared(tmp_path, ("rk4", (0.950, 0.971, 0.961), 0.05), ("parallel", (0.902, 0.923, 0.909), 0.02))
    shown = table(rows, "text", width)
    assert all(len(line) <= width for line in shown.splitlines())
    assert "better" in shown and "practically" in shown and ("difference" in shown) == (width >= 60)


def test_without_a_baseline_rows_are_ranked_with_letters(tmp_path: Path) -> None:
    told, rows = compared(
        tmp_path, ("rk4", (0.971, 0.990, 0.981), 0.05), ("parallel", (0.902, 0.921, 0.909), 0.02), baseline="none"
    )
    assert rows[0].architecture == "rk4"
    assert {row.architecture: row.group for row in rows} == {"rk4": "a", "parallel": "b", "sequential": "b"}
    assert told == "`rk4` leads on digits (test accuracy 98.1 %), ahead of all others."
    assert "| group |" in table(rows, "md") and "difference to" not in table(rows, "md")
    text = page_of(tmp_path)
    assert (
        "share a letter" in text
        and '<td class="words" data-head="group"><span>a</span></td>' in text
        and "ifference to" not in text
    )


def test_a_ranking_names_those_who_cannot_be_told_from_the_first(tmp_path: Path) -> None:
    told, _ = compared(
        tmp_path, ("rk4", (0.70, 0.72, 0.711), 0.05), ("parallel", (0.902, 0.921, 0.909), 0.02), baseline="none"
    )
    assert told.endswith("but cannot be told apart from `sequential`; `rk4` is worse than `parallel`.")


def test_looks_are_told_and_a_stopped_row_is_no_gap(tmp_path: Path) -> None:
    for seed in range(12):
        luck = (0.004, -0.003, 0.0, 0.002, -0.005, 0.003)[seed % 6]
        write_run(tmp_path, "sequential", seed, 0.90 + luck)
        write_run(tmp_path, "near", seed, 0.9035 + 1.5 * luck + (seed % 3) / 400)
        if seed < 3:
            write_run(tmp_path, "far", seed, 0.70 + luck * 1.1)
    write_plan(tmp_path, ["sequential", "near", "far"], seeds="auto:12")
    comparison = findings(tmp_path)
    rows = comparison.rows
    assert rows[2].answer is not None and rows[2].answer.look == 3
    assert "worse by more than 1 point (3 seeds)" in table(rows, "md")
    assert rows[2].as_dict()["decided_at"] == 3
    told = " ".join(notes(comparison))
    assert (
        "after 3, 6 and 12 of at most 12 seeds, as planned" in told
        and "received no further seeds: `far` after 3 seeds" in told
    )
    assert warnings(comparison) == []


def test_who_is_worse_is_said_beside_a_decision_for_another(tmp_path: Path) -> None:
    """An end before the last look is no look at twelve seeds, and its plan takes no more of them."""
    for seed in range(6):
        luck = (0.004, -0.003, 0.0, 0.002, -0.005, 0.003)[seed]
        write_run(tmp_path, "sequential", seed, 0.90 + luck)
        write_run(tmp_path, "near", seed, 0.9 + luck + (0.003, -0.003)[seed % 2])
        if seed < 3:
            write_run(tmp_path, "far", seed, 0.70 + luck * 1.1)
    write_plan(tmp_path, ["sequential", "near", "far"], seeds="auto:12")
    comparison = findings(tmp_path)
    rows = comparison.rows
    assert [row.verdict for row in rows[1:]] == ["practically equal", "worse by more than the margin"]
    told = headline(rows, "digits")
    assert told.endswith("and no cheaper. `far` is worse by more than 1 point (after 3 seeds).")
    looks = next(note for note in notes(comparison) if "looked at" in note)
    assert "after 3 and 6 of at most 12 seeds" in looks and "`far` after 3 seeds; `near` after 6 seeds" in looks
    assert "With more architectures, the same command" in page_of(tmp_path)


@pytest.mark.parametrize(
    "scores, decision",
    [((0.950, 0.971, 0.961), "Use `rk4` on digits"), ((0.905, 0.914, 0.913), "Undecided on digits")],
)
def test_who_is_worse_is_said_whatever_else_is_decided(
    tmp_path: Path, scores: tuple[float, ...], decision: str
) -> None:
    told, _ = compared(tmp_path, ("rk4", scores, 0.02), ("far", (0.70, 0.721, 0.711), 0.02))
    assert decision in told and told.endswith(". `far` is worse by more than 1 point.")


def test_seeds_added_after_a_look_are_pointed_out(tmp_path: Path) -> None:
    compared(tmp_path, ("rk4", BASE[::-1], 0.02), looked=[3], seeds=6)
    assert any("Seeds were added after the results of 3" in text for text in warnings(findings(tmp_path)))


def test_a_collapsed_run_is_pointed_out(tmp_path: Path) -> None:
    compared(tmp_path, ("rk4", (0.91, 0.31, 0.92), 0.02))
    told = " ".join(warnings(findings(tmp_path)))
    assert "Seed 1 of `rk4` is an outlier among its seeds (31.0 %)" in told


def test_models_that_have_not_learned_are_pointed_out_and_the_terminal_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two models at the level of a guess are practically equal, which says nothing of their layers."""
    for name, shift in (("sequential", 0.0), ("rk4", 0.002)):
        for seed in range(3):
            folder = write_run(tmp_path, name, seed, 0.1 + shift + seed / 1000)
            result = json.loads((folder / "result.json").read_text())
            result["test"]["majority_accuracy"] = 0.1
            (folder / "result.json").write_text(json.dumps(result))
    write_plan(tmp_path, ["sequential", "rk4"])
    found = findings(tmp_path)
    told = "No architecture is 1 point above always predicting the most frequent class (10 %)"
    assert any(text.startswith(told) for text in warnings(found))
    assert main(["report", str(tmp_path)]) == 0 and f"note: {told}" in capsys.readouterr().err
    poor = tmp_path / "bleu"
    for name in ("sequential", "rk4"):
        for seed in range(2):
            write_run(poor, name, seed, 0.05 + seed / 100, metric="bleu")
    write_plan(poor, ["sequential", "rk4"])
    assert "No architecture is 0.5 above having learned nothing" in report.write(poor).remarks[0]


def test_worse_and_level_but_not_cheaper(tmp_path: Path) -> None:
    told, _ = compared(tmp_path / "a", ("rk4", (0.80, 0.821, 0.811), 0.05))
    assert told == "Keep `sequential` on digits: the other architecture is worse."
    told, _ = compared(tmp_path / "b", ("rk4", (0.901, 0.918, 0.912), 0.05))
    assert told == ("Keep `sequential` on digits: `rk4` is practically equal to it (within 1 point) and no cheaper.")


def test_one_seed_has_no_verdict_and_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, "sequential", 0, 0.90)
    write_run(tmp_path, "rk4", 0, 0.99)
    rows = findings(tmp_path).rows
    assert rows[0].verdict == "one seed: no verdict"
    assert headline(rows, "digits").startswith("One seed cannot tell")


def test_a_margin_is_seen_in_the_numbers(tmp_path: Path) -> None:
    """A loss whose seeds are a tenth apart, and two hundredths that matter: 0.0 [−0.1, +0.2] says nothing."""
    for seed, luck in enumerate((0.1, -0.13, 0.02)):
        write_run(tmp_path, "sequential", seed, 1 + luck, metric="loss", higher_is_better=False)
        write_run(tmp_path, "rk4", seed, 1.01 + 1.4 * luck, metric="loss", higher_is_better=False)
    write_plan(tmp_path, ["sequential", "rk4"], margin={"value": 0.02, "relative": True}, judge="loss")
    rows = findings(tmp_path).rows
    assert "| 0.997 ± 0.117 |" in table(rows, "md") and "| +0.009 [−0.10" in table(rows, "md")


def test_lower_is_better(tmp_path: Path) -> None:
    for seed, luck in enumerate((0.0, 5.0, -3.0)):
        write_run(tmp_path, "sequential", seed, 120 + luck, metric="perplexity", higher_is_better=False)
        write_run(tmp_path, "rk4", seed, 100 + luck + seed / 10, metric="perplexity", higher_is_better=False)
    rows = findings(tmp_path).rows
    assert rows[0].verdict == "better by more than the margin" and "19.9 lower" in headline(rows, "text")
    assert rows[0].margin == pytest.approx(0.01 * (120 + 2 / 3)) and rows[0].margin_text == "1 %"


def test_a_diverged_seed_takes_the_verdict_away(tmp_path: Path) -> None:
    _, rows = compared(tmp_path, ("rk4", (0.95, float("nan"), 0.96), 0.02))
    assert rows[1].verdict == "diverged: no verdict" and rows[1].diverged == (1,)
    assert "`rk4` diverged with seed 1; its mean is over the other seeds." in warnings(findings(tmp_path))
    assert json.loads(table(rows, "json"))[1]["difference"] is None


def test_a_row_that_always_diverged_has_no_mean_over_other_seeds(tmp_path: Path) -> None:
    compared(tmp_path, ("rk4", (float("nan"),) * 3, 0.02))
    assert "`rk4` diverged with seed 0, 1, 2." in warnings(findings(tmp_path))


def test_a_headline_names_those_it_can_judge(tmp_path: Path) -> None:
    """A higher mean of two seeds out of three is not worse, and a diverged row is no comparison to adjust for."""
    told, rows = compared(tmp_path, ("rk4", (0.70, 0.71, 0.72), 0.02), ("parallel", (0.95, float("nan"), 0.96), 0.01))
    assert "`rk4` is worse" in told and "No verdict yet on `parallel`" in told
    assert rows[1].difference is not None and rows[1].difference.level == pytest.approx(0.95)


def test_one_seed_is_no_comparison_to_adjust_for(tmp_path: Path) -> None:
    _, rows = compared(tmp_path, ("rk4", (0.70, 0.71, 0.72), 0.02), ("parallel", (0.95,), 0.01))
    assert rows[1].difference is not None and rows[1].difference.level == pytest.approx(0.95)
    told = " ".join(warnings(findings(tmp_path)))
    assert "`parallel` and the baseline do not share all seeds" in told


def test_runs_of_another_recipe_or_other_data_are_pointed_out(tmp_path: Path) -> None:
    write_run(tmp_path, "sequential", 0, 0.9)
    write_run(tmp_path, "rk4", 0, 0.9, info={"training": {"epochs": 20.0, "batch_size": 64}, "fingerprint": "other"})
    told = " ".join(warnings(findings(tmp_path)))
    assert "epochs is 20.0 or 10.0" in told and "same data" in told and "batch_size is" not in told


@pytest.mark.parametrize(
    ("match", "words"),
    [("steps", "same number of optimizer steps"), ("time", "same time"), ("macs", "same number of MACs")],
)
def test_what_was_equal_is_said_beside_what_was_measured(tmp_path: Path, match: str, words: str) -> None:
    compared(tmp_path, ("rk4", BASE, 0.04), match=match)
    first = notes(findings(tmp_path))[0]
    assert words in first and "500 steps" in first and "10 s to 20 s" in first
    broken = [text for text in warnings(findings(tmp_path)) if "should have been equal" in text]
    assert len(broken) == (match == "time")


def test_equal_multiply_adds_may_differ_in_steps_without_a_warning(tmp_path: Path) -> None:
    for name, steps in (("sequential", 400), ("rk4", 100)):
        write_run(tmp_path, name, 0, 0.9, macs=10**9 // steps, steps=steps, info={"training": {"steps": steps}})
    write_plan(tmp_path, ["sequential", "rk4"], match="macs")
    comparison = findings(tmp_path)
    assert warnings(comparison) == []


def test_data_that_every_architecture_solves_is_too_easy(tmp_path: Path) -> None:
    for name in ("sequential", "rk4"):
        for seed in range(3):
            write_run(tmp_path, name, seed, 1.0)
    write_plan(tmp_path, ["sequential", "rk4"])
    report.write(tmp_path)
    told = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "Every architecture reaches 100 %: the data is too easy to tell them apart." in told
    assert "Train for longer" not in told


# What is torn, hostile or of nobody: named and left out of a report, and never its end.


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
    assert made.headline.startswith("No run on digits has finished yet, so nothing can be said. Next: odeum compare ")
    assert made.headline.endswith("--seeds 3 (its time is not known yet).")
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


# Several comparisons in one report: a table each, and an order over all of them.


def test_ties_share_a_rank_and_only_shared_rows_count() -> None:
    tables = [{"a": 0.9, "b": 0.9, "c": 0.5}, {"a": 30.0, "b": 20.0, "d": 1.0, "c": 40.0}]
    assert mean_ranks(tables, [True, False]) == {"b": 1.25, "a": 1.75, "c": 3.0}
    assert mean_ranks([{"a": 1.0}, {"b": 1.0}], [True, True]) == {}


def test_two_comparisons_are_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        write_plan(tmp_path / place, ["sequential", "parallel"])
        for name, score in (("sequential", 0.8), ("parallel", 0.9)):
            write_run(tmp_path / place, name, 0, score)
    words = ["report", str(tmp_path / "one"), str(tmp_path / "two")]
    assert main(words) == 0
    shown, told = capsys.readouterr()
    assert "1.00  parallel\n  2.00  sequential" in shown and shown.count("architecture") >= 2
    page = tmp_path / "overview.html"
    assert f"all of them on one page: {page}" in told
    text = page.read_text()
    assert 'href="one/report.html"' in text and 'href="two/report.html"' in text
    assert "<strong>parallel</strong> has the best mean rank" in text and text.count('<table class="results">') == 2
    assert main([*words, "--format", "csv"]) == 2
    assert main([*words[:2], "--out", "page.html"]) == 2
    assert "--out names the page of several comparisons" in capsys.readouterr().err


@pytest.mark.usefixtures("without_plots")
def test_a_folder_may_be_named_and_one_architecture_is_no_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, other in (("one", "rk4"), ("two", "macaron")):
        for name in ("sequential", other):
            write_run(tmp_path / place, name, 0, 0.9)
    words = ["report", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(tmp_path / "all")]
    assert main(words) == 0
    assert "no two architectures are in all 2 comparisons" in capsys.readouterr().out
    assert "there is no order over all of them" in (tmp_path / "all" / "overview.html").read_text()


# The page and the tables that a comparison leaves: whole, self-contained, the same each time.


def test_an_equation_is_shown_with_its_scheme(tmp_path: Path) -> None:
    info = {"equation": "dx/dt = G(x) + F(x)", "scheme": ["k1 = G(x); x ← x + dt k1"]}
    write_run(tmp_path, "sequential", 0, 0.9, info=info)
    assert findings(tmp_path).rows[0].equation == "dx/dt = G(x) + F(x)\nk1 = G(x)\nx ← x + dt k1"


def test_csv_and_json_hold_the_same_unscaled_numbers(tmp_path: Path) -> None:
    rows = findings(digits(tmp_path)).rows
    objects = json.loads(table(rows, "json"))
    lines = list(csv.DictReader(io.StringIO(table(rows, "csv"))))
    assert len(lines) == 5 and list(lines[0]) == list(objects[0])
    assert float(lines[2]["test_mean"]) == objects[2]["test_mean"] == pytest.approx(0.961)
    assert lines[0]["difference"] == "" and objects[0]["difference"] is None


def test_markdown_and_text(tmp_path: Path) -> None:
    rows = findings(digits(tmp_path)).rows
    lines = table(rows, "md").splitlines()
    assert len(lines) == 7 and len({line.count("|") for line in lines}) == 1
    assert "+1.7 [+1.3, +2.2]" in lines[5] and "| better by more than 1 point |" in lines[5]
    for width in (80, 120, 200):
        text = table(rows, "text", width)
        assert max(map(len, text.splitlines())) <= width
        assert "better by more than 1 point" in text and "transevolve:full-1" in text
    with pytest.raises(OdeumError, match="unknown format 'markdown'"):
        table(rows, "markdown")


class Tags(html.parser.HTMLParser):
    """Every tag must be closed, every id unique, and no reference may leave the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "wbr", "br"):
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.outside += [
            v or "" for n, v in attrs if n in ("src", "href", "xlink:href") and not (v or "").startswith("#")
        ]


def test_the_page_needs_no_torch_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    """Written by a process that only reports, and again by this one, which has done other things before."""
    digits(tmp_path)
    write = f"from odeum.lab.study import report\nreport.write({str(tmp_path)!r})"
    code = f"import sys\n{write}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    made = report.write(tmp_path)
    assert made.page.read_bytes() == text.encode()
    tags = Tags()
    tags.feed(text)
    assert tags.open == [] and len(tags.ids) == len(set(tags.ids)) and tags.outside == []
    assert "<script" not in text and "@import" not in text and not re.search(r"url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text and text.count('role="img"') == 5
    for words in (
        "<strong>macaron</strong> is better on digits",
        "x ← x + softmax(A + b(t)) V",
        "odeum compare digits",
        "torch 2.13.0",
    ):
        assert words in text
    for path in (made.markdown, made.csv, *made.plots):
        assert path.stat().st_size > 0


def test_what_users_write_cannot_become_markup(tmp_path: Path) -> None:
    evil = "<script>alert('$x$')</script>&\"`b`"
    info = {"architecture": evil, "equation": evil, "device": evil, "training": {evil: evil}, "git": evil}
    for seed in range(2):
        write_run(tmp_path, "evil", seed, 0.9 + seed / 50, info=info)
        write_run(tmp_path, "sequential", seed, 0.9)
    write_plan(tmp_path, ["sequential", evil], data=evil, command=evil)
    text = report.write(tmp_path).page.read_text(encoding="utf-8")
    assert "<script" not in text and "&lt;script&gt;" in text
    tags = Tags()
    tags.feed(text)
    assert tags.open == []


def test_numbers_as_people_read_them(tmp_path: Path) -> None:
    assert [count(x) for x in (None, 6, 999, 5_544_100, 999_700, 864e9)] == [
        "–",
        "6",
        "999",
        "5.54 M",
        "1.00 M",
        "864 G",
    ]
    assert [duration(x) for x in (0.0168, 35.5, 600, 36000)] == ["16.8 ms", "35.5 s", "10 min", "10 h"]
    scale = Scale(100.0, 1, " %", " points")
    assert scale.number(-0.0004, signed=True) == "0.0" and scale.number(-0.012, signed=True) == "−1.2"


def test_the_headline_ends_with_the_next_command_and_its_time(tmp_path: Path) -> None:
    for seed, score in enumerate(BASE):
        write_run(tmp_path, "sequential", seed, score)
        write_run(tmp_path, "parallel", seed, score + (0.004, -0.009, 0.012)[seed])
    write_plan(tmp_path, ["sequential", "parallel"], command="odeum compare digits --seeds 3 --out there")
    row = findings(tmp_path).row("parallel")
    assert row.verdict == "undecided" and row.answer is not None and row.answer.more is not None
    told = report.write(tmp_path).headline
    assert told.startswith("Undecided on digits between sequential and parallel")
    assert "Settings were not tuned per architecture." in told
    cost = row.answer.more * 2 * 10  # seeds × rows × seconds of a run
    assert f"Next: odeum compare digits --out there --seeds {3 + row.answer.more} (about {duration(cost)}" in told


TUNED = {
    "settings": ["learning_rate"], "defaults": [0.004], "runs": 3,
    "rows": {name: {"values": [[[0.004], 0.9]], "seconds": 30.0} for name in ("sequential", "parallel")},
}  # fmt: skip
ENDS: dict[str, tuple[dict[str, Any], tuple[float, float, float] | None, str]] = {
    "undecided": ({}, (0.004, -0.009, 0.012), "--out there --seeds "),
    "added once": ({"looked": [2]}, (0.004, -0.009, 0.012), "--out there --seeds "),
    "better": ({}, (0.05, 0.051, 0.049), "--out NEW --seeds 3 --tune 3"),
    "worse, tuned": ({"tuning": TUNED}, (-0.05, -0.051, -0.049), "--out NEW --sizes 3 --seeds 3"),
    "undecided at the last look": ({"seeds": "auto:3"}, (0.004, -0.009, 0.012), "--seeds 3 --tune 3"),
    "the same, tuned": ({"seeds": "auto:3", "tuning": TUNED}, (0.004, -0.009, 0.012), "--sizes 3 --seeds 3"),
    "by budget": ({"tuning": TUNED, "command": "odeum compare digits --budget 10m --match steps"},
                  (-0.05, -0.051, -0.049), "odeum compare digits --out NEW --train.steps 500 --sizes 3 --seeds 3"),
    "ranking, tuned": ({"baseline": "none", "seeds": "auto:3", "tuning": TUNED,
                        "command": "odeum compare digits --baseline none --out 'my runs'"},
                       (0.004, -0.009, 0.012), "digits --out NEW --baseline parallel --sizes 3"),
    "diverged": ({}, (math.nan, 0.0, 0.0), "--out NEW --seeds 3 --tune 3"),
    "diverged, tuned": ({"tuning": TUNED}, (math.nan, 0.0, 0.0), "--out NEW --seeds 3 --train.learning_rate 0.001"),
    "unfinished": ({}, None, "odeum compare digits --seeds 3 --out there"),
    "one size of a ladder": ({"command": "odeum compare digits --sizes 3"}, (0.05, 0.051, 0.049), ""),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_whatever_the_end_there_is_a_next_command_with_its_time(tmp_path: Path, end: str) -> None:
    plan, gaps, wanted = ENDS[end]
    for seed, score in enumerate(BASE):
        write_run(tmp_path, "sequential", seed, score)
        write_run(tmp_path, "parallel", seed, score + (gaps or (0.0, 0.0, 0.0))[seed], finished=gaps is not None)
    command = {"command": "odeum compare digits --seeds 3 --out there"}
    write_plan(tmp_path, ["sequential", "parallel"], **{**command, **plan})
    told = conclusion(findings(tmp_path)).replace("`", "")
    if not wanted:
        assert told.endswith("The report of all sizes has the next command.")
        return
    assert re.search(r"Next: odeum compare .* \(about [\d.]+ (ms|s|min|h) of training\)\.$", told), told
    assert wanted in told, told
    options = re.findall(r" (--[\w.-]+)", told[told.index("Next:") :])
    assert len({*options}) == len(options), told


def test_the_next_size_of_a_small_model_is_twice_as_large(tmp_path: Path) -> None:
    for seed, score in enumerate(BASE):
        small = {"model": {"width": 16, "heads": 1, "depth": 1}}
        write_run(tmp_path, "sequential", seed, score, info=small)
        write_run(tmp_path, "parallel", seed, score - 0.05 - 0.001 * seed, info=small)
    write_plan(tmp_path, ["sequential", "parallel"], tuning=TUNED, command="odeum compare digits --model.width 16")
    told = conclusion(findings(tmp_path))
    assert "Next: `odeum compare digits --out NEW --model.width 32 --model.depth 2 --seeds 3`" in told, told


def test_seeds_that_were_added_widen_the_intervals(tmp_path: Path) -> None:
    for seed, score in enumerate(BASE):
        write_run(tmp_path, "sequential", seed, score)
        write_run(tmp_path, "parallel", seed, score + (0.004, -0.009, 0.012)[seed])
    write_plan(tmp_path, ["sequential", "parallel"])
    planned = findings(tmp_path).row("parallel")
    write_plan(tmp_path, ["sequential", "parallel"], looked=[2])
    added = findings(tmp_path).row("parallel")
    assert planned.difference is not None and added.difference is not None
    assert (planned.difference.level, added.difference.level) == (0.95, 0.975)
    assert added.difference.high is not None and planned.difference.high is not None
    assert added.difference.high > planned.difference.high
    assert "the earlier ones are all right with at least 92.5 %" in " ".join(warnings(findings(tmp_path)))
