"""The meta device stands for any device that is not a CPU: it has no numbers that could be read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class NoWaiting(TorchDispatchMode):
    """Refuses what makes the host wait for a device, and double precision, which some devices do not have."""

    WAITING = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique")

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in pytree.tree_leaves((args, kwargs, out)) if isinstance(x, Tensor) and x.is_meta]
        name = func.__name__.partition(".")[0]
        if tensors:
            assert name not in self.WAITING, f"{name} waits for the device"
            assert not (name == "_to_copy" and out.device.type == "cpu"), "a copy to the host waits for the device"
            assert all(x.dtype != torch.float64 for x in tensors), f"{name} in float64"
        return out
