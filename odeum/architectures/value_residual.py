"""Value residual: attention adds a learned multiple of the first layer's values, or of a value embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "value-residual", reference="Zhou et al. 2024, arXiv 2410.17897", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class ValueResidual(Layered):
    """Attention adds the first layer's values: ResFormer."""

    source: Literal["first", "input"] = "first"
    """the added values: those of the first layer, or a linear map of the stack's input (value embedding)"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import make_method
        from odeum.fields import SelfAttention
        from odeum.integrators.depth_memory import ValueResidual as Step

        attention = next((part for part in place.field.modules() if isinstance(part, SelfAttention)), None)
        embedding = None
        if self.source == "input" and attention is not None:
            embedding = (place.shape.width, attention.sizes[2], attention.counts[2])
        return Step(make_method(self.method), place.layers, embedding)
