"""Sinusoidal against rotary positions of small language models, in pairs of runs with the same seed.

    ODEUM_DATA=… OMP_NUM_THREADS=1 python benchmarks/positions.py    # continues where it stopped
    python benchmarks/positions.py --show                            # the table of docs/rates.md

The difference of a pair is the test loss with rotary minus that with sinusoidal positions (nat per token); its
interval is Student's, of 95 %, over the seeds.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t as student
from short_runs import scores

from odeum.lab.tasks import open_task
from odeum.lab.train.provenance import git_revision, versions
from odeum.storage import write_json

RESULT = Path(__file__).parent / "results" / "positions.json"
DATA: dict[str, dict[str, Any]] = {
    "python": {"tokens": "bpe", "vocabulary": 2000, "length": 128},
    "wikitext2": {"tokens": "bpe", "vocabulary": 2000, "length": 128},
}
ARCHITECTURES = ("sequential", "parallel")
POSITIONS = ("sinusoidal", "rotary")
MODEL = {"width": 64, "depth": 4, "heads": 2, "hidden": 256}
RECIPE = {"batch_size": 8, "steps": 200, "learning_rate": 0.016}
SEEDS = range(1000, 1003)
HELD_OUT = 160
"""test windows"""


def table(losses: dict[str, float]) -> str:
    """A row per data set and architecture: mean losses, mean difference with its interval."""
    lines = ["| data | architecture | sinusoidal | rotary | rotary − sinusoidal |", "| --- | --- | --: | --: | --: |"]
    for data, name in itertools.product(DATA, ARCHITECTURES):
        pairs = [tuple(losses.get(f"{data}|{name}|{kind}|{seed}", math.nan) for kind in POSITIONS) for seed in SEEDS]
        pairs = [pair for pair in pairs if not any(map(math.isnan, pair))]
        if len(pairs) < 2:
            continue
        differences = [rotary - sinusoidal for sinusoidal, rotary in pairs]
        means = [statistics.mean(values) for values in zip(*pairs, strict=True)]
        spread = statistics.stdev(differences) / math.sqrt(len(pairs)) * student.ppf(0.975, len(pairs) - 1)
        change = f"{statistics.mean(differences):+.3f} ± {spread:.3f}".replace("-", "−")
        lines.append(f"| {data} | {name} | {means[0]:.3f} | {means[1]:.3f} | {change} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the table of the results so far")
    asked = parser.parse_args()
    content = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"losses": {}, "seconds": {}}
    if asked.show:
        print(table(content["losses"]), end="")
        return
    torch.set_num_threads(1)
    tasks = {data: open_task(data, kind="language", **options) for data, options in DATA.items()}
    for seed, data, name, kind in itertools.product(SEEDS, DATA, ARCHITECTURES, POSITIONS):
        key = f"{data}|{name}|{kind}|{seed}"
        if key in content["losses"]:
            continue
        task = tasks[data]
        model = replace(task.model(), positions=kind, **MODEL)
        begin = time.process_time()
        content["losses"][key] = scores(name, task, model, replace(task.training(), **RECIPE), seed, HELD_OUT)["loss"]
        content["seconds"][key] = round(time.process_time() - begin, 2)
        print(f"{key} {content['losses'][key]:.4f}", file=sys.stderr, flush=True)
        facts = {"command": "python benchmarks/positions.py", "date": datetime.date.today().isoformat()}
        facts |= {"git": git_revision(), "versions": versions(), "data": DATA, "model": MODEL, "recipe": RECIPE}
        write_json(RESULT, facts | {"held_out": HELD_OUT, **content})
    print(table(content["losses"]), end="")


if __name__ == "__main__":
    main()
