"""Equal tuning: one grid for all, widened at its ends up to one cap, chosen on what was measured."""

from __future__ import annotations

import math

import pytest

from odeum.errors import OdeumError
from odeum.lab.study.tuning import Choice, Tuning, parse_settings


def tune(optimum: float, runs: int = 3, default: float = 1e-3, diverges: float = math.inf) -> tuple[Choice, int]:
    """Carry a tuning out on a loss that is a parabola in the logarithm of the rate."""
    tuning = Tuning(("learning_rate",), (default,), runs)
    values: dict[tuple[float, ...], float] = {}
    while todo := tuning.missing(values, higher_is_better=False):
        for point in todo:
            values[point] = math.nan if point[0] >= diverges else math.log2(point[0] / optimum) ** 2
        assert len(values) <= tuning.cap
    return tuning.choose(values, higher_is_better=False), len(values)


@pytest.mark.parametrize("runs", [3, 4, 5])
@pytest.mark.parametrize("optimum", [5e-4, 1e-3, 2e-3, 4e-3])
def test_the_best_rate_is_found_inside_the_grid(optimum: float, runs: int) -> None:
    choice, _ = tune(optimum, runs)
    assert choice.resolved and choice.changes == {"learning_rate": pytest.approx(optimum)}
    half, twice = choice.sensitivity()
    assert half == pytest.approx(1.0) and twice == pytest.approx(1.0)


def test_the_grid_is_log_spaced_around_the_default() -> None:
    assert Tuning(("learning_rate",), (0.002,), 3).points == ((0.001,), (0.002,), (0.004,))
    assert Tuning(("learning_rate",), (0.002,), 4).points == ((0.0005,), (0.001,), (0.002,), (0.004,))


@pytest.mark.parametrize("optimum", [1e-7, 10.0])
def test_an_optimum_beyond_the_cap_is_unresolved(optimum: float) -> None:
    choice, runs = tune(optimum)
    assert not choice.resolved and runs == 6


def test_nothing_is_looked_for_beyond_a_rate_that_diverged() -> None:
    choice, runs = tune(0.1, diverges=2e-3)
    assert choice.changes == {"learning_rate": 1e-3} and choice.resolved and runs == 3


def test_rates_that_all_diverge_are_lowered_and_then_reported() -> None:
    choice, runs = tune(1e-3, diverges=2e-4)
    assert choice.point[0] < 2e-4 and runs <= 6
    with pytest.raises(OdeumError, match="every tuning run diverged"):
        tune(1e-3, diverges=1e-9)


def test_of_equal_values_the_smaller_rate_is_kept() -> None:
    tuning = Tuning(("learning_rate",), (1.0,), 3)
    assert tuning.choose({(0.5,): 1.0, (1.0,): 1.0, (2.0,): 1.0}, False).point == (0.5,)
    assert tuning.choose({(0.5,): 0.2, (1.0,): 0.7, (2.0,): 0.6}, True).point == (1.0,)


def test_several_settings_take_the_same_sobol_points_for_everybody() -> None:
    tuning = Tuning(("learning_rate", "weight_decay"), (1e-3, 0.1), 8)
    points = tuning.points
    assert points == Tuning(("learning_rate", "weight_decay"), (1e-3, 0.1), 8).points and len({*points}) == 8
    for rate, decay in points:
        assert 1e-3 / 4 <= rate <= 4e-3 and 0.1 / 4 <= decay <= 0.4
    assert tuning.missing({point: 1.0 for point in points}, False) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tuning(("learning_rate",), (1e-3,), 1), "--tune 1 is too few"),
        (lambda: Tuning(("weight_decay",), (0.0,), 3), "weight_decay=0 cannot be tuned.*--train.weight_decay 0.05"),
        (lambda: Tuning(("dropout",), (0.0,), 3), "dropout=0 cannot be tuned.*--model.dropout 0.1"),
        (lambda: parse_settings("learning_rate,momentum"), "'momentum' is not a setting"),
        (lambda: parse_settings("learning_rate,learning_rate"), "each setting once"),
        (lambda: parse_settings(" "), "each setting once"),
    ],
)
def test_refusals(make: object, message: str) -> None:
    with pytest.raises(OdeumError, match=message):
        make()  # ty: ignore[call-non-callable]
