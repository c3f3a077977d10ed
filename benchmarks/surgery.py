"""Simulate `odeum surgery`: how often is any of its intervals, or any of its verdicts, wrong?

    python benchmarks/surgery.py            # about two minutes on one core; writes benchmarks/results/surgery.json

Losses of single examples are drawn for a model and its candidates; choice, looks, intervals and verdicts are made by
the code of the verb. A surgery counts as wrong if any interval of its looks misses the true mean change (family-wise
error, which should stay below 5 %), or any verdict contradicts it. Changes per example are normal; skewed (a log-normal
minus its mean); or sparse (one example in twenty changes, by much), as where most examples are easy.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import torch

from odeum.lab.study.judge import BETTER, WORSE, _word
from odeum.lab.study.operating import Screened, best_of_each_class, by_look, look_error, paired
from odeum.lab.study.statistics import ERROR
from odeum.lab.train.provenance import git_revision, versions
from odeum.surgery import Cost, Edit, Place

OUT = Path(__file__).parent / "results" / "surgery.json"
RUNS, SEED = 1000, 0
LOSS, MARGIN = 1.0, 0.01
CLASSES, EACH, LOOKS = 8, 6, 2
"""cost classes, candidates in each, and looks: the second adds the other half of the classes"""


def drawn(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Changes of single examples with mean zero and variance about one."""
    if kind == "normal":
        return random.normal(size=shape)
    if kind == "skewed":
        return (random.lognormal(0, 1, shape) - math.exp(0.5)) / 2.16
    return random.normal(0.6, 1, shape) * (random.random(shape) < 0.05) / 0.25 - 0.12


def surgery(kind: str, count: int, effect: float, random: np.random.Generator) -> tuple[bool, bool, int]:
    """Whether an interval was wrong, whether a verdict was, and how many verdicts were decided."""
    candidates = CLASSES * EACH
    true = random.normal(0, effect, candidates) if effect else np.zeros(candidates)
    common = drawn(kind, (2, count, 1), random)  # examples that every edit finds hard
    changes = true + 0.1 * (0.7 * common + 0.7 * drawn(kind, (2, count, candidates), random))
    base = Cost(100, 100, 100)
    listed = []
    for number in range(candidates):
        edit = Edit("skip", "stack", number, number, (Place(number),), str(number))
        cost = Cost(90 - number // EACH, 100, 100)
        listed.append(Screened(edit, cost, 0.0, LOSS + float(changes[0, :, number].mean())))
    wrong = contradicted = False
    decided = 0
    spent: list[list[str]] = []
    for look in range(LOOKS):  # a user who asks for more kinds after each answer
        offered = [each for each in listed if (each.edit.first // EACH) % LOOKS <= look]
        chosen = best_of_each_class(offered, base, LOSS)
        known = by_look(spent)
        if new := [each.edit.key for each in chosen if each.edit.key not in known]:
            spent.append(new)
        known = by_look(spent)
        for each in chosen:
            number = each.edit.first
            losses = torch.from_numpy(changes[1, :, number] + LOSS)
            change = paired(losses, torch.full_like(losses, LOSS), known[each.edit.key][1])
            assert change.low is not None and change.high is not None
            wrong |= not change.low <= true[number] <= change.high
            word = _word(-change.high, -change.low, MARGIN)  # as `verdict_of`, without its estimate of what decides
            decided += word is not None
            contradicted |= (word in BETTER and true[number] >= 0) or (word in WORSE and true[number] <= 0)
            contradicted |= word == "practically equal" and abs(true[number]) > MARGIN
    return wrong, contradicted, decided


def main() -> None:
    cells = []
    for kind in ("normal", "skewed", "sparse"):
        for count in (50, 200, 500):
            for effect in (0.0, 0.01):
                random = np.random.default_rng([SEED, len(cells)])
                results = np.array([surgery(kind, count, effect, random) for _ in range(RUNS)], float)
                wrong, contradicted, decided = results.mean(0)
                cells.append(
                    {
                        "changes": kind,
                        "examples": count,
                        "effect": effect,
                        "any_interval_wrong": round(float(wrong), 4),
                        "any_verdict_wrong": round(float(contradicted), 4),
                        "decided_per_surgery": round(float(decided), 2),
                    }
                )
                print(cells[-1], flush=True)
    about = {
        "command": "python benchmarks/surgery.py",
        "surgeries_per_cell": RUNS,
        "seed": SEED,
        "error": ERROR,
        "error_of_looks": [look_error(1), look_error(2)],
        "versions": versions(),
        "git": git_revision(),
    }
    OUT.write_text(json.dumps({**about, "cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    main()
