"""Floating point operations of a pass, counted as it runs, on the meta device too.

MACs are those of one example of full length; a training step counts three forwards. For shorter texts this is an upper
bound, equal for all architectures.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class _Counting:
    """The count of torch's FlopCounterMode under `no_grad`, by the same formulas.

    It stands in a class of its own: a method of the mode itself would load torch's compiler, as FlopCounterMode does,
    which takes longer than all else before a first step.
    """

    flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **kwargs, out_val=out)
        return out


class OperationCounter(_Counting, TorchDispatchMode):
    """Within it, `flops` grows with each product, convolution and attention."""
