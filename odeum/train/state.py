"""All tensors that a run continues from, under names that do not depend on how many processes hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from odeum.distributed.shards import StoredTensors
from odeum.distributed.world import World
from odeum.models import OdeumModel
from odeum.train.optimization import Average


class Resumable(Protocol):
    """What a run is made of, as far as its state is concerned."""

    world: World
    model: OdeumModel
    names: list[str]
    weights: list[nn.Parameter]
    optimizer: torch.optim.AdamW
    ema: Average | None
    mean: Average | None


def collect(run: Resumable) -> dict[str, Tensor]:
    """model/NAME, optimizer/KEY/NAME, ema/NAME, mean/NAME."""
    tensors = {f"model/{name}": weight for name, weight in run.model.state_dict().items()}
    for name, weight in zip(run.names, run.weights, strict=True):
        for key, value in run.optimizer.state[weight].items():
            tensors[f"optimizer/{key}/{name}"] = value
    for kind, average in _averages(run):
        for name, weight, part in zip(run.names, run.weights, average.values, strict=True):
            tensors[f"{kind}/{name}"] = run.world.joined(part, weight)
    return tensors


def restore(run: Resumable, directory: Path) -> None:
    """The inverse of `collect`, from what a world of any size wrote."""
    weights = dict(zip(run.names, run.weights, strict=True))
    model = run.model.state_dict()
    like = {}
    for path in StoredTensors(directory).names:
        kind, _, name = path.partition("/")
        key, _, rest = name.partition("/")
        if kind == "optimizer":
            like[path] = torch.zeros((), device=run.world.device) if key == "step" else weights[rest].detach()
        else:
            like[path] = model[name].detach()
    values = run.world.read(directory, like)
    run.model.load_state_dict({path[6:]: value for path, value in values.items() if path.startswith("model/")})
    for path, value in values.items():
        if path.startswith("optimizer/"):
            _, key, name = path.split("/", 2)
            run.optimizer.state[weights[name]][key] = value
    for kind, average in _averages(run):
        parts = run.world.local([values[f"{kind}/{name}"] for name in run.names])
        for mine, part in zip(average.values, parts, strict=True):
            mine.copy_(part)


def _averages(run: Resumable) -> list[tuple[str, Average]]:
    return [(kind, average) for kind, average in (("ema", run.ema), ("mean", run.mean)) if average is not None]
