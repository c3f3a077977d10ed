"""The implicit midpoint rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import MethodName, Place
from odeum.errors import OdeumError
from odeum.registry.names import Deferred
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.integrators.base import Method

register.method(
    "implicit-midpoint",
    Deferred("odeum.integrators", "ImplicitMidpoint"),
    about="implicit midpoint by fixed-point iteration: order 2, stable where the field contracts",
)


@register.architecture(
    "implicit-midpoint",
    about="parallel field, implicit midpoint step by fixed-point iteration: order 2",
    group="one step per layer",
)
@dataclass(frozen=True)
class ImplicitMidpoint(Layered):
    """The implicit midpoint rule, its equation solved by fixed-point iteration."""

    method: MethodName = "implicit-midpoint"
    iterations: Annotated[int, Range(1, 1000)] = 4
    """fixed-point iterations per step, one evaluation of the field each"""

    def method_for(self, place: Place) -> Method:
        from odeum import integrators

        if self.method != "implicit-midpoint":
            raise OdeumError(
                f"implicit-midpoint is a method of its own; use parallel:method={self.method}, without iterations"
            )
        return integrators.ImplicitMidpoint(self.iterations)
