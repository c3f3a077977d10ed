"""Several processes: DDP, where each holds the model, or FSDP2, where each holds a shard of it."""

from __future__ import annotations

import atexit
import inspect
import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from odeum.errors import OdeumError
from odeum.fields.transevolve.block import Anchored
from odeum.flow import Flow
from odeum.integrators import Reversible
from odeum.lab.train.distributed import ranks
from odeum.lab.train.distributed.heartbeats import Heartbeats
from odeum.lab.train.distributed.ranks import ProcessLost
from odeum.lab.train.distributed.shards import Piece, write_shard
from odeum.lab.train.distributed.world import World, pick_device
from odeum.lab.train.settings import Training
from odeum.models import OdeumModel, build

STEP = timedelta(seconds=25)
"""wait for a process without heartbeat; torchrun then gives it 30 more seconds to end"""
PATIENCE = timedelta(minutes=30)
"""wait for a living process that opens data, compiles or writes a checkpoint"""

NAMES = inspect.signature(DistributedDataParallel).parameters
BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in NAMES else "broadcast_buffers"
"""the argument for broadcasting buffers in every forward pass, renamed in torch 2.13"""


class Replicated(World):
    """DDP: each process has the whole model and computes its part of every batch."""

    def __init__(self, device: torch.device, group: dist.ProcessGroup) -> None:
        super().__init__(device)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.group = group
        self.heartbeats = _heartbeats()

    def wrap(self, model: nn.Module) -> nn.Module:
        constant: dict[str, Any] = {BUFFERS: False}  # our buffers never change
        return DistributedDataParallel(model, process_group=self.group, gradient_as_bucket_view=True, **constant)

    def gradient_sync(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
        assert isinstance(wrapped, DistributedDataParallel)
        return nullcontext() if last else wrapped.no_sync()

    def add(self, values: Sequence[float]) -> list[float]:
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self.group)
        return total.tolist()

    def wait(self) -> None:
        work = dist.all_reduce(torch.zeros(1), async_op=True)  # on the group with the long timeout
        assert work is not None
        self.heartbeats.wait_until(work.is_completed)
        work.wait()

    @contextmanager
    def watching(self) -> Generator[None]:
        try:
            yield
        except RuntimeError as error:
            if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            raise ProcessLost(
                "another process of this run has ended or does not answer; "
                "the same command continues from the last saved state"
            ) from error


class Sharded(Replicated):
    """FSDP2: each process keeps a part of every weight, of its gradient and of the optimizer's state."""

    def __init__(self, device: torch.device, group: dist.ProcessGroup) -> None:
        super().__init__(device, group)
        self.mesh = DeviceMesh.from_group(group, device.type)

    def wrap(self, model: nn.Module) -> nn.Module:
        if any(isinstance(module, Reversible) for module in model.modules()):
            raise OdeumError(
                "gradient=reversible recomputes layers in the backward pass, where fsdp2 has sharded their weights; "
                "use --train.strategy ddp, or gradient=checkpointed"
            )
        for module in model.modules():
            if isinstance(module, Flow):
                fully_shard(module, mesh=self.mesh)
        for module in model.modules():
            if isinstance(module, Anchored):
                fully_shard(module, mesh=self.mesh)
        fully_shard(model, mesh=self.mesh)
        return model

    def gradient_sync(self, wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
        assert isinstance(wrapped, FSDPModule)
        wrapped.set_requires_gradient_sync(last)
        return nullcontext()

    def local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [t.to_local().detach() if isinstance(t, DTensor) else t for t in tensors]

    def unsharded(self, model: OdeumModel) -> OdeumModel:
        copy = build(model.architecture, model.settings)
        assert isinstance(copy, OdeumModel)
        copy.load_state_dict(self.weights(model))
        return copy.to(self.device)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        return {
            name: value.full_tensor() if isinstance(value, DTensor) else value
            for name, value in model.state_dict().items()
        }

    def shard(self, value: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor):
            return super().shard(value, like)
        return distribute_tensor(value.to(self.device), like.device_mesh, like.placements, src_data_rank=None)

    def joined(self, part: Tensor, like: Tensor) -> Tensor:
        assert isinstance(like, DTensor)
        return DTensor.from_local(
            part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )

    def write(self, directory: Path, tensors: dict[str, Tensor]) -> None:
        tensors_here: dict[str, Tensor] = {}
        offsets: dict[str, Piece] = {}
        for name, tensor in tensors.items():
            if isinstance(tensor, DTensor):
                tensors_here[name], offsets[name] = self._piece(tensor)
            elif self.main:  # replicated tensors are stored once
                tensors_here[name] = tensor
        write_shard(directory, self.rank, self.size, tensors_here, offsets)

    def _piece(self, tensor: DTensor) -> tuple[Tensor, Piece]:
        """The local part of a tensor and its offset: FSDP2 gives each process consecutive rows, the last ones fewer."""
        (placement,) = tensor.placements
        part, offset = tensor.to_local(), [0] * tensor.dim()
        if isinstance(placement, Shard):
            rows = tensor.shape[placement.dim]
            offset[placement.dim] = begin = min(rows, self.rank * -(-rows // self.size))
            assert part.shape[placement.dim] == min(rows, begin + -(-rows // self.size)) - begin
        return part, (list(tensor.shape), offset)


def join_processes(training: Training) -> World:
    """Join the process group: NCCL between GPUs, gloo between CPUs."""
    place = int(os.environ.get("LOCAL_RANK", ranks.rank()))
    device = pick_device(training.device, place)
    if device.type not in ("cpu", "cuda"):
        raise OdeumError(f"several processes train on cuda or cpu, not on '{device}'")
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        atexit.register(dist.destroy_process_group)
    group = _step_group(PATIENCE if training.compile else STEP)
    return (Sharded if training.strategy == "fsdp2" else Replicated)(device, group)


@cache
def _heartbeats() -> Heartbeats:
    """The heartbeats of this process, shared by its runs."""
    return Heartbeats(STEP.total_seconds())


_GROUPS: dict[timedelta, dist.ProcessGroup] = {}


def _step_group(timeout: timedelta) -> dist.ProcessGroup:
    if timeout not in _GROUPS:
        group = dist.new_group(timeout=timeout)
        assert isinstance(group, dist.ProcessGroup)
        _GROUPS[timeout] = group
    return _GROUPS[timeout]
