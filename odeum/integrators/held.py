"""A field with the weights that it has now: whoever evaluates it again later must evaluate the same function."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field


class Held:
    """Weights and buffers of a field, by name, as they are when it is made.

    In the backward pass the field may have others: `torch.func.functional_call` puts its own in their place only while
    the forward pass runs.
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        if torch.compiler.is_compiling():  # a graph has the weights as its inputs
            return
        self.tensors = _tensors(field)
        compiling = torch.compiler.is_compiling()  # a graph cannot look at versions, and keeps what it needs
        self.versions = {} if compiling else {name: _version(x) for name, x in field.named_parameters()}

    @property
    def wanted(self) -> dict[str, Tensor]:
        """Those that want a gradient: trained weights, and buffers that somebody learns."""
        return {name: x for name, x in self.tensors.items() if x.requires_grad}

    def swapped(self) -> bool:
        """Whether the field has other weights by now."""
        now = _tensors(self.field)
        return now.keys() != self.tensors.keys() or any(x is not self.tensors[name] for name, x in now.items())

    def __call__(self, t: float, x: Tensor, context: Context, others: Mapping[str, Tensor] | None = None) -> Tensor:
        """The field with the weights that are held, or with others in the place of some of them."""
        if torch.compiler.is_compiling():
            return self.field(t, x, context)
        for name, version in self.versions.items():
            if version != _version(self.tensors[name]):
                raise OdeumError(
                    f"{name} has been changed in place since the forward pass, which is to be evaluated again for its "
                    "gradient; call backward before the optimizer's step"
                )
        if others or self.swapped():
            return functional_call(self.field, {**self.tensors, **(others or {})}, (t, x, context))
        return self.field(t, x, context)


def _tensors(field: Field) -> dict[str, Tensor]:
    return {**dict(field.named_parameters()), **dict(field.named_buffers())}


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version
