"""DenseFormer: each layer is followed by a learned average of all states so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.errors import OdeumError

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "dense", reference="Pagliardini et al. 2024, arXiv 2402.02622", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class Dense(Layered):
    """A learned average of all layers so far: DenseFormer."""

    def method_for(self, place: Place) -> Method:
        from odeum import integrators
        from odeum.architectures.parts import make_method

        if self.steps != 1:
            raise OdeumError(f"dense averages the states at the ends of layers of one step: steps=1, not {self.steps}")
        return integrators.Dense(make_method(self.method), place.layers)
