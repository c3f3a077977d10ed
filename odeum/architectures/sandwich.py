"""Sandwich: attentions first, whole layers, feed-forwards last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.stepped import Gradient
from odeum.errors import OdeumError
from odeum.registry.names import Architecture
from odeum.registry.options import NOT_NEGATIVE
from odeum.tableaux import EULER

if TYPE_CHECKING:
    from torch import nn

    from odeum.fields.base import Field
    from odeum.flow import Flow
    from odeum.models.settings import Shape


@register.architecture("sandwich", reference="Press et al. 2020, arXiv 1911.03864", group="one step per layer")
@dataclass(frozen=True)
class Sandwich(Architecture):
    """Attentions first, feed-forwards last."""

    coefficient: Annotated[int, NOT_NEGATIVE] = 2
    """k, the number of layers whose attention and feed-forward are separated"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the steps"""

    def stack(self, shape: Shape, cross: bool = False) -> nn.Module:
        """Builds k flows of attention, n − k of both, k of the feed-forward."""
        from odeum.architectures.parts import (
            attentions,
            depth_rates,
            feed_forward,
            make_norm,
            place_norms,
            with_gradient,
        )
        from odeum.flow import Flow, Stack
        from odeum.integrators import FixedSteps, LieTrotter, RungeKutta

        k, n = self.coefficient, shape.depth
        if not 0 <= k <= n:
            raise OdeumError(f"coefficient={k} of sandwich must lie between 0 and the depth of {n} layers")
        rates = depth_rates(shape, n + k)

        def flow(fields: list[Field], rate: float) -> Flow:
            step = RungeKutta(EULER) if len(fields) == 1 else LieTrotter()
            return Flow(place_norms(fields, "pre", shape, rate), with_gradient(self.gradient, FixedSteps(step)))

        first = [flow(attentions(shape, cross), rate) for rate in rates[:k]]
        layers = [flow([*attentions(shape, cross), feed_forward(shape)], rate) for rate in rates[k:n]]
        last = [flow([feed_forward(shape)], rate) for rate in rates[n:]]
        return Stack([*first, *layers, *last], norm=make_norm(shape))
