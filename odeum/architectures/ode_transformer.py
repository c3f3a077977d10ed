"""ODE Transformer: a Runge–Kutta step of whole layers; its stages may be mixed by learned gates.

The gate is one linear map per layer from all stages to one weight per stage (softmax with the last logit fixed); for
two stages `g` and `1 − g`. `learned` coefficients start at 1 as in the paper, so the scheme has no order until
trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from odeum import register
from odeum.architectures.stepped import MethodName, Place, Stepped

if TYPE_CHECKING:
    from odeum.fields.base import Field
    from odeum.integrators.base import Method
    from odeum.models.settings import Shape


@register.architecture("ode-transformer", reference="Li et al. 2022, arXiv 2203.09176", group="one step per layer")
@dataclass(frozen=True)
class OdeTransformer(Stepped):
    """A Runge–Kutta step of whole layers, gated."""

    method: MethodName = "heun"
    coefficients: Literal["fixed", "learned", "gated"] = "gated"
    """how the stages are mixed"""

    def field(self, shape: Shape, cross: bool = False) -> Field:
        from odeum.architectures.parts import whole_layer

        return whole_layer(shape, cross)

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import tableau
        from odeum.integrators import Gated, Learned, RungeKutta

        numbers = tableau("ode-transformer", self.method)
        match self.coefficients:
            case "learned":
                return RungeKutta(numbers, Learned(numbers, start=1.0))
            case "gated":
                return RungeKutta(numbers, Gated(numbers, place.shape.width))
        return RungeKutta(numbers)
