"""Seeds are few, so the arithmetic is checked by hand and against scipy, and the verdict against its interval."""

from __future__ import annotations

import math

import pytest

from odeum.compare.statistics import level_for, paired_difference, paired_ratio, summarise, t_quantile

stats = pytest.importorskip("scipy.stats")


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_summary_by_hand() -> None:
    summary = summarise([2.0, 4.0, 6.0])
    assert summary is not None
    assert (summary.mean, summary.spread, summary.n) == (4.0, 2.0, 3)


def test_one_value_has_no_spread_and_none_has_no_summary() -> None:
    one = summarise([0.5])
    assert one is not None and one.spread is None and one.n == 1
    assert summarise([]) is None


@pytest.mark.parametrize("degrees", [1, 2, 4, 30])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.99375])
def test_t_quantile_is_scipys(degrees: int, probability: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-10)


def test_t_quantile_of_the_printed_table() -> None:
    assert t_quantile(0.975, 2) == pytest.approx(4.3027, abs=1e-4)


def test_paired_difference_is_scipys_paired_t_test() -> None:
    ours, base = seeds(0.91, 0.93, 0.95, 0.92), seeds(0.90, 0.91, 0.91, 0.92)
    difference = paired_difference(ours, base, higher_is_better=True)
    test = stats.ttest_rel(list(ours.values()), list(base.values()))
    interval = test.confidence_interval(0.95)
    assert difference is not None and difference.p == pytest.approx(test.pvalue)
    assert (difference.low, difference.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_pairing_removes_what_the_seeds_share() -> None:
    ours, base = seeds(0.51, 0.711, 0.909), seeds(0.50, 0.70, 0.90)
    difference = paired_difference(ours, base, higher_is_better=True)
    assert difference is not None and difference.verdict == "better"
    assert stats.ttest_ind(list(ours.values()), list(base.values())).pvalue > 0.9


def test_only_shared_seeds_count() -> None:
    difference = paired_difference({0: 1.0, 1: 2.0, 7: 99.0}, {0: 0.5, 1: 1.0, 3: -99.0}, higher_is_better=True)
    assert difference is not None and difference.n == 2 and difference.mean == pytest.approx(0.75)
    assert paired_difference({0: 1.0}, {1: 1.0}, higher_is_better=True) is None


@pytest.mark.parametrize(("higher_is_better", "verdict"), [(True, "worse"), (False, "better")])
def test_direction(higher_is_better: bool, verdict: str) -> None:
    difference = paired_difference(seeds(90.0, 91.0, 89.0), seeds(100.0, 101.5, 99.0), higher_is_better)
    assert difference is not None and difference.verdict == verdict


def test_more_comparisons_widen_the_interval_and_can_take_the_verdict_away() -> None:
    ours, base = seeds(1.0, 1.1, 1.3), seeds(0.5, 0.5, 0.5)
    alone = paired_difference(ours, base, higher_is_better=True)
    crowd = paired_difference(ours, base, higher_is_better=True, comparisons=11)
    assert alone is not None and crowd is not None
    assert alone.verdict == "better" and crowd.verdict == "no difference shown"
    assert crowd.level == pytest.approx(1 - 0.05 / 11) and level_for(0) == 0.95
    half = stats.t.ppf(1 - 0.025 / 11, 2) * stats.sem([0.5, 0.6, 0.8])
    assert crowd.high == pytest.approx(crowd.mean + half)


def test_one_seed_gives_no_verdict() -> None:
    difference = paired_difference(seeds(0.9), seeds(0.1), higher_is_better=True)
    assert difference is not None and difference.verdict == "one seed: no verdict" and difference.low is None


@pytest.mark.parametrize("shift", [0.0, 0.01])
def test_identical_differences_prove_nothing(shift: float) -> None:
    base = seeds(0.95, 0.96, 0.97)
    difference = paired_difference({s: x + shift for s, x in base.items()}, base, higher_is_better=True)
    assert difference is not None and difference.verdict == "no difference shown" and difference.p is None


def test_a_diverged_run_is_not_dropped_in_silence() -> None:
    difference = paired_difference(seeds(1.0, math.nan, 1.1), seeds(2.0, 2.1, 2.0), higher_is_better=False)
    assert difference is not None and difference.verdict == "diverged: no verdict"


def test_ratio_is_the_median_within_seeds() -> None:
    assert paired_ratio(seeds(2.0, 30.0, 3.0), seeds(1.0, 10.0, 2.0)) == 2.0
    assert paired_ratio(seeds(1.0, 3.0), seeds(1.0, 1.0)) == 2.0
    assert paired_ratio({0: 1.0}, {1: 1.0}) is None
