"""Residual scalars: each layer begins with a learned multiple of the state plus a learned multiple of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.errors import OdeumError
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "residual-scalars", reference="nanochat (Karpathy); modded-nanogpt", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class ResidualScalars(Layered):
    """Learned multiples of the state and of x₀."""

    rate: Annotated[float, Range(above=0)] = 0.01
    """learning rate of the state's multiple, relative to the other weights"""

    stream: Annotated[float | None, Range(-10, 10)] = None
    """fixed multiple of the state, together with `input` (none: both are learned)"""
    input: Annotated[float | None, Range(-10, 10)] = None
    """fixed multiple of the stack's input"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import make_method
        from odeum.integrators import residual_scalars

        fixed = None if self.stream is None or self.input is None else (self.stream, self.input)
        if fixed is None and (self.stream, self.input) != (None, None):
            raise OdeumError(
                f"residual-scalars fixes both multiples or none, not stream={self.stream} and input={self.input}; "
                "give both"
            )
        return residual_scalars.ResidualScalars(make_method(self.method), self.rate, fixed)
