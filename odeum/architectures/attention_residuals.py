"""Attention residuals: each sublayer reads a softmax-weighted mean of what the sublayers before it added.

The queries start at zero, which is the plain stack under norms without eps. The gain of the keys is omitted, because
it is a factor of the query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.registry.options import COUNT

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture("attention-residuals", reference="arXiv 2603.15031", group="multistep and multi-stream methods")
@dataclass(frozen=True)
class AttentionResiduals(Layered):
    """Each sublayer attends to those before."""

    block: Annotated[int, COUNT] = 4
    """sublayers summed into one value; larger blocks need less memory (1: the full form)"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import per_term
        from odeum.integrators import attention_residuals

        shape = place.shape
        terms = 1 if self.method == "euler" else len(place.field.terms)

        def sublayer(index: int) -> Method:
            first = index == 0 and place.layers == (0,) and self.steps == 1
            last = shape.depth - 1 in place.layers and (index + 1) % terms == 0
            return attention_residuals.AttentionResiduals(
                shape.width, self.block, first=first, last=last, eps=shape.norm_eps
            )

        return per_term("attention-residuals", self.method, sublayer, place)
