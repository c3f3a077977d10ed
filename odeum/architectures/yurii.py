"""YuriiFormer: Nesterov's accelerated gradient method, one step per sublayer.

The velocity starts at zero, where the paper learns a second embedding, so the first sublayer has no coefficients. μ, β
and γ start at ½, ½ and ln 2, as in a public port; the authors' initial values are not known to us. Under the norm only
β/γ matters and no step is small, so there is one step per layer.
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
    "yurii", reference="Zimin et al. 2026, arXiv 2601.23236", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class Yurii(Layered):
    """Nesterov's steps with a velocity: YuriiFormer."""

    normed: bool = True
    """normalise the velocity at each step"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import make_norm, per_term
        from odeum.integrators import Nesterov

        if self.steps != 1:
            raise OdeumError(f"yurii makes one step per layer, of length 1: steps=1, not {self.steps}")
        if self.interval != 1.0:
            raise OdeumError(f"yurii makes one step per layer, of length 1: interval=1, not {self.interval:g}")

        def sublayer(index: int) -> Method:
            norm = make_norm(place.shape) if self.normed else None
            return Nesterov(norm, first=index == 0 and place.layers == (0,))

        return per_term("yurii", self.method, sublayer, place)
