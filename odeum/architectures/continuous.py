"""A neural ODE: one set of weights, integrated over the whole depth by an adaptive solver."""

from __future__ import annotations

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import make_norm, place_norms
from odeum.architectures.solvers import tableaux, with_gradient
from odeum.architectures.terms import attentions, feed_forward
from odeum.errors import choose
from odeum.flow import Flow, Stack
from odeum.integrators import Adaptive
from odeum.settings.architecture import Continuous
from odeum.settings.model import Shape


@build_stack.register(Continuous)
def continuous(settings: Continuous, shape: Shape, cross: bool) -> Stack:
    """One flow on [0, depth]."""
    pairs = tableaux(embedded=True)
    tableau = pairs[choose(settings.method, pairs, "method of continuous")]
    field = place_norms([*attentions(shape, cross), feed_forward(shape)], "pre", shape, shape.stochastic_depth)
    solver = with_gradient(settings.gradient, Adaptive(tableau, settings.rtol, settings.atol))
    return Stack([Flow(field, solver, 0.0, float(shape.depth))], norm=make_norm(shape))
