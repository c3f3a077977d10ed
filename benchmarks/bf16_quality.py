"""Does a CPU train as well in bfloat16 as in float32? What decides whether `--train.precision auto` may choose it.

    ODEUM_DATA=… OMP_NUM_THREADS=1 python benchmarks/bf16_quality.py    # hours; continues where it stopped
    python benchmarks/bf16_quality.py --table                           # what is known so far

Both precisions train from the same seeds on four data sets. They are compared by the test loss, evaluated in float32,
and must be practically equal on all four within half of the usual margin of a loss. Looks at 3, 6 and 12 seeds; a data
set that is decided gets no more. Each line of benchmarks/results/bf16_quality.jsonl is one run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from rates import IMAGES, PAIRS, TEXTS, WINDOWS, Case, opened
from short_runs import scores
from turns import processor

from odeum.kernels.matmul import processor_has_bfloat16
from odeum.lab.study.judge import Criterion, Decision, Seeds, judge
from odeum.lab.study.metric import METRICS, Margin
from odeum.lab.tasks import Task
from odeum.lab.train.provenance import git_revision, versions

RESULT = Path(__file__).parent / "results" / "bf16_quality.jsonl"
SEEDS = Seeds.parse("auto:12")
MARGIN = Margin(METRICS["loss"].margin.value / 2)
PRECISIONS = "fp32", "bf16"
CASES = {
    "wikitext2": Case("language", "wikitext2", 128, 16, 2400, *WINDOWS),
    "multi30k": Case("translation", "multi30k-en-de", 128, 512, 1600, *PAIRS),
    "imdb": Case("classification", "imdb", 128, 16, 1200, {"vocabulary": 8000, "length": 96}, TEXTS[1]),
    "cifar100": Case("images", "cifar100", 128, 32, 4800, {"size": 16}, IMAGES[1]),
}
Row = tuple[str, str]
"""data set and precision"""


def stored() -> dict[Row, dict[int, float]]:
    """The losses by row and seed."""
    found: dict[Row, dict[int, float]] = {(name, precision): {} for name in CASES for precision in PRECISIONS}
    for line in map(json.loads, RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else ()):
        loss = math.inf if line["loss"] is None else line["loss"]
        found[line["data"], line["precision"]][line["seed"]] = loss
    return found


def judged(losses: dict[Row, dict[int, float]]) -> dict[str, Decision]:
    """The decision on each data set that has a seed in both precisions; the four are one family."""
    pairs = [((name, "bf16"), (name, "fp32")) for name in CASES]
    decisions = judge(losses, pairs, Criterion(False, MARGIN, SEEDS, pair_by_pair=True))
    return {name: decision for ((name, _), _), decision in decisions.items()}


def table(losses: dict[Row, dict[int, float]]) -> str:
    """A row per data set."""
    lines = ["| data set | seeds | loss in fp32 | bf16 − fp32 | interval | |", "|---|--:|--:|--:|---|---|"]
    for name, (difference, verdict, _) in judged(losses).items():
        base = [loss for seed, loss in losses[name, "fp32"].items() if seed in losses[name, "bf16"]]
        around = "" if difference.low is None else f"{difference.low:+.4f} to {difference.high:+.4f}"
        mean = f"{sum(base) / len(base):.4f} | {difference.mean:+.4f}"
        lines.append(f"| {name} | {difference.n} | {mean} | {around} | {verdict.word} |")
    return "\n".join(lines) + "\n"


def train(name: str, task: Task, precision: str, seed: int) -> None:
    """Train once and add a line to the results."""
    case = CASES[name]
    model = replace(task.model(), width=case.width, **case.model)
    recipe = replace(task.training(), batch_size=case.batch, steps=case.steps, precision=precision)
    loss = scores("sequential", task, model, recipe, seed, 10**9, "valid" if name == "multi30k" else "test")["loss"]
    about = {
        **{"data": name, "precision": precision, "seed": seed, "loss": loss if math.isfinite(loss) else None},
        **{"case": case.name, "rate": recipe.learning_rate, "options": dict(case.options), "model": dict(case.model)},
        **{"processor": processor(), "date": datetime.date.today().isoformat(), "git": git_revision()},
        "versions": versions(),
    }
    with RESULT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(about) + "\n")
    print(name, precision, seed, loss, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the results so far")
    parser.add_argument("--only", choices=CASES, help="one data set")
    given = parser.parse_args()
    if given.table:
        print(table(stored()), end="")
        return
    if not processor_has_bfloat16():
        raise SystemExit("this processor has no bfloat16 instructions: bf16 is refused there")
    torch.set_num_threads(1)
    tasks: dict[str, Task] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(SEEDS.limit):
            for name in (given.only,) if given.only else CASES:
                decision = judged(stored()).get(name)
                if decision is not None and decision.verdict.look is not None:
                    continue
                for precision in PRECISIONS:
                    if seed not in stored()[name, precision]:
                        tasks[name] = tasks.get(name) or opened(CASES[name], Path(folder))
                        train(name, tasks[name], precision, seed)
    print(table(stored()), end="")


if __name__ == "__main__":
    main()
