"""The report reads whatever a killed machine left behind, and never says more than the seeds can tell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import digits, findings, page_of, write_plan, write_run

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.study import report
from odeum.lab.study.findings import Row
from odeum.lab.study.pace import Pace
from odeum.lab.study.sentences import headline, notes, warnings
from odeum.lab.study.tables import table

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
        "open",
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
    with pytest.raises(OdeumError, match="holds no runs"):
        report.write(tmp_path / "missing")


def test_a_baseline_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    write_run(tmp_path, "rk4", 0, 0.9)
    write_plan(tmp_path, ["rk4"], baseline="sequental")
    with pytest.raises(OdeumError, match=r"'sequental'.*it has: rk4"):
        findings(tmp_path)


def test_better_is_said_with_its_price(tmp_path: Path) -> None:
    told, _ = compared(tmp_path, ("rk4", (0.950, 0.971, 0.961), 0.05))
    assert told.startswith("`rk4` is worth it on digits") and "5.1 points higher" in told
    assert "2.50× the time a step" in told


def test_open_is_not_called_equal_and_a_saving_is_named(tmp_path: Path) -> None:
    told, rows = compared(tmp_path, ("parallel", (0.905, 0.914, 0.913), 0.016))
    assert told.startswith("Nothing was shown to be better than `sequential` on digits yet.")
    assert "`parallel` needs 0.80× its step time, but whether it is as good is open (at worst" in told
    assert "more seeds would decide" in told and rows[1].verdict == "open"


def test_equal_within_the_margin_is_said_and_the_price_decides(tmp_path: Path) -> None:
    told, rows = compared(tmp_path, ("parallel", (0.901, 0.918, 0.912), 0.016))
    assert rows[1].verdict == "practically equal" and rows[1].margin == 0.01
    assert told == (
        "`parallel` is practically equal to `sequential` on digits (within 1 point) and needs 0.80× its step time."
    )


@pytest.mark.parametrize("times", [(0.0195, 0.0194, 0.0194), (0.012, 0.015, 0.021)])
def test_a_small_or_shaky_gap_of_step_times_is_a_tie(tmp_path: Path, times: tuple[float, ...]) -> None:
    """3 % in every seed, or much in two and the opposite in the third: no reason to change a layer."""
    for seed, score in enumerate(BASE):
        write_run(tmp_path, "sequential", seed, score)
        write_run(tmp_path, "parallel", seed, score + (0.001, -0.002, 0.002)[seed], step_seconds=times[seed])
    write_plan(tmp_path, ["sequential", "parallel"])
    told = headline(findings(tmp_path).rows, "digits")
    assert told.startswith("Stay with `sequential`") and told.endswith("and no cheaper.")


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
    assert told.startswith("Stay with `sequential`") and "no cheaper" in told
    assert "1.00× [0.95, 1.04]" in table(rows, "md") and "3.00× [2.90, 3.10]" in table(rows, "md")
    flat = rows[2].as_dict()
    assert (flat["step_ratio"], flat["step_ratio_low"], flat["step_seconds"], flat["seconds"]) == (3.0, 2.9, 0.03, 15.0)
    assert "3.00×<small>[2.90, 3.10]<br>30 ms</small>" in report.write(tmp_path).page.read_text()
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
    assert told == "No verdict on digits: the clock cut runs off; a longer --train.limit continues them."


def test_the_margin_of_the_plan_decides_what_is_equal(tmp_path: Path) -> None:
    _, rows = compared(tmp_path, ("rk4", (0.901, 0.918, 0.912), 0.05), margin={"value": 0.001, "relative": False})
    assert rows[1].verdict == "open" and rows[1].margin_text == "0.1 points"


def test_better_by_less_than_the_margin_is_no_more_than_better(tmp_path: Path) -> None:
    told, rows = compared(tmp_path, ("rk4", (0.910, 0.932, 0.921), 0.02))
    assert rows[1].verdict == "better"
    assert told.startswith("`rk4` is better on digits, perhaps by less than the margin of 1 point")


def test_intervals_are_shown_within_what_is_possible_and_words_are_not_touched_by_it(tmp_path: Path) -> None:
    for seed, (base, ours) in enumerate([(0.97, 0.999), (0.99, 0.985), (0.95, 0.99)]):
        write_run(tmp_path, "sequential", seed, base)
        write_run(tmp_path, "rk4", seed, ours)
    rows = findings(tmp_path).rows
    row = next(row for row in rows if row.architecture == "rk4")
    assert row.difference is not None and row.difference.high is not None and row.ends is not None
    assert row.difference.high > 0.03 and row.ends[1] == pytest.approx(0.03) and row.ends[0] == row.difference.low
    assert row.verdict == "open"
    assert "+3.0]" in table(rows, "md") and float(row.as_dict()["difference_high"]) == pytest.approx(0.03)


def test_the_metric_that_decides_is_the_declared_one(tmp_path: Path) -> None:
    _, rows = compared(tmp_path / "a", ("rk4", (0.950, 0.971, 0.961), 0.05))
    assert rows[1].metric == "accuracy" and rows[1].other is not None and rows[1].other[0] == "loss"
    assert "loss difference (not judged)" in table(rows, "md")
    _, rows = compared(tmp_path / "b", ("rk4", (0.950, 0.971, 0.961), 0.05), judge="loss")
    assert rows[1].metric == "loss" and not rows[1].higher_is_better and rows[1].margin_text == "1 %"
    assert rows[1].other is not None and rows[1].other[0] == "accuracy"
    assert "accuracy difference (not judged)" in table(rows, "md") and "+5.07 [" in table(rows, "md")
    assert "accuracy +5.07 [+4.89, +5.24],<br>not judged" in page_of(tmp_path / "b")
    assert "Accuracy is shown with its interval" in " ".join(notes(findings(tmp_path / "b")))


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
    assert "share a letter" in text and "<b>a</b>" in text and "Difference to" not in text


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
    assert "after 3, 6 and 12 of at most 12 seeds, as planned" in told and "got no more: `far` after 3 seeds" in told
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
    [((0.950, 0.971, 0.961), "is worth it"), ((0.905, 0.914, 0.913), "Nothing was shown to be better")],
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
    assert "Seed 1 of `rk4` is far off its other seeds (31.0 %)" in told


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
    told = "No architecture is 1 point above always saying the most frequent class (10 %)"
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
    assert told == "Stay with `sequential` on digits: the other architecture is worse."
    told, _ = compared(tmp_path / "b", ("rk4", (0.901, 0.918, 0.912), 0.05))
    assert told == (
        "Stay with `sequential` on digits: `rk4` is practically equal to it (within 1 point) and no cheaper."
    )


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
    assert any("diverged with seed 1" in text for text in warnings(findings(tmp_path)))
    assert json.loads(table(rows, "json"))[1]["difference"] is None


def test_a_headline_names_those_it_can_judge(tmp_path: Path) -> None:
    """A higher mean of two seeds out of three is not worse, and a diverged row is no comparison to adjust for."""
    told, rows = compared(tmp_path, ("rk4", (0.70, 0.71, 0.72), 0.02), ("parallel", (0.95, float("nan"), 0.96), 0.01))
    assert "`rk4` is worse" in told and "Of `parallel` nothing can be said" in told
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
    [("steps", "same number of optimizer steps"), ("time", "same time"), ("macs", "same number of multiply–adds")],
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
