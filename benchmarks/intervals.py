"""What the words of a comparison are worth: simulated tables, their family-wise error, power, and the price of looks.

    python benchmarks/intervals.py            # some minutes on one core; writes benchmarks/results/intervals.json
    python benchmarks/intervals.py --show     # prints the tables of docs/statistics.md from that file

A table is rows × seeds of noise; row 0 is the baseline. `intervals` is `odeum.lab.study.statistics` for many tables at
once (a test holds them equal); an error is an interval that leaves out the truth, a wrong word one that the truth
contradicts, each counted once a table.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy.special import stdtrit

from odeum.lab.study.judge import FUTILE, USUALLY, Criterion, Seeds, chances, judge
from odeum.lab.study.metric import Margin
from odeum.lab.study.sentences import MOST_SUGGESTED
from odeum.lab.study.statistics import ERROR, FROM, LEAST_VARIANCE, LENT, MOST_BORROWED, all_pairs, to_baseline

RESULT = Path(__file__).parent / "results" / "intervals.json"
TABLES = 40_000
MOST, ROUNDS = 60, 3
"""seeds in all, and times that seeds are added"""
FEWER = 4
"""times fewer tables per cell of stopped rows"""
SYMMETRIC = ("normal", "laplace", "t3")
OTHERS = ("skewed", "collapsing")
WITHOUT_MIDDLE = ("flat", "two-valued")
SPREADS = ("equal", "unequal", "one row 10 ×", "half 10 ×", "baseline 3 ×", "baseline 10 ×")
ROWS = (2, 3, 4, 5, 8, 12, 20)
SEEDS = (2, 3, 4, 6, 12)

Array = Any


def noise(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Draws whose centre is zero and whose size is about one."""
    if kind == "laplace":
        return random.laplace(size=shape)
    if kind == "t3":
        return random.standard_t(3, shape)
    if kind == "skewed":
        return np.sqrt(np.e) - random.lognormal(size=shape)
    if kind == "collapsing":  # one run in twenty ends far below the others; the mean is taken out
        return random.standard_normal(shape) - 20 * ((random.random(shape) < 0.05) - 0.05)
    if kind == "flat":
        return random.uniform(-2, 2, shape)
    if kind == "two-valued":  # a run finds it or does not
        return np.where(random.random(shape) < 0.5, -1.0, 1.0) + 0.1 * random.standard_normal(shape)
    return random.standard_normal(shape)


