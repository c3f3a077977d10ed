"""Hyper-connections: several residual streams instead of one.

Coefficients are per term (`method=lie-trotter`) or per layer (`euler`). The mean of the streams goes to the final
norm, where the paper takes the sum: this is equal under a norm without eps, and makes the start the plain stack for
any eps. Only maps of features have weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "hyper", reference="Zhu et al. 2024, arXiv 2409.19606", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class Hyper(Layered):
    """Several residual streams that layers read, write and mix."""

    streams: Annotated[int, Range(1, 64)] = 4
    """number of streams; one is the plain stream with learned gains"""
    dynamic: bool = True
    """whether the coefficients also depend on the streams"""
    mixing: Literal["learned", "identity"] = "learned"
    """identity: streams are read and written, but not mixed"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import per_term
        from odeum.integrators.streams import HyperConnections

        def sublayer(index: int) -> Method:
            shape = place.shape
            mixes = self.mixing == "learned"
            return HyperConnections(shape.width, self.streams, index, self.dynamic, shape.norm_eps, mixes=mixes)

        return per_term("hyper", self.method, sublayer, place)
