"""Coverage of gains, error and power of trend words at several sizes, by simulation.

    python benchmarks/ladder.py            # a few minutes on one core; writes benchmarks/results/ladder.json
    python benchmarks/ladder.py --show     # prints the tables of docs/statistics.md from that file

The baseline's loss is E + A C^−α at each size, an architecture's is the baseline's at exp(ρ) times the cost, plus
noise per run: a part that both share (the seed) and a part of its own. A gain is missed if its interval leaves out the
true ρ; a trend word is wrong if the true change of ρ over the ladder contradicts it. Both are counted once per ladder.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from odeum.lab.study.ladder import TREND_MARGIN, Rung, gains, trends

RESULT = Path(__file__).parent / "results" / "ladder.json"
LADDERS = 1_000
NOISES = ("normal", "t3")
CURVES = {"slow": (1.6, 2.0, 0.1), "fast": (2.0, 3.0, 0.35)}
"""E, A, α of the baseline: as of large language models, and as of small models on small data"""
TRUTHS: dict[str, tuple[float, float]] = {
    "no gain": (0.0, 0.0),
    "holds at 1.2": (math.log(1.2), math.log(1.2)),
    "grows 1.05 to 1.4": (math.log(1.05), math.log(1.4)),
    "shrinks 1.4 to 1.05": (math.log(1.4), math.log(1.05)),
    "changes by the margin": (0.0, TREND_MARGIN),
}
"""log gain at the smallest and at the largest size"""


def noise(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Any:
    """Draws with standard deviation one."""
    if kind == "t3":
        return random.standard_t(3, shape) / math.sqrt(3)
    return random.standard_normal(shape)


def ladder(
    curve: str, truth: str, sizes: int, seeds: int, rows: int, spread: float, kind: str, random: np.random.Generator
) -> tuple[list[Rung], list[float]]:
    """Simulated rungs over 16 times the cost, and the true log gain at each size."""
    limit, scale, power = CURVES[curve]
    costs = np.geomspace(1.0, 16.0, sizes)
    ends = TRUTHS[truth]
    logs = np.interp(np.log(costs), [0.0, math.log(16.0)], ends)
    rungs = []
    for place, cost in enumerate(costs):
        level = limit + scale * cost**-power
        shared = noise(kind, (seeds,), random)
        scores = {}
        for row in range(rows + 1):
            mean = level if row == 0 else limit + scale * (cost * math.exp(logs[place])) ** -power
            own = noise(kind, (seeds,), random)
            values = mean + spread * (math.sqrt(0.4) * shared + math.sqrt(0.6) * own)
            scores["baseline" if row == 0 else f"row {row}"] = dict(enumerate(values.tolist()))
        rungs.append(Rung(f"size {place}", float(cost), scores))
    return rungs, logs.tolist()


def wrong_word(word: str, change: float) -> bool:
    """Whether the true change contradicts the word."""
    return {
        "grows": change <= 0,
        "shrinks": change >= 0,
        "holds": abs(change) >= TREND_MARGIN,
        "undecided": False,
    }[word]


def cell(
    curve: str,
    truth: str,
    sizes: int,
    seeds: int,
    rows: int,
    spread: float,
    kind: str,
    count: int,
    random: np.random.Generator,
) -> dict[str, Any]:
    """One line of the result: shares over simulated ladders."""
    missed = wrong = decided = undecided_gains = 0
    words: dict[str, int] = {}
    for _ in range(count):
        rungs, logs = ladder(curve, truth, sizes, seeds, rows, spread, kind, random)
        known = gains(rungs, "baseline")
        # the intervals of one size hold together: any miss at the largest size counts
        last = [known[f"row {row}", sizes - 1] for row in range(1, rows + 1)]
        missed += any(g.decided and not g.low <= logs[-1] <= g.high for g in last)
        undecided_gains += sum(not g.decided for g in last)
        found = trends(rungs, "baseline")
        change = logs[-1] - logs[0]
        wrong += any(wrong_word(trend.word, change) for trend in found.values())
        for trend in found.values():
            words[trend.word] = words.get(trend.word, 0) + 1
            decided += trend.word != "undecided"
    total = count * rows
    return {
        "curve": curve,
        "truth": truth,
        "sizes": sizes,
        "seeds": seeds,
        "rows": rows,
        "spread": spread,
        "noise": kind,
        "missed": missed / count,
        "gain_undecided": undecided_gains / total,
        "wrong_word": wrong / count,
        "decided": decided / total,
        "words": {word: n / total for word, n in sorted(words.items())},
    }


def measure(count: int, seed: int) -> list[dict[str, Any]]:
    """Every figure, from one seed."""
    random = np.random.default_rng(seed)
    cells = []
    for curve in CURVES:
        for truth in TRUTHS:
            for kind in NOISES:
                for sizes, seeds, rows, spread in (
                    (3, 3, 1, 0.003),
                    (3, 3, 3, 0.003),
                    (3, 6, 3, 0.003),
                    (3, 3, 3, 0.01),
                    (3, 6, 3, 0.01),
                    (3, 3, 3, 0.03),
                    (5, 3, 3, 0.01),
                ):
                    cells.append(cell(curve, truth, sizes, seeds, rows, spread, kind, count, random))
    return cells


def show(cells: list[dict[str, Any]]) -> str:
    """The tables of docs/statistics.md."""
    lines = [
        "| curve | cells | largest share of missed gains | largest share of wrong trend verdicts |",
        "|:--|--:|--:|--:|",
    ]
    for curve in CURVES:
        own = [c for c in cells if c["curve"] == curve]
        worst = [max(c[key] for c in own) for key in ("missed", "wrong_word")]
        lines.append(f"| {curve} | {len(own)} | {100 * worst[0]:.1f} % | {100 * worst[1]:.1f} % |")
    lines += ["", "| truth | curve | seeds | grows | holds | shrinks | undecided |"]
    lines += ["|:--|:--|--:|--:|--:|--:|--:|"]
    for c in cells:
        if c["noise"] == "normal" and c["sizes"] == 3 and c["rows"] == 3 and c["spread"] == 0.01:
            shares = [f"{100 * c['words'].get(word, 0.0):.0f} %" for word in ("grows", "holds", "shrinks", "undecided")]
            lines.append(f"| {c['truth']} | {c['curve']} | {c['seeds']} | {' | '.join(shares)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the tables of the committed result")
    parser.add_argument("--ladders", type=int, default=LADDERS, help="simulated ladders per cell (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation (default: 0)")
    given = parser.parse_args()
    if given.show:
        print(show(json.loads(RESULT.read_text())["cells"]), end="")
        return
    cells = measure(given.ladders, given.seed)
    content = {
        "command": f"python {Path(sys.argv[0]).name} --ladders {given.ladders} --seed {given.seed}",
        "date": datetime.date.today().isoformat(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "cells": cells,
    }
    RESULT.write_text(json.dumps(content, indent=1) + "\n")
    print(show(cells), end="")


if __name__ == "__main__":
    main()
