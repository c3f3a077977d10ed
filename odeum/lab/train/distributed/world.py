"""World: the processes of a run, seen from one of them; with a single process most methods do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.kernels.matmul import processor_has_bfloat16
from odeum.lab.train.distributed import ranks
from odeum.lab.train.distributed.shards import FILE, StoredTensors
from odeum.lab.train.settings import Training
from odeum.models import OdeumModel
from odeum.models.tensors import write_tensors


class World:
    """One of `size` processes; the first one prints and writes."""

    def __init__(self, device: torch.device) -> None:
        self.rank = 0
        self.size = 1
        self.device = device

    @property
    def main(self) -> bool:
        return self.rank == 0

    # in every step

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap the model for training, so that gradients are synchronised."""
        return model

    def gradient_sync(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Context that synchronises gradients only for the last part of a batch."""
        return nullcontext()

    def add(self, values: Sequence[float]) -> list[float]:
        """Sum over all processes; every process gets the same numbers."""
        return list(values)

    def broadcast(self, value: float) -> float:
        """The first process's value."""
        return self.add([value if self.main else 0.0])[0]

    def clip(self, weights: list[nn.Parameter], largest: float) -> None:
        nn.utils.clip_grad_norm_(weights, largest, foreach=True)

    def local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The local parts of tensors."""
        return list(tensors)

    # between steps

    def wait(self) -> None:
        """Wait until all processes have reached this point, however slow one of them is."""

    def watching(self) -> AbstractContextManager[None]:
        """Context that raises `ProcessLost` if another process has ended."""
        return nullcontext()

    def unsharded(self, model: OdeumModel) -> OdeumModel:
        """A model with full weights, for evaluation."""
        return model

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """The full weights, gathered from all processes."""
        return model.state_dict()

    def shard(self, value: Tensor, like: Tensor) -> Tensor:
        """A full tensor, sharded like `like`."""
        return value.to(like.device)

    def joined(self, part: Tensor, like: Tensor) -> Tensor:
        """The inverse of `local`: a local part as a tensor sharded like `like`."""
        return part

    def write(self, directory: Path, tensors: dict[str, Tensor]) -> None:
        """Write tensors into an existing directory."""
        if self.main:
            write_tensors(directory / FILE, tensors)

    def read(self, directory: Path, like: dict[str, Tensor]) -> dict[str, Tensor]:
        """Read tensors, sharded like those given, whatever number of processes wrote them."""
        stored = StoredTensors(directory).read(like)
        return {name: self.shard(value, like[name]) for name, value in stored}


def pick_device(name: str, index: int | None = None) -> torch.device:
    """Returns the device; `auto` prefers CUDA, then MPS. `index` is the local rank.

    Raises `OdeumError` if the device is not available.
    """
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


def uses_bfloat16(precision: str, device: torch.device) -> bool:
    """Returns whether steps run under bfloat16 autocast. `auto` takes it on CUDA devices that support it.

    Raises `OdeumError` if bfloat16 is requested on a CPU without its instructions.
    """
    if precision == "bf16" and device.type == "cpu" and not processor_has_bfloat16():
        raise OdeumError(
            "--train.precision bf16: this processor has no bfloat16 instructions (AVX512-BF16 or AMX), so training "
            "would be many times slower than in fp32; use --train.precision fp32"
        )
    return precision == "bf16" or (precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported())


def join(training: Training) -> World:
    """Join the processes that torchrun started, or return a world of one."""
    ranks.check_launcher()
    if ranks.size() == 1:
        return World(pick_device(training.device))
    from odeum.lab.train.distributed.parallel import join_processes

    return join_processes(training)
