"""Pilot runs by which the rows and the size of `script/demo` were chosen; its verdicts come from other seeds.

    OMP_NUM_THREADS=1 python benchmarks/demo_pilot.py    # writes results/demo_pilot.json; continues where it stopped

Small language models of the Python documentation; each architecture trains for the time of 300 steps of the baseline.
"""

from __future__ import annotations

import datetime
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from short_runs import scores

from odeum.lab.tasks import open_task
from odeum.lab.train.provenance import git_revision, versions
from odeum.storage import write_json

RESULT = Path(__file__).parent / "results" / "demo_pilot.json"
OPTIONS = {"megabytes": 0.1, "tokens": "bpe", "vocabulary": 1000, "length": 64}
MODEL = {"width": 64, "heads": 2, "depth": 4, "hidden": 256}
STEPS = 300
COSTS = {"sequential": 1.0, "parallel": 0.98, "macaron": 1.06, "transevolve": 0.88, "hyper": 2.0, "rk4": 3.4}
"""CPU time of a step over that of the baseline, measured once"""
RATES = (0.016, 0.032, 0.008)
SEEDS = (1000, 1001)


def main() -> None:
    torch.set_num_threads(1)
    losses = json.loads(RESULT.read_text(encoding="utf-8"))["losses"] if RESULT.exists() else {}
    task = open_task("python", kind="language", **OPTIONS)
    for seed, rate, name in itertools.product(SEEDS, RATES, COSTS):
        key = f"{name}|{rate:g}|{seed}"
        if key in losses:
            continue
        model = replace(task.model(), **MODEL)
        recipe = replace(task.training(), batch_size=8, steps=round(STEPS / COSTS[name]), learning_rate=rate)
        losses[key] = scores(name, task, model, recipe, seed, 1000)["loss"]
        print(f"{key} {losses[key]:.4f}", file=sys.stderr, flush=True)
        facts = {"command": "python benchmarks/demo_pilot.py", "date": datetime.date.today().isoformat()}
        facts |= {"git": git_revision(), "versions": versions(), "options": OPTIONS, "model": MODEL, "costs": COSTS}
        write_json(RESULT, facts | {"steps": STEPS, "losses": losses})


if __name__ == "__main__":
    main()