def spreads(kind: str, rows: int) -> Array:
    """The size of each row's noise; the baseline comes first."""
    size = np.ones(rows)
    if kind == "unequal":
        size = np.roll(np.geomspace(0.5, 2, rows), rows // 2)
    elif kind == "one row 10 ×":
        size[-1] = 10
    elif kind == "half 10 ×":
        size[-max(1, (rows - 1) // 2) :] = 10
    elif kind.startswith("baseline"):
        size[0] = float(kind.split()[1])
    return size


def tables(kind: str, spread: str, rows: int, seeds: int, count: int, random: np.random.Generator) -> Array:
    """(count, rows, seeds); what seeds share is taken out by pairing, so it is left out here."""
    values = noise(kind, (count, rows, seeds), random)
    if kind in (*OTHERS, *WITHOUT_MIDDLE):  # of noise that all share the difference would be symmetric again
        values[:, 0] = 0.3 * noise("normal", (count, seeds), random)
    return values * spreads(spread, rows)[:, None]


def intervals(
    values: Array, pairs: Sequence[tuple[int, int]], error: float = ERROR, lend: bool = True, steps: Array = 0.0
) -> Array:
    """Low and high, (2, tables, pairs); what is missing is NaN, and so is the interval of fewer than two seeds.

    `steps`: in which the values of each table lie; 0 where they have many digits.
    """
    mean, spread, degrees, count, family = estimates(values, pairs, lend, steps)
    half = np.where(count > 1, quantile(degrees, family, error) * spread / np.sqrt(np.maximum(count, 1)), np.nan)
    return np.stack([mean - half, mean + half])


def quantile(degrees: Array, family: Array, error: float) -> Array:
    """Student's t at level 1 − error / family."""
    keys = np.rint(64 * degrees).astype(int) + 2**24 * family  # few different ones: degrees are fractions of sixteenths
    known, where = np.unique(keys, return_inverse=True)
    return stdtrit(known % 2**24 / 64, 1 - error / (2 * (known // 2**24)))[where].reshape(keys.shape)


def estimates(
    values: Array, pairs: Sequence[tuple[int, int]], lend: bool = True, steps: Array = 0.0
) -> tuple[Array, Array, Array, Array, Array]:
    """Mean, standard deviation, degrees of freedom, seeds and size of the family of each pair."""
    first, second = (list(side) for side in zip(*pairs, strict=True))
    difference = values[:, first] - values[:, second]
    there = np.isfinite(difference)
    count = there.sum(-1)
    filled = np.where(there, difference, 0.0)
    mean = filled.sum(-1) / np.maximum(count, 1)
    degrees = np.maximum(count - 1.0, 1.0)
    own = (np.where(there, difference - mean[..., None], 0.0) ** 2).sum(-1) / degrees
    own = np.maximum(own, LEAST_VARIANCE * np.broadcast_to(steps, len(values))[:, None] ** 2)
    lends = np.where((count >= FROM) & lend, degrees, 0.0)
    total = lends.sum(-1, keepdims=True)
    shared = (lends * own).sum(-1, keepdims=True) / np.maximum(total, 1.0)
    lent = np.minimum(MOST_BORROWED * lends, LENT * (total - lends))
    variance = np.maximum(own, (degrees * own + lent * shared) / (degrees + lent))
    family = np.maximum((count > 1).sum(-1, keepdims=True), 1) + np.zeros_like(count)
    return mean, np.sqrt(variance), degrees + lent, count, family


def error_of(values: Array, pairs: Sequence[tuple[int, int]], lend: bool = True) -> float:
    """The share of tables in which any interval leaves out its truth, zero."""
    low, high = intervals(values, pairs, lend=lend)
    return float(((low > 0) | (high < 0)).any(-1).mean())


def counts(
    kind: str, spread: str, rows: int, seeds: int, size: float, count: int, random: np.random.Generator
) -> dict[str, Any]:
    """Whole examples of a small test set: each row has its own mean, and `size` is the spread of a run in examples."""
    means = random.uniform(-0.5, 0.5, (rows, 1))

    def draw(tables_: int, seeds_: int) -> Array:
        return np.rint(means + size * tables(kind, spread, rows, seeds_, tables_, random)).astype(int)

    expected = draw(5 * count, 1).mean((0, 2))
    values, pairs = draw(count, seeds), to_baseline(range(rows), 0)
    flat = values.reshape(count, -1)
    steps = np.gcd.reduce(flat - flat[:, :1], axis=-1)
    low, high = intervals(values.astype(float), pairs, steps=steps)
    truth = expected[1:] - expected[0]
    outside = ((low > truth) | (high < truth)) & (steps > 0)[:, None]  # values that are all one have no interval
    return {**_cell("counts", kind, spread, rows, seeds, float(outside.any(-1).mean())), "spread_of_a_run": size}


def missing(values: Array, random: np.random.Generator) -> Array:
    """A fifth of the runs did not end; every row keeps two seeds at least."""
    gone = random.random(values.shape) < 0.2
    gone[..., :2] = False
    return np.where(gone, np.nan, values)


def decided(
    values: Array, pairs: Sequence[tuple[int, int]], plan: Sequence[Any], margin: float, futility: bool = False
) -> tuple[Array, Array, Array]:
    """Intervals at the look that decided, (2, tables, pairs), NaN where none did; runs taken, a table; stopped pairs.

    Hopeless pairs are stopped only with `futility`.
    """
    stopped = np.zeros((len(values), len(pairs)), bool)
    going = np.ones(values.shape[:2], bool)
    kept = np.full((2, len(values), len(pairs)), np.nan)
    seen = np.full_like(values, np.nan)
    runs = np.zeros(len(values))
    before = 0
    for look in plan:
        seen[..., before : look.seeds] = np.where(going[..., None], values[..., before : look.seeds], np.nan)
        runs += going.sum(-1) * (look.seeds - before)
        found = intervals(seen, pairs, look.error)
        word = (found[0] > 0) | (found[1] < 0) | ((found[0] > -margin) & (found[1] < margin))
        fresh = word & np.isnan(kept[0]) & ~stopped
        kept = np.where(fresh, found, kept)
        if futility and look is not plan[-1]:
            stopped |= np.isnan(kept[0]) & hopeless(seen, pairs, plan[-1], margin)
        for row in range(values.shape[1]):
            mine = [row in pair for pair in pairs]
            going[:, row] = (np.isnan(kept[0]) & ~stopped)[:, mine].any(-1)
        before = look.seeds
    return kept, runs, stopped


def hopeless(seen: Array, pairs: Sequence[tuple[int, int]], last: Any, margin: float) -> Array:
    """`odeum.lab.study.judge._futile` for many tables (a test holds them equal)."""
    mean, spread, degrees, count, family = estimates(seen, pairs)
    rest = quantile(degrees / np.maximum(count - 1, 1) * (last.seeds - 1), family, last.error)
    half = rest * spread / np.sqrt(last.seeds)
    better, equal = chances(mean, spread, degrees, half, margin, count / last.seeds, last.seeds)
    return (better < FUTILE) & (equal < FUTILE)


def wrong(kept: Array, truth: Array, margin: float) -> Array:
    """Whether a word contradicts the truth, a table."""
    low, high = kept
    equal = (low > -margin) & (high < margin)
    above = (low > margin) & (truth <= margin) | (low > 0) & ~equal & (truth <= 0)
    below = (high < -margin) & (truth >= -margin) | (high < 0) & ~equal & (truth >= 0)
    return (above | below | equal & (abs(truth) >= margin)).any(-1)


def measure(count: int, seed: int) -> dict[str, Any]:
    """Every figure of docs/statistics.md, from one seed."""
    random = np.random.default_rng(seed)
    cells = []
    for kind in SYMMETRIC:
        for spread in SPREADS:
            for rows in ROWS:
                pairs = to_baseline(range(rows), 0)
                for seeds in SEEDS:
                    values = tables(kind, spread, rows, seeds, count, random)
                    cells.append(_cell("baseline", kind, spread, rows, seeds, error_of(values, pairs)))
                    if seeds in (3, 4, 6) and rows in (3, 5, 8, 20):
                        error = error_of(missing(values, random), pairs)
                        cells.append(_cell("missing runs", kind, spread, rows, seeds, error))
                    if seeds in (3, 6) and 3 <= rows <= 8:
                        error = error_of(values, all_pairs(range(rows)))
                        cells.append(_cell("all pairs", kind, spread, rows, seeds, error))
    return {
        "symmetric": cells,
        "others": others(OTHERS, count, random),
        "power": [power(rows, seeds, size, count, random) for rows, seeds, size in POWER],
        "looks": [
            looks(kind, spread, rows, truth, margin, count, random)
            for kind in SYMMETRIC
            for spread in SPREADS
            for rows in (2, 3, 5, 20)
            for truth, margin in ((0.0, 1.0), (1.0, 1.0), (3.0, 3.0))
        ],
        "thrift": [thrift(size, count, random) for size in (0.35, 0.7)],
    }


def measure_more(count: int, seed: int) -> dict[str, Any]:
    """The same of whole examples and of noise without a middle, with random numbers of their own."""
    random = np.random.default_rng(seed + 1)
    return {
        "counts": [
            counts(kind, spread, rows, seeds, size, count, random)
            for kind in SYMMETRIC
            for spread in ("equal", "one row 10 ×", "baseline 3 ×")
            for rows in (2, 3, 5, 8)
            for seeds in (3, 6, 12)
            for size in (0.15, 0.3, 0.6)
        ],
        "without_middle": others(WITHOUT_MIDDLE, count, random),
    }


def others(kinds: Sequence[str], count: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """What is too much for such intervals, and for those without lending."""
    return [
        _cell("baseline", kind, "equal", rows, seeds, error_of(values, pairs), error_of(values, pairs, lend=False))
        for kind in kinds
        for rows in (2, 5, 20)
        for seeds in (3, 6, 12)
        for pairs in [to_baseline(range(rows), 0)]
        for values in [tables(kind, "equal", rows, seeds, count, random)]
    ]


POWER = ((5, 3, 3.0), (2, 3, 3.0), (3, 3, 3.0), (8, 3, 3.0), (20, 3, 3.0), (5, 6, 1.5), (5, 12, 1.0))


def _cell(family: str, kind: str, spread: str, rows: int, seeds: int, error: float, plain: float | None = None) -> dict:
    cell = {"family": family, "noise": kind, "spreads": spread, "rows": rows, "seeds": seeds, "error": error}
    return cell if plain is None else {**cell, "plain": plain}


def power(rows: int, seeds: int, size: float, count: int, random: np.random.Generator) -> dict[str, Any]:
    """How often a true difference of `size` spreads of a run is shown; plain is each pair's own variance."""
    values = tables("normal", "equal", rows, seeds, count, random)
    values[:, 1:] += size
    pairs = to_baseline(range(rows), 0)
    shown = [float((intervals(values, pairs, lend=lend)[0] > 0).mean()) for lend in (True, False)]
    return {"rows": rows, "seeds": seeds, "difference": size, "power": shown[0], "plain": shown[1]}


def looks(
    kind: str, spread: str, rows: int, truth: float, margin: float, count: int, random: np.random.Generator
) -> dict[str, Any]:
    """Wrong words over all looks of --seeds auto, where every true difference is `truth`."""
    plan = Seeds.parse("auto")
    values = tables(kind, spread, rows, plan.limit, count, random)
    values[:, 1:] += truth
    kept, *_ = decided(values, to_baseline(range(rows), 0), plan.looks, margin)
    error = float(wrong(kept, np.full(rows - 1, truth), margin).mean())
    return {**_cell("looks", kind, spread, rows, plan.limit, error), "truth": truth, "margin": margin}


def thrift(size: float, count: int, random: np.random.Generator) -> dict[str, Any]:
    """Runs that --seeds auto takes and rows that it decides, for differences of 0, +0.5, +1.5 and −2.5 margins."""
    plan, truth = Seeds.parse("auto"), np.array([0.0, 0.5, 1.5, -2.5])
    values = size * tables("normal", "equal", 5, plan.limit, count, random)
    values[:, 1:] += truth[:, None]
    kept, runs, _ = decided(values, to_baseline(range(5), 0), plan.looks, 1.0)
    share = (~np.isnan(kept[0])).mean(0)
    return {
        "spread": size,
        "runs": float(runs.mean()),
        "of": 5 * plan.limit,
        "decided": dict(zip(map(str, truth), map(float, share), strict=True)),
        "wrong": float(wrong(kept, truth, 1.0).mean()),
    }


def measure_futility(count: int, seed: int) -> dict[str, Any]:
    """Errors, power and runs of --seeds auto where hopeless rows are stopped, with random numbers of its own."""
    random, plan = np.random.default_rng(seed + 2), Seeds.parse("auto")
    cells = []
    for kind in SYMMETRIC:
        for spread in SPREADS:
            for rows in (2, 5, 20):
                pairs = to_baseline(range(rows), 0)
                values = tables(kind, spread, rows, plan.limit, count, random)
                for truth, margin in ((0.0, 1.0), (1.0, 1.0), (3.0, 3.0)):
                    moved = values.copy()
                    moved[:, 1:] += truth
                    kept, *_ = decided(moved, pairs, plan.looks, margin, futility=True)
                    error = float(wrong(kept, np.full(rows - 1, truth), margin).mean())
                    cells.append(_cell("futility", kind, spread, rows, plan.limit, error))
    truth, saved = np.array([0.0, 0.5, 1.5, -2.5]), []
    for size in (0.35, 0.7, 1.5):
        values = size * tables("normal", "equal", 5, plan.limit, count, random)
        values[:, 1:] += truth[:, None]
        plain, runs, _ = decided(values, to_baseline(range(5), 0), plan.looks, 1.0)
        kept, fewer, stopped = decided(values, to_baseline(range(5), 0), plan.looks, 1.0, futility=True)
        saved.append(
            {
                "spread": size,
                "runs": [float(runs.mean()), float(fewer.mean())],
                "of": 5 * plan.limit,
                "better": [float((found[0][:, 2] > 0).mean()) for found in (plain, kept)],
                "stopped": dict(zip(map(str, truth), map(float, stopped.mean(0)), strict=True)),
            }
        )
    return {"futility": {"tables": count, "cells": cells, "saved": saved}}


def measure_added(count: int, seed: int) -> dict[str, Any]:
    """Seeds that are added as the headline suggests, with random numbers of its own."""
    random = np.random.default_rng(seed + 3)
    cells = [added(kind, rows, seeds, count, random) for kind in SYMMETRIC for rows in (2, 3, 5) for seeds in (3, 5)]
    return {"added": {"tables": count, "cells": cells}, "estimate": estimate(FEWER * count, random)}


def added(kind: str, rows: int, seeds: int, count: int, random: np.random.Generator) -> dict[str, Any]:
    """Wrong words, in any report, of a comparison whose rows do not differ, where seeds are added up to `ROUNDS` times.

    As long as a row is undecided, the smallest estimate is added; a margin of 0.4 leaves many undecided. `plain` is the
    error if later reports were judged with the same error as the first one.
    """
    margin, pairs = 0.4, to_baseline(range(rows), 0)
    values = tables(kind, "equal", rows, MOST, count, random)
    errors = []
    for spend in (0.5, 1.0):
        until, going, ever = np.full(count, seeds), np.ones(count, bool), np.zeros(count, bool)
        for round_ in range(1 + ROUNDS):
            further, level = until.copy(), ERROR * spend**round_
            for n in np.unique(until[going]):
                here = np.flatnonzero(going & (until == n))
                mean, spread, degrees, *_ = estimates(values[here, :, :n], pairs)
                share = float(degrees[0, 0]) / (n - 1)

                def quantile_of(error: float, k: int, share: float = share) -> float:
                    return float(stdtrit(share * (k - 1), 1 - error / (2 * len(pairs))))

                half = quantile_of(level, n) * spread / np.sqrt(n)
                low, high = mean - half, mean + half
                equal = (low > -margin) & (high < margin)
                shown = (low > 0) | (high < 0)
                ever[here] |= (shown & ~equal).any(-1)
                room, more = np.maximum(abs(mean), margin - abs(mean)), np.full(mean.shape, MOST)
                for k in range(MOST, n, -1):
                    enough = (quantile_of(spend * level, k) + USUALLY) * spread / np.sqrt(k) <= room
                    more = np.where(enough, k - n, more)
                least = np.where(shown | equal, MOST, more).min(-1)
                further[here] = np.where(least <= MOST_SUGGESTED, np.minimum(n + least, MOST), n)
            going, until = further > until, further
        errors.append(float(ever.mean()))
    return _cell("added", kind, "equal", rows, seeds, *errors)


def estimate(count: int, random: np.random.Generator) -> dict[str, float]:
    """Of open rows after three seeds: how often the estimated number of seeds did decide (at most 60 more)."""
    names = list(range(5))
    pairs, question = to_baseline(names, 0), Criterion(True, Margin(1.0))
    after = Criterion(True, Margin(1.0), looked=1)
    truth = np.array([0.0, 0.0, 0.5, 1.0, 2.0])
    asked = hit = 0
    for _ in range(max(count // 40, 1)):
        values = random.standard_normal((5, 63)) * 0.7 + truth[:, None]
        rows = {name: dict(enumerate(row.tolist())) for name, row in enumerate(values)}
        first = {name: {seed: row[seed] for seed in range(3)} for name, row in rows.items()}
        for pair, answer in judge(first, pairs, question).items():
            more = answer.verdict.more
            if answer.verdict.word == "undecided" and more is not None and more <= 60:
                later = {name: {seed: row[seed] for seed in range(3 + more)} for name, row in rows.items()}
                asked, hit = asked + 1, hit + (not judge(later, pairs, after)[pair].verdict.open)
    return {"asked": asked, "decided": hit / max(asked, 1)}


def show(found: dict[str, Any]) -> str:
    """The tables of docs/statistics.md."""
    three = [c for c in found["symmetric"] if c["family"] == "baseline" and c["seeds"] == 3]
    lines = [_line(["σ of the rows", *(f"{rows} rows" for rows in ROWS)]), _line([":--", *["--:"] * len(ROWS)])]
    for spread in SPREADS:
        lines.append(
            _line([spread, *(_worst(c for c in three if (c["spreads"], c["rows"]) == (spread, r)) for r in ROWS)])
        )
    families: dict[str, list[dict[str, Any]]] = {}
    for cell in (
        [c for c in found["symmetric"] if c["seeds"] >= FROM]
        + found["counts"]
        + found["looks"]
        + found["futility"]["cells"]
    ):
        families.setdefault(cell["family"], []).append(cell)
    names = {"baseline": "each against a baseline", "looks": "`--seeds auto`, any wrong verdict over all looks"}
    names |= {"futility": "the same, with futility stopping"}
    names |= {"counts": "values in whole examples, σ of a run 0.15 to 0.6 examples"}
    lines += ["", _line(["family, 3 seeds or more", "cells", "largest error"]), _line([":--", "--:", "--:"])]
    lines += [_line([names.get(name, name), str(len(group)), _worst(group)]) for name, group in families.items()]
    lines += ["", _line(["rows", "seeds", "true difference", "power", "without pooling"]), _line(["--:"] * 5)]
    for c in found["power"]:
        size = f"{c['difference']:g} σ"
        lines.append(_line([str(c["rows"]), str(c["seeds"]), size, f"{c['power']:.2f}", f"{c['plain']:.2f}"]))
    lines += [
        "",
        _line(["σ / δ", "runs, of 60", *(f"decided at {t} δ" for t in found["thrift"][0]["decided"])]),
    ]
    lines.append(_line(["--:"] * 6))
    for c in found["thrift"]:
        lines.append(_line([f"{c['spread']:g}", f"{c['runs']:.0f}", *map(_percent, c["decided"].values())]))
    saved = found["futility"]["saved"]
    heads = [
        "σ / δ",
        "runs, of 60",
        "shown better at 1.5 δ",
        *(f"stopped at {t} δ" for t in saved[0]["stopped"]),
    ]
    lines += ["", _line(heads), _line(["--:"] * len(heads))]
    for c in saved:
        runs, better = " → ".join(f"{x:.0f}" for x in c["runs"]), " → ".join(map(_percent, c["better"]))
        lines.append(_line([f"{c['spread']:g}", runs, better, *map(_percent, c["stopped"].values())]))
    of = {(c["noise"], c["rows"], c["seeds"]): c for c in found["added"]["cells"]}
    lines += ["", _line(["rows", "first seeds", "any wrong verdict", "without halving"]), _line(["--:"] * 4)]
    for rows, seeds in dict.fromkeys((c["rows"], c["seeds"]) for c in found["added"]["cells"]):
        worst = [_percent(max(of[kind, rows, seeds][key] for kind in SYMMETRIC)) for key in ("error", "plain")]
        lines.append(_line([str(rows), str(seeds), *worst]))
    lines += ["", _line(["noise", "rows", "seeds", "error", "without pooling"]), _line([":--", *["--:"] * 4])]
    for c in found["others"] + found["without_middle"]:
        lines.append(_line([c["noise"], str(c["rows"]), str(c["seeds"]), _percent(c["error"]), _percent(c["plain"])]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _worst(cells: Any) -> str:
    return _percent(max(cell["error"] for cell in cells))


def write(content: dict[str, Any]) -> None:
    """To the committed file."""
    RESULT.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=TABLES, help="simulated for each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the tables of the committed file")
    parser.add_argument(
        "--more", action="store_true", help="make whole examples and noise without a middle again, alone"
    )
    parser.add_argument("--futility", action="store_true", help="make the cells of stopped rows again, alone")
    parser.add_argument("--added", action="store_true", help="make the cells of added seeds again, alone")
    asked = parser.parse_args()
    if asked.added:
        kept = json.loads(RESULT.read_text(encoding="utf-8"))
        write(kept | measure_added(kept["tables"] // FEWER, kept["seed"]))
    elif asked.futility:
        kept = json.loads(RESULT.read_text(encoding="utf-8"))
        write(kept | measure_futility(kept["tables"] // FEWER, kept["seed"]))
    elif asked.more:  # their random numbers are their own, so the rest of the file stays what it was
        kept = json.loads(RESULT.read_text(encoding="utf-8"))
        write(kept | measure_more(kept["tables"], kept["seed"]))
    elif not asked.show:
        start = time.process_time()
        found = measure(asked.tables, asked.seed) | measure_more(asked.tables, asked.seed)
        found |= measure_futility(asked.tables // FEWER, asked.seed)
        found |= measure_added(asked.tables // FEWER, asked.seed)
        facts = {
            "command": " ".join(["python", "benchmarks/intervals.py", *sys.argv[1:]]),
            "date": datetime.date.today().isoformat(),
            "seed": asked.seed,
            "tables": asked.tables,
            "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
            "cpu_seconds": round(time.process_time() - start),
        }
        write({**facts, **found})
    print(show(json.loads(RESULT.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
