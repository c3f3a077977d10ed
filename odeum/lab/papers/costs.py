"""What the runs of a table would cost: multiply–adds counted on the meta device, hours from those."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from odeum.lab.papers.base import PaperTable, TableRow
from odeum.lab.papers.grid import Grid
from odeum.lab.papers.store import Store
from odeum.lab.study.prose import count, duration
from odeum.lab.train.spec import RunSpec
from odeum.models import OdeumModel, build
from odeum.models.description import describe
from odeum.models.settings import Translation

FLOPS_A_MAC = 2.0
EXAMPLES_AT_ONCE = 16
"""examples at once, where the speed of this machine is measured"""
FORWARDS = 3.0
"""forward and backward cost as much as three forwards"""


@dataclass(frozen=True)
class RowCost:
    """Of one run of a row."""

    row: TableRow
    recipe: RunSpec
    parameters: int
    macs: int
    """of one example, forward"""
    steps: int
    training_macs: float


def row_cost(table: PaperTable, row: TableRow, scale: str) -> RowCost:
    """Counted for examples of full length: an upper bound for texts, the same for every architecture."""
    recipe = table.spec(row, scale)
    facts = describe(recipe.architecture, recipe.model, detail=False)
    training = recipe.training
    each = table.scales[scale][row.setting].steps_an_epoch
    steps = training.steps or round(training.epochs * each)
    examples: float = training.batch_size
    if isinstance(recipe.model, Translation):  # whose batches are counted in tokens
        examples = training.batch_size / recipe.model.length
    total = FORWARDS * facts["macs"] * examples * steps
    return RowCost(row, recipe, facts["parameters"], facts["macs"], steps, total)


def speed_here(table: PaperTable, store: Store) -> float:
    """Multiply–adds a second of one run on this machine: of the kept runs or, without any, of a few steps."""
    recipes = [table.spec(row, "laptop") for row in table.rows]
    done = [run.content for recipe in recipes for run in store.runs(recipe).values() if run.content.get("seconds")]
    if done:
        return sum(float(run["macs"]) for run in done) / sum(float(run["seconds"]) for run in done)
    return _measured(recipes[0])


def _measured(recipe: RunSpec) -> float:
    model = build(recipe.architecture, recipe.model)
    assert isinstance(model, OdeumModel)
    macs = describe(recipe.architecture, recipe.model, detail=False)["macs"]
    example = {
        key: value.repeat(EXAMPLES_AT_ONCE, *(1,) * (value.ndim - 1))
        for key, value in model.eval().example("cpu").items()
    }
    model(**example)
    begin, passes = time.process_time(), 0
    with torch.no_grad():
        while time.process_time() - begin < 0.5:
            model(**example)
            passes += 1
    return macs * EXAMPLES_AT_ONCE * passes / (time.process_time() - begin)


def _hours(seconds: float) -> str:
    return duration(seconds) if seconds < 7200 else f"{seconds / 3600:,.0f} h"


def cost_grid(table: PaperTable, rows: Sequence[TableRow], scale: str, store: Store, teraflops: float) -> Grid:
    """A line a row: what one run costs here and on hardware that sustains so many TFLOP/s."""
    here = speed_here(table, store)
    lines = []
    for row in rows:
        cost = row_cost(table, row, scale)
        there = FLOPS_A_MAC * cost.training_macs / (1e12 * teraflops)
        kept = len(store.runs(cost.recipe))
        lines.append(
            [
                row.name,
                cost.recipe.name,
                count(cost.parameters),
                count(cost.macs),
                count(cost.training_macs),
                str(cost.steps),
                _hours(cost.training_macs / here),
                _hours(there),
                str(kept),
            ]
        )
    heads = ("row", "architecture", "parameters", "multiply–adds", "of training", "steps", "a run here")
    return Grid((*heads, f"at {teraflops:g} TFLOP/s", "seeds kept"), lines, (0, 1))
