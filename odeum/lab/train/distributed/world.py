"""One process, and what it is among others; alone, most of this does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.lab.train.distributed import ranks
from odeum.lab.train.distributed.shards import FILE, StoredTensors
from odeum.lab.train.settings import Training
from odeum.models import OdeumModel
from odeum.models.tensors import write_tensors


class World:
    """One process among `size`; the first one speaks and writes."""

    def __init__(self, device: torch.device) -> None:
        self.rank = 0
        self.size = 1
        self.device = device

    @property
    def main(self) -> bool:
        return self.rank == 0

    # in every step

    def wrap(self, model: nn.Module) -> nn.Module:
        """What is called in training, so that gradients are shared."""
        return model

    def syncing(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Share gradients only with the last part of a batch."""
        return nullcontext()

    def add(self, values: Sequence[float]) -> list[float]:
        """Sums over all processes: the same numbers everywhere, so that all decide alike."""
        return list(values)

    def agree(self, value: float) -> float:
        """The first process's value."""
        return self.add([value if self.main else 0.0])[0]

    def clip(self, weights: list[nn.Parameter], largest: float) -> None:
        nn.utils.clip_grad_norm_(weights, largest, foreach=True)

    def local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The parts that lie here."""
        return list(tensors)

    # now and then

    def wait(self) -> None:
        """Until all have come here, however slow the disk of one is."""

    def watching(self) -> AbstractContextManager[None]:
        """Within it, a process that is gone is a sentence."""
        return nullcontext()

    def whole(self, model: OdeumModel) -> OdeumModel:
        """A model with whole weights, to be evaluated."""
        return model

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Whole weights, wherever their parts lie."""
        return model.state_dict()

    def shard(self, value: Tensor, like: Tensor) -> Tensor:
        """A whole value, laid out like that tensor."""
        return value.to(like.device)

    def joined(self, part: Tensor, like: Tensor) -> Tensor:
        """The inverse of `local`: a part as a tensor laid out like that one."""
        return part

    def write(self, directory: Path, tensors: dict[str, Tensor]) -> None:
        """Put a state's tensors into a directory that is there."""
        if self.main:
            write_tensors(directory / FILE, tensors)

    def read(self, directory: Path, like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors in a directory, laid out like those given, in whatever world they were written."""
        whole = StoredTensors(directory).read(like)
        return {name: self.shard(value, like[name]) for name, value in whole}


def pick_device(name: str, index: int | None = None) -> torch.device:
    """`auto` is the best there is; a device that is missing gets a sentence. `index` is the place on this machine."""
    if name == "auto":
        alone = index is None
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() and alone else "cpu"
    if name == "cuda" and index is not None:
        name = f"cuda:{index}"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise OdeumError(f"device '{name}' is not available here; use auto or cpu") from None
    return device


def join(training: Training) -> World:
    """The world that this process was started in."""
    ranks.check_launcher()
    if ranks.size() == 1:
        return World(pick_device(training.device))
    from odeum.lab.train.distributed.parallel import meet

    return meet(training)
