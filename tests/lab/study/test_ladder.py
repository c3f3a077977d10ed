"""Gains and trends over sizes: exact on exact curves, Fieller's interval, refusals; page and simulation agree."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripts import load_script

from odeum.errors import OdeumError
from odeum.lab.study.ladder import Rung, detectable_change, fit, gains, local_slope, trends
from odeum.lab.study.statistics import differences, t_quantile

ROOT = Path(__file__).parents[3]
NOISE = (-1e-4, 0.0, 1e-4)


def power_law(cost: float, limit: float = 2.0, scale: float = 3.0, power: float = 0.3) -> float:
    return limit + scale * cost**-power


def rungs_of(logs: tuple[float, ...], noise: tuple[float, ...] = NOISE, sign: float = 1.0) -> list[Rung]:
    """An architecture whose loss is the baseline's at exp(log gain) times the cost."""
    costs = [4.0**k for k in range(len(logs))]
    rungs = []
    for cost, log in zip(costs, logs, strict=True):
        base = {seed: sign * (power_law(cost) + x) for seed, x in enumerate(noise)}
        ours = {seed: sign * (power_law(cost * math.exp(log)) - x) for seed, x in enumerate(noise)}
        rungs.append(Rung(f"{cost:g}", cost, {"sequential": base, "other": ours}, {"sequential": 2.0, "other": 1.0}))
    return rungs


@pytest.mark.parametrize("logs", [(0.0, 0.0, 0.0), (0.2, 0.2, 0.2), (-0.3, 0.1, 0.4), (0.4, 0.2, 0.0, -0.1)])
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["lower is better", "higher is better"])
def test_the_gain_on_a_power_law_is_the_factor_of_cost(logs: tuple[float, ...], sign: float) -> None:
    found = gains(rungs_of(logs, sign=sign), "sequential", higher_is_better=sign < 0)
    for place, log in enumerate(logs):
        gain = found["other", place]
        assert gain.log == pytest.approx(log, abs=2e-3)
        assert gain.low is not None and gain.high is not None and gain.low < log < gain.high
        assert gain.compute == pytest.approx(math.log(2.0))


@pytest.mark.parametrize(
    ("logs", "word"),
    [((0.2, 0.2, 0.2), "holds"), ((0.0, 0.2, 0.4), "grows"), ((0.4, 0.2, 0.0), "shrinks"), ((0.0, 0.05, 0.1), "grows")],
)
def test_words_of_the_trend(logs: tuple[float, ...], word: str) -> None:
    trend = trends(rungs_of(logs), "sequential")["other"]
    assert trend.word == word
    assert trend.change == pytest.approx(logs[-1] - logs[0], abs=5e-3)


def test_noise_leaves_the_trend_undecided() -> None:
    assert trends(rungs_of((0.0, 0.1, 0.2), noise=(-0.2, 0.0, 0.2)), "sequential")["other"].word == "undecided"


def test_the_interval_is_fiellers() -> None:
    """Its ends are where d − r β is t standard errors from zero, with the variances that the module states."""
    rungs = rungs_of((0.1, 0.1, 0.1), noise=(-0.004, 0.001, 0.003))
    found = gains(rungs, "sequential")["other", 1]
    difference = differences(rungs[1].scores, [("other", "sequential")])["other", "sequential"]
    means = [float(np.mean(list(rung.scores["sequential"].values()))) for rung in rungs]
    curve = local_slope([math.log(rung.cost) for rung in rungs], means, 1)
    quantile = t_quantile((1 + found.level) / 2, difference.degrees)
    spreads = [float(np.var(list(rung.scores["sequential"].values()), ddof=1)) / 3 for rung in rungs]
    slope_variance = sum(w**2 * spreads[j] for j, w in curve.weights.items())
    assert difference.spread is not None
    variance = difference.spread**2 / 3
    covariance = curve.weights[1] * min(3 * spreads[1], difference.spread**2 / 2) / 3
    for log in (found.low, found.high):
        assert log is not None
        ratio = (1 - math.exp(-curve.power * log)) / curve.power
        distance = -difference.mean - ratio * curve.slope
        error = math.sqrt(variance - 2 * ratio * covariance + ratio**2 * slope_variance)
        assert abs(distance) == pytest.approx(quantile * error, rel=1e-6)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_local_slope_is_the_derivative(place: int) -> None:
    x = [0.0, 1.1, 2.9]  # uneven
    curve = local_slope(x, [power_law(math.exp(point)) for point in x], place)
    assert curve.slope == pytest.approx(0.9 * math.exp(-0.3 * x[place]), rel=1e-6)
    assert curve.power == pytest.approx(0.3, rel=1e-6)


