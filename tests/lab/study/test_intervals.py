"""Intervals: scipy's where rows stand alone, as simulated where they lend, and never silent about a lost run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scripts import load_script

from odeum.lab.study.judge import STOPPED, Criterion, Seeds, judge
from odeum.lab.study.metric import Margin
from odeum.lab.study.statistics import Difference, all_pairs, differences, resolution, to_baseline

stats = pytest.importorskip("scipy.stats")
ROOT = Path(__file__).parents[3]


simulation = load_script("benchmarks/intervals.py")


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def one(ours: dict[int, float], base: dict[int, float]) -> Difference | None:
    return differences({"ours": ours, "base": base}, [("ours", "base")]).get(("ours", "base"))


def test_two_rows_are_scipys_paired_t_test() -> None:
    ours, base = seeds(0.91, 0.93, 0.95, 0.92), seeds(0.90, 0.91, 0.91, 0.92)
    found = one(ours, base)
    test = stats.ttest_rel(list(ours.values()), list(base.values()))
    interval = test.confidence_interval(0.95)
    assert found is not None and found.p == pytest.approx(test.pvalue) and found.degrees == 3
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_pairing_removes_what_the_seeds_share() -> None:
    ours, base = seeds(0.51, 0.711, 0.909), seeds(0.50, 0.70, 0.90)
    found = one(ours, base)
    assert found is not None and found.low is not None and found.low > 0
    assert stats.ttest_ind(list(ours.values()), list(base.values())).pvalue > 0.9


def test_only_shared_seeds_count() -> None:
    found = one({0: 1.0, 1: 2.0, 7: 99.0}, {0: 0.5, 1: 1.0, 3: -99.0})
    assert found is not None and found.n == 2 and found.mean == pytest.approx(0.75)
    assert one({0: 1.0}, {1: 1.0}) is None


def test_rows_lend_by_the_rule() -> None:
    """By hand: four pairs of three seeds; each takes 3/4 of its two degrees, and the family's pooled variance."""
    rows = {"base": seeds(0.0, 0.0, 0.0), "a": seeds(1.0, 2.0, 3.0), "b": seeds(1.0, 3.0, 5.0)}
    rows |= {"c": seeds(0.0, 1.0, 2.0), "d": seeds(4.0, 4.1, 4.2)}
    found = differences(rows, to_baseline(list(rows), "base"))
    pooled = (1 + 4 + 1 + 0.01) / 4
    own = {"a": 1.0, "b": 4.0, "c": 1.0, "d": 0.01}
    for name, variance in own.items():
        each = found[name, "base"]
        mixed = max(variance, (2 * variance + 1.5 * pooled) / 3.5)
        half = stats.t.ppf(1 - 0.05 / 8, 3.5) * math.sqrt(mixed / 3)
        assert each.degrees == 3.5 and each.level == pytest.approx(1 - 0.05 / 4)
        assert each.high == pytest.approx(each.mean + half) and each.low == pytest.approx(each.mean - half)


@pytest.mark.parametrize(("others", "degrees"), [(1, 2.0), (2, 2.5), (3, 3.0), (4, 3.5), (8, 3.5), (19, 3.5)])
def test_a_pair_borrows_from_three_others_at_most(others: int, degrees: float) -> None:
    random = np.random.default_rng(others)
    rows = {name: seeds(*random.standard_normal(3).tolist()) for name in range(others + 1)}
    assert {found.degrees for found in differences(rows, to_baseline(list(rows), 0)).values()} == {degrees}


def test_two_seeds_neither_lend_nor_borrow() -> None:
    rows = {"base": seeds(0.0, 0.0, 0.0), "a": seeds(1.0, 2.0, 4.0), "b": seeds(1.0, 9.0)}
    found = differences(rows, to_baseline(list(rows), "base"))
    assert found["a", "base"].degrees == 2 and found["b", "base"].degrees == 1
    half = stats.t.ppf(1 - 0.05 / 4, 1) * 4.0
    assert found["b", "base"].high == pytest.approx(5.0 + half)


def test_more_pairs_widen_an_interval_of_the_same_spread() -> None:
    ours = seeds(1.0, 1.1, 1.3)
    widths = []
    for others in (3, 6, 11):
        rows = {"base": seeds(0.5, 0.5, 0.5), **{f"row {i}": ours for i in range(others)}}
        each = differences(rows, to_baseline(list(rows), "base"))["row 0", "base"]
        assert each.high is not None and each.level == pytest.approx(1 - 0.05 / others)
        widths.append(each.high - each.mean)
    assert widths == sorted(widths)


