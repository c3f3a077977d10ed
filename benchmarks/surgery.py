"""Simulate `odeum surgery`: how often is any of its intervals, or any of its verdicts, wrong?

    python benchmarks/surgery.py            # about five minutes on one core; writes benchmarks/results/surgery.json

Losses of single examples are drawn for a model and its candidates; choice, looks, intervals and verdicts are made by
the code of the verb. A surgery counts as wrong if any interval of its looks misses the true mean change (family-wise
error, which should stay below 5 %), or any verdict contradicts it. Changes per example are normal; skewed (a log-normal
minus its mean); or sparse (one example in twenty changes, by much), as where most examples are easy.

In further cells the examples are windows of documents of unequal length, and a part of each change is that of its
document. Intervals count documents, as the verb does; beside them is the error if windows counted as independent.
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
SHARED = 0.2
"""share of the variance of a change that windows of one document have in common"""


def drawn(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Changes of single examples with mean zero and variance about one."""
    if kind == "normal":
        return random.normal(size=shape)
    if kind == "skewed":
        return (random.lognormal(0, 1, shape) - math.exp(0.5)) / 2.16
    return random.normal(0.6, 1, shape) * (random.random(shape) < 0.05) / 0.25 - 0.12


def surgery(
    kind: str, count: int, effect: float, random: np.random.Generator, documents: np.ndarray | None = None
) -> tuple[bool, bool, int, bool]:
    """Whether an interval was wrong, whether a verdict was, how many verdicts were decided, and whether an interval
    over examples is wrong where `documents` are the documents of the examples."""
    candidates = CLASSES * EACH
    true = random.normal(0, effect, candidates) if effect else np.zeros(candidates)
    common = drawn(kind, (2, count, 1), random)  # examples that every edit finds hard
    noise = 0.7 * common + 0.7 * drawn(kind, (2, count, candidates), random)
    groups = None
    if documents is not None:
        number = documents.max() + 1
        shared = 0.7 * drawn(kind, (2, number, 1), random) + 0.7 * drawn(kind, (2, number, candidates), random)
        noise = math.sqrt(1 - SHARED) * noise + math.sqrt(SHARED) * shared[:, documents]
        groups = torch.from_numpy(documents)
    changes = true + 0.1 * noise
    base = Cost(100, 100, 100)
    listed = []
    for number in range(candidates):
        edit = Edit("skip", "stack", number, number, (Place(number),), str(number))
        cost = Cost(90 - number // EACH, 100, 100)
        listed.append(Screened(edit, cost, 0.0, LOSS + float(changes[0, :, number].mean())))
    wrong = contradicted = naive = False
    decided = 0
    spent: list[list[str]] = []
    for look in range(LOOKS):  # a user who asks for more kinds after each answer
        offered = [each for each in listed if (each.edit.first // EACH) % LOOKS <= look]
        chosen = best_of_each_class(offered, base, LOSS)
        known = by_look(enumerate(spent, 1))
        if new := [each.edit.key for each in chosen if each.edit.key not in known]:
            spent.append(new)
        known = by_look(enumerate(spent, 1))
        for each in chosen:
            number = each.edit.first
            losses = torch.from_numpy(changes[1, :, number] + LOSS)
            unchanged, error = torch.full_like(losses, LOSS), known[each.edit.key][1]
            change = paired(losses, unchanged, error, groups)
            assert change.low is not None and change.high is not None
            wrong |= not change.low <= true[number] <= change.high
            if groups is not None:
                single = paired(losses, unchanged, error)
                assert single.low is not None and single.high is not None
                naive |= not single.low <= true[number] <= single.high
            word = _word(-change.high, -change.low, MARGIN)  # as `verdict_of`, without its estimate of what decides
            decided += word is not None
            contradicted |= (word in BETTER and true[number] >= 0) or (word in WORSE and true[number] <= 0)
            contradicted |= word == "practically equal" and abs(true[number]) > MARGIN
    return wrong, contradicted, decided, naive


def lengths(documents: int, random: np.random.Generator) -> np.ndarray:
    """The document of each window: articles of unequal length, 1 to about 100 windows."""
    sizes = np.maximum(1, random.lognormal(2.5, 0.8, documents).astype(int))
    return np.repeat(np.arange(documents), sizes)


def measured(numbers: list[int], kind: str, count: int, effect: float, documents: int | None) -> dict[str, object]:
    random = np.random.default_rng([SEED, *numbers])
    results = []
    for _ in range(RUNS):
        places = None if documents is None else lengths(documents, random)
        results.append(surgery(kind, count if places is None else len(places), effect, random, places))
    wrong, contradicted, decided, naive = np.array(results, float).mean(0)
    about = {"examples": count} if documents is None else {"documents": documents}
    cell = {
        "changes": kind,
        **about,
        "effect": effect,
        "any_interval_wrong": round(float(wrong), 4),
        "any_verdict_wrong": round(float(contradicted), 4),
        "decided_per_surgery": round(float(decided), 2),
    }
    return cell if documents is None else cell | {"any_interval_wrong_by_window": round(float(naive), 4)}


def main() -> None:
    cells: list[dict[str, object]] = []
    for kind in ("normal", "skewed", "sparse"):
        for count in (50, 200, 500):
            for effect in (0.0, 0.01):
                cells.append(measured([len(cells)], kind, count, effect, None))
                print(cells[-1], flush=True)
    of_documents: list[dict[str, object]] = []
    for kind in ("normal", "skewed", "sparse"):
        for documents in (16, 32, 64):
            of_documents.append(measured([1000, len(of_documents)], kind, 0, 0.0, documents))
            print(of_documents[-1], flush=True)
    about = {
        "command": "python benchmarks/surgery.py",
        "surgeries_per_cell": RUNS,
        "seed": SEED,
        "error": ERROR,
        "error_of_looks": [look_error(1), look_error(2)],
        "versions": versions(),
        "git": git_revision(),
    }
    OUT.write_text(json.dumps({**about, "cells": cells, "windows_of_documents": of_documents}, indent=1) + "\n")


if __name__ == "__main__":
    main()
