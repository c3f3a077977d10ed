"""Every word is read off one interval; looks spend one error; a ranking's letters say who could not be told apart."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from odeum.errors import OdeumError
from odeum.lab.study.judge import Criterion, Seeds, judge, more_seeds, undecided, verdict_of
from odeum.lab.study.metric import METRICS, Margin, Metric, metric_named, read_margin
from odeum.lab.study.statistics import Difference, all_pairs, letters, outliers, to_baseline


def interval(low: float, high: float, n: int = 3) -> Difference:
    return Difference((low + high) / 2, low, high, 0.95, 0.5, n, spread=(high - low) / 4, degrees=n - 1)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.1, 2.0, "better by more than the margin"),
        (0.1, 2.0, "better"),
        (-0.9, 0.9, "practically equal"),
        (0.1, 0.9, "practically equal"),
        (-0.9, 1.1, "undecided"),
        (-3.0, 3.0, "undecided"),
        (-2.0, -0.1, "worse"),
        (-2.0, -1.1, "worse by more than the margin"),
    ],
)
def test_words(low: float, high: float, word: str) -> None:
    assert verdict_of(interval(low, high), 1.0, higher_is_better=True).word == word
    assert verdict_of(interval(-high, -low), 1.0, higher_is_better=False).word == word


def test_no_word_is_wrong_while_the_interval_holds_the_truth() -> None:
    meaning = {
        "better by more than the margin": lambda truth: truth > 1,
        "better": lambda truth: truth > 0,
        "practically equal": lambda truth: abs(truth) < 1,
        "worse": lambda truth: truth < 0,
        "worse by more than the margin": lambda truth: truth < -1,
        "undecided": lambda truth: True,
    }
    grid = [x / 4 for x in range(-10, 11)]
    for low, high in itertools.combinations(grid, 2):
        word = verdict_of(interval(low, high), 1.0, higher_is_better=True).word
        assert all(meaning[word](truth) for truth in grid if low <= truth <= high), (low, high, word)


def test_an_open_row_says_what_it_would_take() -> None:
    wide, wider = interval(-2.0, 2.5), interval(-9.0, 9.5)
    few, many = more_seeds(wide, 1.0), more_seeds(wider, 1.0)
    assert few is not None and many is not None and 0 < few < many
    assert verdict_of(wide, 1.0, higher_is_better=True).more == few
    assert more_seeds(interval(-900.0, 900.0), 0.1) is None
    later = more_seeds(wide, 1.0, 0.5)
    assert few is not None and later is not None and later >= few
    clear = more_seeds(interval(-0.5, 6.5), 1.0)
    assert clear is not None and clear < few


@pytest.mark.parametrize(
    ("metric", "text", "margin", "spelled"),
    [
        ("accuracy", "1", Margin(0.01), "1 point"),
        ("accuracy", "0.5 points", Margin(0.005), "0.5 points"),
        ("bleu", "0.5", Margin(0.5), "0.5"),
        ("perplexity", "2%", Margin(0.02, relative=True), "2 %"),
        ("loss", "0.01", Margin(0.01), "0.01"),
    ],
)
def test_a_margin_is_read_in_the_unit_of_the_table(metric: str, text: str, margin: Margin, spelled: str) -> None:
    assert METRICS[metric].parse_margin(text) == margin and METRICS[metric].spell_margin(margin) == spelled


@pytest.mark.parametrize(
    ("metric", "text", "told"),
    [
        ("accuracy", "1%", "in points, not in percent: --margin 1"),
        ("loss", "1 point", "not measured in points"),
        ("accuracy", "0", "positive"),
        ("accuracy", "-1", "positive"),
        ("bleu", "much", "'much'"),
    ],
)
def test_a_margin_that_could_be_misread_is_refused(metric: str, text: str, told: str) -> None:
    with pytest.raises(OdeumError, match=told):
        METRICS[metric].parse_margin(text)


def test_defaults_of_metrics() -> None:
    assert METRICS["accuracy"].margin == Margin(0.01) and METRICS["bleu"].margin == Margin(0.5)
    assert METRICS["perplexity"].margin.size(120.0) == pytest.approx(1.2)
    stranger = metric_named("f1-of-mine", higher_is_better=True)
    assert stranger.higher_is_better and stranger.possible(3.0) == (-math.inf, math.inf)
    assert METRICS["accuracy"].possible(0.9) == (-0.9, pytest.approx(0.1))
    for damaged in (None, 3, {"value": "x"}, {"value": -1}, {}):
        assert read_margin(damaged, METRICS["bleu"]) == Margin(0.5)
    assert read_margin({"value": 0.2, "relative": True}, Metric("loss")) == Margin(0.2, relative=True)


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("3", [3]),
        ("auto", [3, 6, 12]),
        ("auto:24", [3, 6, 12, 24]),
        ("auto:10", [3, 10]),
        ("auto:3", [3]),
    ],
)
def test_looks_double_and_spend_the_error_once(text: str, looks: list[int]) -> None:
    plan = Seeds.parse(text)
    assert [look.seeds for look in plan.looks] == looks and Seeds.parse(str(plan)) == plan
    assert sum(look.error for look in plan.looks) == pytest.approx(0.05)


@pytest.mark.parametrize("text", ["many", "auto:", "auto:2", "0", "-3", "3.5", "auto:x"])
def test_seeds_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(OdeumError, match="seed"):
        Seeds.parse(text)


def simulated(count: int, **means: float) -> dict[str, dict[int, float]]:
    random = np.random.default_rng(3)
    return {name: {s: mean + 0.3 * random.standard_normal() for s in range(count)} for name, mean in means.items()}


AUTO = Criterion(True, Margin(1.0), Seeds.parse("auto"))


def first(scores: dict[str, dict[int, float]], count: int) -> dict[str, dict[int, float]]:
    return {name: {s: x for s, x in row.items() if s < count} for name, row in scores.items()}


def test_a_decided_row_stops_and_keeps_its_word() -> None:
    scores = simulated(12, base=0.0, far=-8.0, near=0.45)
    pairs = to_baseline(list(scores), "base")
    early = judge(first(scores, 3), pairs, AUTO)
    assert early["far", "base"].verdict.word == "worse by more than the margin"
    assert early["far", "base"].verdict.look == 3 and early["near", "base"].verdict.open
    assert undecided(pairs, early) == {"base", "near"}
    whole = judge(scores, pairs, AUTO)
    assert whole["far", "base"] == early["far", "base"]
    assert whole["near", "base"].difference.n > 3
    stopped = {**scores, "far": first(scores, 3)["far"]}  # what the runner leaves
    assert judge(stopped, pairs, AUTO) == whole


def test_a_look_that_is_not_complete_decides_nothing() -> None:
    scores = simulated(12, base=0.0, far=-8.0, near=-8.0)
    pairs = to_baseline(list(scores), "base")
    found = judge(first(scores, 2), pairs, AUTO)
    assert {answer.verdict.word for answer in found.values()} == {"undecided"}
    assert {answer.verdict.more for answer in found.values()} == {1}
    scores["near"] = first(scores, 2)["near"]
    found = judge(first(scores, 3), pairs, AUTO)
    assert found["near", "base"].verdict.word == "undecided" and not found["far", "base"].verdict.open


def test_between_two_looks_an_open_row_needs_what_was_estimated_and_not_what_the_next_look_lacks() -> None:
    """A difference of one, a spread of five: three more seeds make the next look, and do not decide."""
    scores = {"base": dict.fromkeys(range(6), 0.0), "wild": dict(enumerate((-6.0, 4.1, -1.3, 0.2, 3.3, -5.0)))}
    scores["base"][0] = 0.001
    pairs = to_baseline(list(scores), "base")
    for count in (3, 4, 5):  # nothing is seen before the next look is complete
        found = judge(first(scores, count), pairs, AUTO)["wild", "base"]
        assert found.verdict.word == "undecided" and found.verdict.more is not None and found.verdict.more > 50
        assert found.difference == judge(first(scores, 3), pairs, AUTO)["wild", "base"].difference
        assert found.difference.level == pytest.approx(1 - 0.05 * 3 / 12)
    near = {"base": dict.fromkeys(range(3), 0.0), "near": dict(enumerate((0.3, 0.9, 0.6)))}
    found = judge(near, [("near", "base")], AUTO)["near", "base"]
    assert found.verdict.word == "undecided" and found.verdict.more is not None and found.verdict.more >= 3


def test_a_diverged_row_stops() -> None:
    scores = simulated(3, base=0.0, lost=1.0, near=0.4)
    scores["lost"][1] = math.nan
    pairs = to_baseline(list(scores), "base")
    found = judge(scores, pairs, AUTO)
    assert found["lost", "base"].verdict.word == "diverged: no verdict" and "lost" not in undecided(pairs, found)


def test_a_relative_margin_follows_the_baseline() -> None:
    scores = {"base": {0: 100.0, 1: 101.0, 2: 99.0}, "a": {0: 100.1, 1: 100.9, 2: 99.0}}
    found = judge(scores, [("a", "base")], Criterion(False, Margin(0.01, relative=True)))
    assert found["a", "base"].margin == pytest.approx(1.0) and found["a", "base"].verdict.word == "practically equal"


@pytest.mark.parametrize("seed", range(30))
def test_rows_share_a_letter_if_and_only_if_they_were_not_told_apart(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = [f"row {i}" for i in range(int(random.integers(2, 8)))]
    apart = [pair for pair in all_pairs(names) if random.random() < 0.5]
    found = letters(names, apart)
    for pair in all_pairs(names):
        assert bool(set(found[pair[0]]) & set(found[pair[1]])) == (pair not in apart)
    assert found[names[0]].startswith("a") and all(found.values())


def test_letters_of_a_chain() -> None:
    assert letters(["x", "y", "z"], [("x", "z")]) == {"x": "a", "y": "ab", "z": "b"}
    assert letters(["x", "y"], []) == {"x": "a", "y": "a"}


def test_a_collapsed_run_is_found_and_noise_is_not() -> None:
    random = np.random.default_rng(2)
    alarms = hits = 0
    for _ in range(400):
        values = random.standard_normal((5, 3))
        alarms += bool(outliers({i: dict(enumerate(row.tolist())) for i, row in enumerate(values)}))
        values[1, 2] -= 20
        hits += (1, 2) in outliers({i: dict(enumerate(row.tolist())) for i, row in enumerate(values)})
    assert alarms <= 12 and hits >= 380
    assert outliers({}) == [] and outliers({"a": {0: 1.0, 1: 1.0, 2: 1.0}}) == []
