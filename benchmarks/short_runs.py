"""Short trainings inside one process, for sweeps of many small runs: the recipe of the lab without its folders."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from odeum.kernels.matmul import use_onednn
from odeum.lab.tasks import Task
from odeum.lab.train.batches import step_seed
from odeum.lab.train.optimization import learning_rate, make_optimizer
from odeum.lab.train.settings import Training
from odeum.models import build
from odeum.models.settings import Model


def train(model: Any, task: Task, recipe: Training, seed: int) -> None:
    """Train in place for `recipe.steps` steps, with the batches, dropout masks and schedule of the lab."""
    assert recipe.steps is not None
    model.label_smoothing = recipe.label_smoothing
    optimizer = make_optimizer(model, recipe)
    batches = itertools.chain.from_iterable(task.batches(epoch, recipe.batch_size, seed) for epoch in itertools.count())
    for step, batch in enumerate(itertools.islice(batches, recipe.steps)):
        torch.manual_seed(step_seed(seed, step, 0))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step, step / recipe.steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.precision == "bf16"):
            loss = model(**batch, **model.in_training).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad()


def scores(
    architecture: str, task: Task, model: Model, recipe: Training, seed: int, limit: int, split: str = "test"
) -> dict[str, float]:
    """The metrics on up to `limit` examples of a part after a training; a loss that is not finite is infinite."""
    use_onednn()
    torch.manual_seed(seed)
    trained: Any = build(architecture, task.fit(model))
    train(trained, task, recipe, seed)
    result = task.evaluate(trained, split, limit=limit)
    return {name: value if math.isfinite(value) else math.inf for name, value in result.items()}
