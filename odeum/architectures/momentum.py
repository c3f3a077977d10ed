"""Momentum transformers: a velocity passes from layer to layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.errors import OdeumError
from odeum.registry.options import FRACTION

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "momentum", reference="Sander et al. 2021, arXiv 2102.07870", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class Momentum(Layered):
    """Layers update a velocity, which moves the state."""

    gamma: Annotated[float, FRACTION] = 0.9
    """decay of the velocity per step; 0 is the plain stack"""

    def method_for(self, place: Place) -> Method:
        return momentum_method(self.method, self.gamma)


def momentum_method(method: str, gamma: float) -> Method:
    """Returns steps of one velocity for all terms and layers: all terms at once, or one after the other."""
    from odeum import integrators

    step = integrators.Momentum(gamma)
    match method:
        case "euler":
            return step
        case "lie-trotter":
            return integrators.LieTrotter(step)
        case "strang":
            return integrators.Strang(step)
    raise OdeumError(f"momentum takes one evaluation per step; use method=euler, lie-trotter or strang, not {method}")
