"""Parameters of a field as they are now, so that a later evaluation computes the same function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.kernels.autograd import leaves_of


class FrozenParameters:
    """The parameters and buffers of a field, by name, as they were at construction.

    In the backward pass the field may have others: `torch.func.functional_call` replaces them only while the forward
    pass runs.
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        if torch.compiler.is_compiling():  # a graph has the weights as its inputs
            return
        modules = list(field.named_modules())
        weights, buffers = _places(modules, "_parameters"), _places(modules, "_buffers")
        first = {id(place.held): place for place in reversed(weights + buffers)}  # a shared tensor is stored once
        self.tensors = {place.name: place.held for place in weights + buffers if first[id(place.held)] is place}
        names = {place.name for place in weights}
        self.versions = {n: _version(x) for n, x in self.tensors.items() if n in names or x.requires_grad}
        self.places = [*weights, *buffers, *_places(modules, "_modules")]
        self.wanted = {name: x for name, x in self.tensors.items() if x.requires_grad}
        """weights and learned buffers that need a gradient. A backward pass takes them from here: those that
        autograd saved may be copies, if saved-tensor hooks are active"""

    def swapped(self) -> bool:
        """Returns whether the field has other weights or submodules now."""
        return any(place.part.get(place.key) is not place.held for place in self.places)

    def refuse_changed(self) -> None:
        """Raises `OdeumError` if a weight was changed in place since construction."""
        for name, version in self.versions.items():
            if version != _version(self.tensors[name]):
                raise OdeumError(
                    f"{name} has been changed in place since the forward pass, which is recomputed for its "
                    "gradient; call backward before the optimizer's step"
                )

    def __call__(self, t: float, x: Tensor, context: Context, others: Mapping[str, Tensor] | None = None) -> Tensor:
        """Evaluates the field with the stored weights; `others` replace some of them."""
        if torch.compiler.is_compiling():
            return self.field(t, x, context)
        self.refuse_changed()
        if others or self.swapped():
            return functional_call(self.field, {**self.tensors, **(others or {})}, (t, x, context))
        return self.field(t, x, context)


class Autocast(NamedTuple):
    """The autocast state of the forward pass, applied again in the backward pass."""

    device: str
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def current(cls, device: str) -> Autocast:
        if not torch.amp.is_autocast_available(device):
            return cls("cpu", False, torch.bfloat16)
        return cls(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))

    def restored(self) -> torch.autocast:
        """Returns the autocast context without its weight cache: weights cast without gradient would be reused."""
        return torch.autocast(self.device, self.dtype, self.enabled, cache_enabled=False)


def check_extra(extra: Any, who: str) -> None:
    """Raises `OdeumError` for objects in the context's extra whose tensors would silently get no gradient."""
    for leaf in pytree.tree_leaves(extra):
        if leaf is not None and not isinstance(leaf, Tensor | bool | int | float | complex | str):
            raise OdeumError(
                f"{who} cannot find tensors in the {type(leaf).__name__} in the context's extra; pass tensors in "
                "mappings (dict), tuples and lists"
            )


def refuse_other_tensors(who: str, out: Tensor, inputs: Sequence[Tensor]) -> None:
    """Raises `OdeumError` if `out` depends on a tensor that would silently get no gradient."""
    known = {id(tensor) for tensor in inputs}
    for leaf in leaves_of(out):
        if id(leaf) not in known:
            raise OdeumError(
                f"{who} does not reach a tensor of shape {list(leaf.shape)} that the field reads beside "
                "its weights and its context; give it in Context(extra=...), detach it, or use gradient=checkpointed"
            )


class _Place(NamedTuple):
    """The place of a parameter or submodule, cached because a search in every step of every layer would be slow."""

    name: str
    part: dict[str, Any]
    key: str
    held: Any


def _places(modules: list[tuple[str, nn.Module]], kind: str) -> list[_Place]:
    return [
        _Place(f"{path}.{key}" if path else key, part, key, x)
        for path, module in modules
        if (part := module.__dict__[kind])
        for key, x in part.items()
        if x is not None
    ]


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version
