"""The recipe for digits, chosen on the validation part alone and for all five architectures of the demo.

    python benchmarks/digits_recipe.py            # writes benchmarks/results/digits_recipe.json; continues if stopped
    python benchmarks/digits_recipe.py --write docs/results.md    # the section on digits, from it and results/digits

`script/digits` does this and the comparison between.

Every learning rate, the setting that architectures differ in most, is tried for every architecture with seeds that no
comparison here uses. The best one has the highest mean of the architectures' validation accuracies, so that none is
fitted more than another; what else the recipe says, it says for all.
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

from odeum.lab.launch.launcher import launcher
from odeum.lab.launch.worker import Event
from odeum.lab.study.findings import judged
from odeum.lab.study.runs import read
from odeum.lab.study.sentences import headline
from odeum.lab.study.tables import table
from odeum.lab.tasks import open_task
from odeum.lab.tasks.images.task import RECIPES
from odeum.lab.train.job import Job
from odeum.lab.train.provenance import versions
from odeum.lab.train.run import with_changes
from odeum.registry.spelling import parse
from odeum.storage import write_json

RESULT = Path(__file__).parent / "results" / "digits_recipe.json"
ARCHITECTURES = ("sequential", "parallel", "rk4", "macaron", "transevolve")
LEARNING_RATES = (1e-3, 2e-3, 4e-3, 8e-3)
BATCH_SIZE = 32
FIRST_SEED, SEEDS = 100, 2
BEGIN, END = "<!-- digits: written by script/digits -->", "<!-- end of digits -->"


def jobs(folder: Path, seeds: int, steps: int | None) -> list[Job]:
    """Seed by seed, so that a sweep that is stopped has whole seeds."""
    task = open_task("digits")
    made = []
    grid = itertools.product(range(FIRST_SEED, FIRST_SEED + seeds), LEARNING_RATES, ARCHITECTURES)
    for seed, rate, name in grid:
        changes: dict[str, Any] = {"learning_rate": rate, "batch_size": BATCH_SIZE} | (
            {"steps": steps} if steps else {}
        )
        place = folder / f"rate-{rate:g}-batch-{BATCH_SIZE}" / name / f"seed-{seed}"
        training = with_changes(task.training(), changes)
        made.append(Job.on(task, task.model(), parse(name), training, seed, place, threads=1))
    return made


def summary(runs: list[Job], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds by recipe and architecture, and the recipe whose mean over the architectures is best."""
    found: dict[float, dict[str, list[float]]] = {}
    for run, result in zip(runs, results, strict=True):
        own = found.setdefault(run.training.learning_rate, {})
        own.setdefault(run.directory.parent.name, []).append(result["valid"]["accuracy"])
    rows = []
    for rate, values in found.items():
        means = {name: statistics.fmean(accuracies) for name, accuracies in values.items()}
        rows.append({"learning_rate": rate, "valid_accuracy": means, "mean": statistics.fmean(means.values())})
    best = max(rows, key=lambda row: row["mean"])
    return {"rows": rows, "chosen": {"learning_rate": best["learning_rate"]}}


def show(found: dict[str, Any]) -> str:
    """The table of the docs."""
    names = list(found["rows"][0]["valid_accuracy"])
    lines = [f"| learning rate | {' | '.join(names)} | mean |", f"| --: |{' --: |' * (len(names) + 1)}"]
    for row in found["rows"]:
        mark = "**" if row["learning_rate"] == found["chosen"]["learning_rate"] else ""
        values = [f"{100 * row['valid_accuracy'][name]:.1f}" for name in names]
        cells = [f"{row['learning_rate']:g}", *values, f"{mark}{100 * row['mean']:.2f}{mark}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def section(found: dict[str, Any], compared: Path) -> str:
    """What docs/results.md says of digits."""
    findings = judged(read(compared))
    seeds = " and ".join(map(str, found["seeds"]))
    return (
        "`odeum compare digits --seeds 6 --match steps`, files in `results/digits`, table by\n"
        f"`odeum report results/digits`:\n\n{table(findings.rows, 'md')}\n"
        f"{headline(findings.rows, findings.study.data)}\n\n"
        "The learning rate was chosen on the validation part alone, by the mean over all five architectures, with "
        f"seeds ({seeds}) that the\ncomparison does not use (`benchmarks/digits_recipe.py`, "
        f"`benchmarks/results/digits_recipe.json`; validation accuracy, %):\n\n{show(found)}\n"
        "The other settings of the recipe were chosen earlier, when the test accuracy of `sequential` and `parallel` "
        "was known.\n"
    )


def write_section(page: Path, text: str) -> None:
    """Put the section between its marks."""
    head, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{page} has no section between {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{tail}", encoding="utf-8")


def check_recipe(found: dict[str, Any]) -> None:
    """The recipe in the library is the one that was chosen."""
    chosen, there = found["chosen"]["learning_rate"], RECIPES["digits"].learning_rate
    if chosen != there:
        sys.exit(f"the learning rate {chosen:g} was chosen, and odeum/lab/tasks/images.py says {there:g}; change it")


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
    parser.add_argument("--write", type=Path, help="a page with a section on digits: write it anew from what is kept")
    asked = parser.parse_args()
    if asked.write is None:
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
    found = json.loads(asked.result.read_text(encoding="utf-8"))
    if asked.write is not None:
        write_section(asked.write, section(found, Path("results/digits")))
    print(show(found), end="")
    check_recipe(found)


if __name__ == "__main__":
    main()
