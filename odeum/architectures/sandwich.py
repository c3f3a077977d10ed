"""Sandwich (Press et al. 2020): attentions first, whole layers, feed-forwards last."""

from __future__ import annotations

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import depth_rates, make_norm, place_norms
from odeum.architectures.solvers import with_gradient
from odeum.architectures.terms import attentions, feed_forward
from odeum.errors import OdeumError
from odeum.fields import Field
from odeum.flow import Flow, Stack
from odeum.integrators import FixedSteps, LieTrotter, RungeKutta
from odeum.models.settings import Shape
from odeum.settings.architecture import Sandwich
from odeum.tableaux import EULER


@build_stack.register(Sandwich)
def sandwich(settings: Sandwich, shape: Shape, cross: bool) -> Stack:
    """k flows of attention, n − k of both, k of the feed-forward."""
    k, n = settings.coefficient, shape.depth
    if not 0 <= k <= n:
        raise OdeumError(f"coefficient={k} of sandwich must lie between 0 and the depth of {n} layers")
    rates = depth_rates(shape, n + k)

    def flow(fields: list[Field], rate: float) -> Flow:
        step = RungeKutta(EULER) if len(fields) == 1 else LieTrotter()
        return Flow(place_norms(fields, "pre", shape, rate), with_gradient(settings.gradient, FixedSteps(step)))

    first = [flow(attentions(shape, cross), rate) for rate in rates[:k]]
    layers = [flow([*attentions(shape, cross), feed_forward(shape)], rate) for rate in rates[k:n]]
    last = [flow([feed_forward(shape)], rate) for rate in rates[n:]]
    return Stack([*first, *layers, *last], norm=make_norm(shape))
