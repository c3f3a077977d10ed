"""Seeds are few, so the arithmetic is checked by hand and against scipy."""

from __future__ import annotations

import pytest

from odeum.lab.study.statistics import Ratio, paired_ratio, pairing, summarise, t_quantile, t_test

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


def test_p_value_is_scipys() -> None:
    found = stats.ttest_1samp([0.1, 0.3, 0.2, 0.4], 0.0)
    assert t_test(found.statistic, 3) == pytest.approx(found.pvalue, rel=1e-10)


def test_ratio_is_the_median_within_seeds() -> None:
    assert paired_ratio(seeds(2.0, 30.0, 3.0), seeds(1.0, 10.0, 2.0)) == Ratio(2.0, 1.5, 3.0)
    assert paired_ratio(seeds(1.0, 3.0), seeds(1.0, 1.0)) == Ratio(2.0, 1.0, 3.0)
    assert paired_ratio({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("ratio", "tells"),
    [
        (Ratio(0.8, 0.75, 0.85), True),
        (Ratio(1.3, 1.2, 1.5), True),
        (Ratio(0.97, 0.96, 0.98), False),  # every seed agrees, but it is little
        (Ratio(0.8, 0.7, 1.05), False),  # a busy machine: one seed says the opposite
    ],
)
def test_a_ratio_tells_only_what_every_seed_says(ratio: Ratio, tells: bool) -> None:
    assert ratio.differs(0.1) is tells


def test_pairing_by_hand() -> None:
    a = seeds(1.0, 2.0, 4.0)
    assert pairing(a, seeds(11.0, 12.0, 14.0)) == 0.0
    assert pairing(a, seeds(-1.0, -2.0, -4.0)) == pytest.approx(2.0)
    # var a = 7/3, var b = 1, var(a − b) = var(2, 1, 4) = 7/3
    assert pairing(a, seeds(-1.0, 1.0, 0.0)) == pytest.approx((7 / 3) / (7 / 3 + 1))
    assert pairing(a, {1: 2.0, 2: 5.0, 7: 100.0}) == pytest.approx(0.5 / (2.0 + 4.5))


def test_pairing_of_too_little() -> None:
    assert pairing(seeds(1.0), seeds(2.0)) is None
    assert pairing({0: 1.0, 1: 2.0}, {2: 1.0, 3: 2.0}) is None
    assert pairing(seeds(1.0, 1.0), seeds(2.0, 2.0)) is None


def test_pairing_of_independent_runs_is_one() -> None:
    import random

    numbers = random.Random(0)
    a, b = ({seed: numbers.gauss(0, 1) for seed in range(4000)} for _ in range(2))
    assert pairing(a, b) == pytest.approx(1.0, abs=0.06)