OTHER_CURVES: dict[str, Callable[[float], float]] = {
    "two powers": lambda c: 1.5 + 1.5 * c**-0.25 + 1.5 * c**-0.7,
    "a parabola in the logarithm": lambda c: 4 - 0.5 * math.log(c) + 0.06 * math.log(c) ** 2,
    "a plateau first": lambda c: 2 + 1.2 / (1 + (c / 3) ** 0.8),
}


@pytest.mark.parametrize("curve", OTHER_CURVES)
def test_a_curve_of_another_form_biases_the_gain_as_the_page_says(curve: str) -> None:
    loss = OTHER_CURVES[curve]

    def bias(gain: float, costs: tuple[float, ...]) -> float:
        means = [loss(cost) for cost in costs]
        slopes = [local_slope([*map(math.log, costs)], means, place) for place in range(len(costs))]
        found = [
            math.exp(slope.log_gain((mean - loss(cost * gain)) / slope.slope))
            for slope, mean, cost in zip(slopes, means, costs, strict=True)
        ]
        return max(abs(x - gain) for x in found)

    for gain, most in ((1.2, 0.05), (1.5, 0.15)):
        assert bias(gain, (1, 4, 16)) < most
        assert bias(gain, (1, 2, 4, 8, 16)) < most / 2


def test_a_flat_baseline_has_no_gain() -> None:
    rungs = [
        Rung(str(cost), cost, {"a": {0: 1.0, 1: 1.01, 2: 0.99}, "b": {0: 0.9, 1: 0.93, 2: 0.88}})
        for cost in (1.0, 4.0, 16.0)
    ]
    found = gains(rungs, "a")["b", 2]
    assert not found.decided and "not shown to fall" in (found.problem or "")
    assert trends(rungs, "a")["b"].word == "undecided"


def test_a_loss_below_the_baselines_limit_is_undecided() -> None:
    rungs = rungs_of((0.0, 0.0, 0.0))
    rungs[2] = Rung("16", 16.0, {**rungs[2].scores, "other": {seed: 1.0 + x for seed, x in enumerate(NOISE)}})
    assert "below all that the baseline" in (gains(rungs, "sequential")["other", 2].problem or "")


def test_diverged_runs_have_no_gain() -> None:
    rungs = rungs_of((0.1, 0.1, 0.1))
    rungs[1] = Rung("4", 4.0, {**rungs[1].scores, "other": {0: math.nan, 1: 3.0, 2: 3.0}})
    assert gains(rungs, "sequential")["other", 1].problem == "diverged: no gain"


@pytest.mark.parametrize(
    ("rungs", "message"),
    [
        (rungs_of((0.0, 0.0)), "at least 3 sizes"),
        (rungs_of((0.0, 0.0, 0.0))[::-1], "increase in cost"),
        ([Rung("1", 1.0, {"other": {0: 1.0}}), *rungs_of((0.0, 0.0, 0.0))[1:]], "has no runs at size 1"),
        (
            [Rung("1", 1.0, {"sequential": {0: math.nan}, "other": {0: 1.0}}), *rungs_of((0.0, 0.0, 0.0))[1:]],
            "diverged in every seed at size 1",
        ),
    ],
)
def test_ladders_that_cannot_be_read(rungs: list[Rung], message: str) -> None:
    with pytest.raises(OdeumError, match=message):
        gains(rungs, "sequential")


def test_the_fit_needs_five_sizes_and_finds_the_curve() -> None:
    costs = [2.0**k for k in range(6)]
    assert fit(costs[:4], [power_law(cost) for cost in costs[:4]]) is None
    found = fit(costs, [power_law(cost) for cost in costs])
    assert found is not None
    assert (found.limit, found.scale, found.power) == pytest.approx((2.0, 3.0, 0.3), rel=1e-6)


def test_more_seeds_detect_smaller_changes() -> None:
    log_costs = [0.0, math.log(4.0), math.log(16.0)]
    changes = [detectable_change(0.01, (0.2, 0.2, 0.2), log_costs, seeds, 3) for seeds in (2, 3, 6, 12)]
    assert all(a > b for a, b in itertools.pairwise(changes)) and changes[-1] > 0  # ty: ignore
    assert detectable_change(0.01, (0.2, 0.2, 0.2), log_costs, 1, 3) is None


def test_page_and_simulation_agree() -> None:
    simulation = load_script("benchmarks/ladder.py")
    cells = json.loads(simulation.RESULT.read_text(encoding="utf-8"))["cells"]
    page = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    for table in simulation.show(cells).strip().split("\n\n"):
        assert table in page
    assert max(cell["missed"] for cell in cells) < 0.065 and max(cell["wrong_word"] for cell in cells) < 0.065
    random = np.random.default_rng(1)
    one = simulation.cell("fast", "holds at 1.2", 3, 3, 2, 0.01, "normal", 40, random)
    assert one["missed"] <= 0.2 and sum(one["words"].values()) == pytest.approx(1.0)