def test_one_seed_has_no_interval_and_is_none_of_the_family() -> None:
    rows = {"base": seeds(0.1, 0.2, 0.4), "a": seeds(0.9), "b": seeds(0.4, 0.6, 0.7)}
    found = differences(rows, to_baseline(list(rows), "base"))
    assert found["a", "base"].problem == "one seed" and found["a", "base"].low is None
    assert found["b", "base"].level == pytest.approx(0.95)


@pytest.mark.parametrize("better", [0, 1])
def test_one_example_in_every_seed_has_the_spread_of_an_example(better: int) -> None:
    """Two rows alone, of 359 examples: no spread of their own, and yet an interval of more than nothing."""
    base, step = seeds(350 / 359, 351 / 359, 353 / 359), 1 / 359
    found = one({s: x + better * step for s, x in base.items()}, base)
    half = stats.t.ppf(0.975, 2) * math.sqrt(0.5 / 3) * step
    assert found is not None and found.mean == pytest.approx(better * step) and found.problem is None
    assert (found.low, found.high) == (pytest.approx(found.mean - half), pytest.approx(found.mean + half))


def test_values_that_are_all_one_show_nothing() -> None:
    rows = {"base": seeds(1.0, 1.0, 1.0), "a": seeds(1.0, 1.0, 1.0), "b": seeds(1.0, 1.0)}
    for found in differences(rows, to_baseline(list(rows), "base")).values():
        assert found.problem == "same in every seed" and found.p is None and found.low is None


def test_the_step_in_which_values_lie() -> None:
    assert resolution(k / 359 for k in (350, 356, 353)) == pytest.approx(3 / 359)
    assert resolution(k / 100_000 for k in (97_003, 97_010, math.nan, 3)) == pytest.approx(1e-5)
    random = np.random.default_rng(0)
    assert max(resolution(random.random(6)) for _ in range(200)) < 1e-5  # many digits: next to nothing
    assert resolution([]) == resolution([0.5, 0.5]) == resolution([0.0, math.inf]) == 0.0


def test_numbers_beyond_all_bounds_are_no_measurement() -> None:
    rows = {"base": seeds(0.1, 0.2, 0.4), "a": seeds(0.3, 1e200, 0.2), "b": seeds(0.4, 0.6, 0.7)}
    found = differences(rows, to_baseline(list(rows), "base"))
    assert found["a", "base"].problem == "diverged" and found["b", "base"].low is not None


def test_a_diverged_run_is_not_dropped_in_silence() -> None:
    found = one(seeds(1.0, math.nan, 1.1), seeds(2.0, 2.1, 2.0))
    assert found is not None and found.problem == "diverged" and math.isnan(found.mean) and found.low is None


def test_overlapping_training_parts_widen_by_nadeau_and_bengio() -> None:
    rows = {"base": seeds(0.0, 0.0, 0.0, 0.0), "a": seeds(1.0, 2.0, 4.0, 3.0)}
    plain, wide = (differences(rows, [("a", "base")], overlap=x)["a", "base"] for x in (0.0, 0.25))
    assert plain.high is not None and wide.high is not None
    assert (wide.high - wide.mean) / (plain.high - plain.mean) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("declare", [lambda names: to_baseline(names, 0), all_pairs])
def test_the_simulation_makes_the_same_intervals(declare) -> None:
    """Whole tables and tables with missing runs; what is simulated is what is shipped."""
    random = np.random.default_rng(1)
    for rows, count in ((2, 3), (3, 3), (5, 3), (5, 6), (8, 4)):
        values = simulation.missing(simulation.tables("t3", "unequal", rows, count, 20, random), random)
        pairs = declare(range(rows))
        low, high = simulation.intervals(values, pairs)
        for table in range(len(values)):
            scores = {r: {s: float(x) for s, x in enumerate(values[table, r]) if x == x} for r in range(rows)}
            found = differences(scores, pairs)
            assert [found[p].low for p in pairs] == pytest.approx(low[table].tolist())
            assert [found[p].high for p in pairs] == pytest.approx(high[table].tolist())


