"""The processes that train together; alone, all of this does nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.optimization import Average
from odeum.settings.training import Training


class Resumable(Protocol):
    """What a run is made of, as far as its state is concerned."""

    model: nn.Module
    names: list[str]
    weights: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    ema: Average | None
    mean: Average | None


class World:
    """One process among `size`; the first one speaks and writes."""

    def __init__(self, device: torch.device) -> None:
        self.rank = 0
        self.size = 1
        self.device = device

    @property
    def main(self) -> bool:
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """What is called in training, so that gradients are shared."""
        return model

    def syncing(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Share gradients only with the last part of a batch."""
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        return value

    def agree(self, value: float) -> float:
        """The first process's value, for decisions that all must take alike."""
        return value

    def clip(self, weights: list[nn.Parameter], largest: float) -> Tensor:
        return nn.utils.clip_grad_norm_(weights, largest, foreach=True)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Whole weights, wherever their parts lie."""
        return model.state_dict()

    def state(self, run: Resumable) -> dict[str, Tensor]:
        """All tensors that a run continues from, under their names, whole."""
        tensors = {f"model/{name}": w for name, w in run.model.state_dict().items()}
        for name, weight in zip(run.names, run.weights, strict=True):
            for key, value in run.optimizer.state[weight].items():
                tensors[f"optimizer/{key}/{name}"] = value
        for kind, average in (("ema", run.ema), ("mean", run.mean)):
            if average is not None:
                tensors |= {f"{kind}/{n}": v for n, v in zip(run.names, average.values, strict=True)}
        return tensors

    def restore(self, run: Resumable, tensors: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        groups: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition("/")
            groups.setdefault(kind, {})[rest] = value
        run.model.load_state_dict(groups["model"])
        for path, value in groups.get("optimizer", {}).items():
            key, _, name = path.partition("/")
            weight = run.weights[run.names.index(name)]
            run.optimizer.state[weight][key] = value.clone() if key == "step" else value.to(weight.device)
        for kind, average in (("ema", run.ema), ("mean", run.mean)):
            if average is not None:
                for value, name in zip(average.values, run.names, strict=True):
                    value.copy_(groups[kind][name])


def pick_device(name: str) -> torch.device:
    """`auto` is the best there is; a device that is missing gets a sentence."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise OdeumError(f"device '{name}' is not available here; use auto or cpu") from None
    return device


def join(training: Training) -> World:
    """The world that this process was started in."""
    return World(pick_device(training.device))
