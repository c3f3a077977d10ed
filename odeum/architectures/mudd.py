"""MUDD connections: q, k, v and the residual of a layer each read their own dynamic sum over all earlier states.

As in the authors' code, the newest state makes the coefficients, W₁ has as many rows as there are coefficients (four
times as many after the last layer), W₂ starts at zero and the biases pick the newest state: the plain stack. What
differs: one norm serves the inputs of q, k and v, because a gain per input is a factor of its matrix; hidden widths
are not rounded up to multiples of 64, and the feed-forwards of all layers are equally wide.
"""

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
    "mudd", reference="Xiao et al. 2025, arXiv 2502.12170", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class Mudd(Layered):
    """Dynamic sums over all earlier states, four per layer."""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import innermost
        from odeum.fields import SelfAttention
        from odeum.integrators import mudd

        if self.steps != 1:
            raise OdeumError(f"mudd sums the states at the ends of layers of one step: steps=1, not {self.steps}")
        if self.method not in ("lie-trotter", "euler"):
            raise OdeumError(f"mudd takes one evaluation per step; use method=lie-trotter or euler, not {self.method}")
        terms = [isinstance(innermost(term), SelfAttention) for term in place.field.terms]
        if sum(terms) != 1:
            raise OdeumError(
                "mudd gives q, k and v of one self-attention per layer their own inputs, which "
                f"{place.field.formula('x')} does not have; use attention=attention and a norm for each term"
            )
        shape = place.shape
        return mudd.Mudd(
            shape.width,
            shape.depth,
            place.layers,
            terms.index(True),
            together=self.method == "euler",
            eps=shape.norm_eps,
        )