def test_the_simulation_stops_the_same_hopeless_rows() -> None:
    random, plan, pairs = np.random.default_rng(4), Seeds.parse("auto"), to_baseline(range(5), 0)
    values = random.standard_normal((60, 5, 12)) + np.array([0, 0, 0.5, 1.5, -2.5])[:, None]
    kept, runs, stopped = simulation.decided(values, pairs, plan.looks, 1.0, futility=True)
    criterion = Criterion(True, Margin(1.0), plan, futility=True)
    for table, rows in enumerate(values):
        found = judge({row: dict(enumerate(map(float, each))) for row, each in enumerate(rows)}, pairs, criterion)
        words = [found[pair].verdict.word for pair in pairs]
        assert [word == STOPPED for word in words] == stopped[table].tolist()
        assert [word not in (STOPPED, "undecided") for word in words] == (~np.isnan(kept[0][table])).tolist()
    assert stopped.any() and runs.min() < runs.max() <= 60


def test_the_simulation_makes_the_same_intervals_of_counts() -> None:
    random = np.random.default_rng(2)
    values, pairs = random.integers(0, 4, (200, 3, 3)), to_baseline(range(3), 0)
    flat = values.reshape(200, -1)
    steps = np.gcd.reduce(flat - flat[:, :1], axis=-1)
    low, high = simulation.intervals(values.astype(float), pairs, steps=steps)
    for table, step in enumerate(steps):
        scores = {r: {s: float(x) for s, x in enumerate(row)} for r, row in enumerate(values[table])}
        assert resolution(x for row in scores.values() for x in row.values()) == step
        found = differences(scores, pairs)
        assert [found[p].low for p in pairs] == pytest.approx(low[table].tolist())
        assert [found[p].high for p in pairs] == pytest.approx(high[table].tolist())


@pytest.mark.parametrize(("rows", "count", "size"), [(2, 6, 0.3), (5, 12, 0.15), (3, 12, 0.3)])
def test_whole_examples_keep_the_family_wise_error(rows: int, count: int, size: float) -> None:
    """Where a run's spread is less than an example the plain interval errs in up to 8 % of the tables."""
    assert simulation.counts("normal", "equal", rows, count, size, 4000, np.random.default_rng(5))["error"] <= 0.06


CELLS = [
    ("normal", "equal", 5, 3),
    ("normal", "one row 10 ×", 5, 3),
    ("normal", "half 10 ×", 12, 3),
    ("normal", "baseline 3 ×", 3, 3),
    ("normal", "baseline 3 ×", 3, 4),
    ("normal", "baseline 10 ×", 4, 3),
    ("normal", "baseline 10 ×", 5, 3),
    ("t3", "unequal", 8, 6),
    ("laplace", "baseline 3 ×", 20, 3),
]


@pytest.mark.parametrize(("kind", "spread", "rows", "count"), CELLS)
def test_the_family_wise_error_is_kept(kind: str, spread: str, rows: int, count: int) -> None:
    """4,000 tables of a fixed seed, in the cells that come nearest to the limit; 20,000 in the committed file."""
    values = simulation.tables(kind, spread, rows, count, 4000, np.random.default_rng(5))
    assert simulation.error_of(values, to_baseline(range(rows), 0)) <= 0.06


def test_lending_is_worth_it() -> None:
    found = simulation.power(5, 3, 3.0, 4000, np.random.default_rng(5))
    assert found["power"] > 2.1 * found["plain"] and found["plain"] > 0.15


def test_the_committed_simulation_keeps_its_promises() -> None:
    found = json.loads(simulation.RESULT.read_text(encoding="utf-8"))
    assert found["tables"] >= 20_000 and found["command"] == "python benchmarks/intervals.py"
    known = [cell for cell in found["symmetric"] if cell["seeds"] >= 3]
    assert {cell["noise"] for cell in known} == {"normal", "laplace", "t3"}
    assert {cell["rows"] for cell in known} >= {2, 3, 4, 5, 8, 12, 20} and len(known) > 800
    assert max(cell["error"] for cell in known) <= 0.055
    assert max(cell["error"] for cell in found["looks"]) <= 0.05
    assert max(cell["error"] for cell in found["counts"]) <= 0.055
    assert max(cell["error"] for cell in found["futility"]["cells"]) <= 0.05 and found["futility"]["tables"] >= 10_000
    for cell in found["futility"]["saved"]:
        assert cell["runs"][1] <= cell["runs"][0] and cell["better"][1] > 0.75 * cell["better"][0]
    assert found["power"][0]["power"] > 2.1 * found["power"][0]["plain"]
    assert found["estimate"]["decided"] > 0.5


def test_the_tables_of_the_docs_are_those_of_the_file() -> None:
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    for table in simulation.show(json.loads(simulation.RESULT.read_text(encoding="utf-8"))).strip().split("\n\n"):
        assert table in text, table
