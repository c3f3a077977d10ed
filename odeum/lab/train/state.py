"""The tensors of a checkpoint, under names that do not depend on the number of processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from odeum.fields.roles import find, role_names
from odeum.lab.train.distributed.shards import StoredTensors
from odeum.lab.train.optimization import Average

if TYPE_CHECKING:
    from odeum.lab.train.loop import Trainer


def collect(run: Trainer) -> dict[str, Tensor]:
    """Returns the tensors as model/NAME, optimizer/KEY/NAME, ema/NAME, mean/NAME; NAME is the weight's role."""
    names = role_names(run.model)
    tensors = {f"model/{names.get(path, path)}": weight for path, weight in run.model.state_dict().items()}
    for name, weight in zip(run.names, run.weights, strict=True):
        for key, value in run.optimizer.state[weight].items():
            tensors[f"optimizer/{key}/{names[name]}"] = value
    for kind, average in _averages(run):
        for name, weight, part in zip(run.names, run.weights, average.values, strict=True):
            tensors[f"{kind}/{names[name]}"] = run.world.joined(part, weight)
    return tensors


def restore(run: Trainer, directory: Path) -> None:
    """Load the tensors of a checkpoint, written by any number of processes; the inverse of `collect`."""
    weights = dict(zip(run.names, run.weights, strict=True))
    model = run.model.state_dict()
    stored = [(tensor, *_kind_and_name(tensor)) for tensor in StoredTensors(directory).names]
    path = find(run.model, dict.fromkeys(name for _, _, name in stored))
    like = {}
    for tensor, kind, name in stored:
        if kind == "optimizer/step":
            like[tensor] = torch.zeros((), device=run.world.device)
        else:
            like[tensor] = (weights if kind.startswith("optimizer/") else model)[path[name]].detach()
    read = run.world.read(directory, like)
    values: dict[str, dict[str, Tensor]] = {}
    for tensor, kind, name in stored:
        values.setdefault(kind, {})[path[name]] = read[tensor]
    run.model.load_state_dict(values.pop("model"))
    for kind, average in _averages(run):
        parts = run.world.local([values[kind][name] for name in run.names])
        for current, part in zip(average.values, parts, strict=True):
            current.copy_(part)
    for kind, tensors in values.items():
        if kind.startswith("optimizer/"):
            for name, value in tensors.items():
                run.optimizer.state[weights[name]][kind.removeprefix("optimizer/")] = value


def _kind_and_name(tensor: str) -> tuple[str, str]:
    """`optimizer/step/head.weight` -> (`optimizer/step`, `head.weight`)."""
    parts = tensor.split("/", 2 if tensor.startswith("optimizer/") else 1)
    return "/".join(parts[:-1]), parts[-1]


def _averages(run: Trainer) -> list[tuple[str, Average]]:
    return [(kind, average) for kind, average in (("ema", run.ema), ("mean", run.mean)) if average is not None]
