"""PCformer: a Runge–Kutta step of whole layers predicts, a learned average of all states so far corrects.

As in the published code, α starts at ½ and both averages have equal weights, so the start is not the plain stack.
Fields are increments, where the published code has the identity inside too. There is one α per layer, and each layer
has its own norms of prediction and correction. The corrected evaluation is at the end of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odeum import register
from odeum.architectures.stepped import MethodName, Place, Stepped
from odeum.errors import OdeumError

if TYPE_CHECKING:
    from odeum.fields.base import Field
    from odeum.integrators.base import Method
    from odeum.models.settings import Shape


@register.architecture(
    "pcformer", reference="Li et al. 2024, arXiv 2411.03042", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class PCformer(Stepped):
    """A Runge–Kutta step of whole layers, corrected by an average of all states so far."""

    method: MethodName = "heun"
    """Runge–Kutta method whose stages make the prediction"""

    def field(self, shape: Shape, cross: bool = False) -> Field:
        from odeum.architectures.parts import whole_layer

        return whole_layer(shape, cross)

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import make_norm, tableau
        from odeum.integrators import pcformer

        numbers = tableau("pcformer", self.method)
        if self.steps != 1:
            raise OdeumError(f"pcformer averages the ends of layers of one step: steps=1, not {self.steps}")
        return pcformer.PCformer(numbers, place.layers, lambda: make_norm(place.shape))
