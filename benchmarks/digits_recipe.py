"""The recipe for digits, chosen on the validation part alone and for all five architectures of the demo.

    python benchmarks/digits_recipe.py            # writes benchmarks/results/digits_recipe.json; continues if stopped
    python benchmarks/digits_recipe.py --show     # prints the table of docs/results.md from that file

Every recipe of a small grid is trained for every architecture with seeds that no comparison here uses. The best one has
the highest mean of the architectures' validation accuracies, so that no architecture is fitted more than another.
Results on the test part are not read.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from odeum.launch.launcher import launcher
from odeum.launch.worker import Event
from odeum.settings.spelling import parse
from odeum.storage import write_json
from odeum.tasks import open_task
from odeum.train import Job, with_changes
from odeum.train.provenance import versions

RESULT = Path(__file__).parent / "results" / "digits_recipe.json"
ARCHITECTURES = ("sequential", "parallel", "rk4", "macaron", "transevolve")
LEARNING_RATES = (1e-3, 2e-3, 4e-3)
BATCH_SIZES = (32, 64)
FIRST_SEED, SEEDS = 100, 2


def jobs(folder: Path, seeds: int, steps: int | None) -> list[Job]:
    """Seed by seed, so that a sweep that is stopped has whole seeds."""
    task = open_task("digits")
    made = []
    grid = itertools.product(range(FIRST_SEED, FIRST_SEED + seeds), LEARNING_RATES, BATCH_SIZES, ARCHITECTURES)
    for seed, rate, batch, name in grid:
        changes: dict[str, Any] = {"learning_rate": rate, "batch_size": batch} | ({"steps": steps} if steps else {})
        place = folder / f"rate-{rate:g}-batch-{batch}" / name / f"seed-{seed}"
        training = with_changes(task.training(), changes)
        made.append(Job(task, task.model(), parse(name), training, seed, place, threads=1))
    return made


def summary(runs: list[Job], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds by recipe and architecture, and the recipe whose mean over the architectures is best."""
    found: dict[tuple[float, int], dict[str, list[float]]] = {}
    for run, result in zip(runs, results, strict=True):
        key = run.training.learning_rate, run.training.batch_size
        name = run.directory.parent.name
        found.setdefault(key, {}).setdefault(name, []).append(result["valid"]["accuracy"])
    rows = []
    for (rate, batch), values in found.items():
        means = {name: statistics.fmean(accuracies) for name, accuracies in values.items()}
        rows.append({"learning_rate": rate, "batch_size": batch, "valid_accuracy": means,
                     "mean": statistics.fmean(means.values())})  # fmt: skip
    best = max(rows, key=lambda row: row["mean"])
    return {"rows": rows, "chosen": {key: best[key] for key in ("learning_rate", "batch_size")}}


def show(found: dict[str, Any]) -> str:
    """The table of the docs."""
    names = list(found["rows"][0]["valid_accuracy"])
    lines = [f"| learning rate | batch | {' | '.join(names)} | mean |", f"| --: | --: |{' --: |' * (len(names) + 1)}"]
    for row in found["rows"]:
        mark = "**" if {key: row[key] for key in found["chosen"]} == found["chosen"] else ""
        values = [f"{100 * row['valid_accuracy'][name]:.1f}" for name in names]
        cells = [f"{row['learning_rate']:g}", str(row["batch_size"]), *values, f"{mark}{100 * row['mean']:.2f}{mark}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _tell(run: Job, event: Event) -> None:
    if event.ends:
        print(run.directory, event.kind, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=None, help="to try the script out")
    parser.add_argument("--jobs", default="auto", help="runs at once")
    parser.add_argument("--runs", type=Path, default=Path("runs/digits-recipe"), help="where the runs lie")
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--show", action="store_true", help="print the table of the committed file")
    asked = parser.parse_args()
    if not asked.show:
        runs = jobs(asked.runs, asked.seeds, asked.steps)
        with launcher(None, asked.jobs, 1, asked.runs) as launch:
            ended = launch.run(runs, lambda number, event: _tell(runs[number], event))
        if lost := [event for event in ended if event.kind != "done"]:
            sys.exit(f"{len(lost)} runs did not end; the same command continues")
        facts = {
            "command": "python benchmarks/digits_recipe.py"
            + (f" --seeds {asked.seeds}" if asked.seeds != SEEDS else ""),
            "date": datetime.date.today().isoformat(),
            "seeds": list(range(FIRST_SEED, FIRST_SEED + asked.seeds)),
            "versions": versions(),
        }
        write_json(asked.result, facts | summary(runs, [event.content for event in ended]))
    print(show(json.loads(asked.result.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
