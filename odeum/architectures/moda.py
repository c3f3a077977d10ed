"""Mixture-of-depths attention: heads also attend to the keys and values of earlier layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "moda", reference="Zhu et al. 2026, arXiv 2603.15619", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class Moda(Layered):
    """One attention over positions and earlier layers."""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import make_method
        from odeum.integrators.depth_memory import DepthAttention

        return DepthAttention(make_method(self.method))
