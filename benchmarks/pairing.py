"""How well one seed pairs unlike architectures: weights drawn in construction order against weights keyed by role.

    ODEUM_DATA=… OMP_NUM_THREADS=1 python benchmarks/pairing.py    # writes results/pairing.json; continues if stopped
    python benchmarks/pairing.py --show                            # the table of docs/statistics.md

Each architecture is trained for a few hundred steps with each seed under both schemes, with the batches, dropout masks
and recipe of the lab. For each pair of architectures the quotient var(a − b) / (var a + var b) over the seeds is
computed for the validation loss: 1 means that pairing by seed gains nothing, 0 that the seeds' noise cancels.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import statistics
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from odeum import draws
from odeum.lab.papers.base import Setting
from odeum.lab.papers.zhong2022_scales import IMAGE_SCALES, PAIR_SCALES, TEXT_SCALES
from odeum.lab.study.statistics import pairing
from odeum.lab.tasks import Task, open_task
from odeum.lab.train.batches import step_seed
from odeum.lab.train.optimization import learning_rate, make_optimizer
from odeum.lab.train.provenance import git_revision, versions
from odeum.models import build
from odeum.storage import write_json

RESULT = Path(__file__).parent / "results" / "pairing.json"
ARCHITECTURES = ("sequential", "parallel", "macaron", "parallel:independent=3", "parallel:independent=1")
SCHEMES = ("construction order", "keyed by role")
STEPS = 120
HELD_OUT = {"images": 1000, "language": 100, "translation": 100}
"""validation examples"""


def smaller(setting: Setting, batch_size: int, hidden: int, **options: Any) -> Setting:
    """The laptop's recipe of the papers' tables at about a second per run."""
    model = replace(setting.model, width=32, heads=2, depth=6, hidden=hidden)
    training = replace(setting.training, steps=STEPS, batch_size=batch_size)
    return replace(setting, model=model, training=training, options={**setting.options, **options})


SETTINGS: dict[str, Setting] = {
    "images": smaller(IMAGE_SCALES["laptop"]["images"], 16, 128),
    "language": smaller(TEXT_SCALES["laptop"]["text"], 8, 128, vocabulary=1000, length=32, context=8),
    "translation": smaller(PAIR_SCALES["laptop"]["pairs"], 256, 128, vocabulary=1000, length=32),
}


@contextlib.contextmanager
def drawn_by(scheme: str) -> Generator[None]:
    """Context in which weights are drawn from torch's generator in construction order, as before keys, if so asked."""
    if scheme == SCHEMES[1]:
        yield
        return
    before = draws._inside, draws.take_key

    @contextlib.contextmanager
    def inside(scope: Any) -> Generator[None]:
        token = draws._scopes.set(scope)
        try:
            yield
        finally:
            draws._scopes.reset(token)

    draws._inside, draws.take_key = inside, lambda: 0
    try:
        yield
    finally:
        draws._inside, draws.take_key = before


def trained(task: Task, setting: Setting, name: str, scheme: str, seed: int, steps: int, held_out: int) -> float:
    """The validation loss after a training by the recipe."""
    recipe = setting.training
    torch.manual_seed(seed)
    with drawn_by(scheme):
        model: Any = build(name, task.fit(setting.model))
    model.label_smoothing = recipe.label_smoothing
    optimizer = make_optimizer(model, recipe)
    batches = itertools.chain.from_iterable(task.batches(epoch, recipe.batch_size, seed) for epoch in itertools.count())
    for step, batch in enumerate(itertools.islice(batches, steps)):
        torch.manual_seed(step_seed(seed, step, 0))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step, step / steps)
        model(**batch, **model.in_training).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad()
    return task.evaluate(model, "valid", limit=held_out)["loss"]


def table(runs: dict[str, float], kinds: list[str]) -> dict[str, Any]:
    """The quotients of each pair, with the seeds that both architectures have under both schemes."""
    out: dict[str, Any] = {}
    for kind in kinds:
        losses: dict[tuple[str, str], dict[int, float]] = {}
        for key, loss in runs.items():
            own, scheme, name, seed = key.split("|")
            if own == kind:
                losses.setdefault((scheme, name), {})[int(seed)] = loss
        common = set.intersection(*map(set, losses.values())) if len(losses) == 2 * len(ARCHITECTURES) else set()
        if len(common) < 3:
            continue
        rows = []
        for a, b in itertools.combinations(ARCHITECTURES, 2):
            row: dict[str, Any] = {"pair": f"{a} − {b}"}
            for scheme in SCHEMES:
                row[scheme] = pairing(*({seed: losses[scheme, name][seed] for seed in common} for name in (a, b)))
            rows.append(row)
        medians = {scheme: statistics.median(row[scheme] for row in rows) for scheme in SCHEMES}
        out[kind] = {"seeds": len(common), "rows": rows, "median": medians}
    return out


def show(found: dict[str, Any]) -> str:
    """The table of the docs."""
    kinds = list(found["pairing"])
    if not kinds:
        return "fewer than three seeds are complete\n"
    head = [f"{kind} ({found['pairing'][kind]['seeds']} seeds)" for kind in kinds]
    lines = [f"| pair | {' | '.join(head)} |", f"| --- |{' --: |' * len(kinds)}"]
    rows = [[row["pair"] for row in found["pairing"][kinds[0]]["rows"]], *([] for _ in kinds)]
    for place, kind in enumerate(kinds, 1):
        rows[place] = [" → ".join(f"{row[scheme]:.2f}" for scheme in SCHEMES) for row in found["pairing"][kind]["rows"]]
    lines += [f"| {' | '.join(cells)} |" for cells in zip(*rows, strict=True)]
    medians = [" → ".join(f"{found['pairing'][k]['median'][scheme]:.2f}" for scheme in SCHEMES) for k in kinds]
    return "\n".join([*lines, f"| **median** | {' | '.join(medians)} |"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--kinds", default=",".join(SETTINGS), help="comma-separated")
    parser.add_argument("--steps", type=int, help="to try the script out")
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--show", action="store_true", help="print the table of the results that there are")
    asked = parser.parse_args()
    if not asked.show and git_revision() is None:
        parser.error("run in a git checkout: the result records its commit")
    there = json.loads(asked.result.read_text(encoding="utf-8")) if asked.result.exists() else {"losses": {}}
    kinds = asked.kinds.split(",")
    if asked.show:
        print(show(there), end="")
        return
    torch.set_num_threads(1)
    tasks = {kind: open_task(SETTINGS[kind].data, **SETTINGS[kind].options) for kind in kinds}
    runs: dict[str, float] = there["losses"]
    for seed, kind in itertools.product(range(asked.seeds), kinds):  # so that a stopped sweep has whole seeds
        for scheme, name in itertools.product(SCHEMES, ARCHITECTURES):
            key = f"{kind}|{scheme}|{name}|{seed}"
            if key in runs:
                continue
            steps = asked.steps or STEPS
            runs[key] = trained(tasks[kind], SETTINGS[kind], name, scheme, seed, steps, HELD_OUT[kind])
            print(f"{key} {runs[key]:.4f}", file=sys.stderr, flush=True)
            facts = {
                "command": "python benchmarks/pairing.py",
                "date": datetime.date.today().isoformat(),
                "git": git_revision(),
                "versions": versions(),
                "steps": asked.steps or STEPS,
                "pairing": table(runs, kinds),
                "losses": runs,
            }
            write_json(asked.result, facts)
    print(show(json.loads(asked.result.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
