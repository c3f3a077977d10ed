"""A neural ODE: one set of weights, integrated over the whole depth by an adaptive solver."""

from __future__ import annotations

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import make_norm
from odeum.architectures.over_time import field_over_time
from odeum.architectures.solvers import tableaux, with_gradient
from odeum.architectures.terms import attentions, feed_forward
from odeum.errors import choose
from odeum.fields import Field
from odeum.fields.algebra import by_name
from odeum.flow import Flow, Stack
from odeum.integrators import Adaptive, AdaptivePerSample
from odeum.models.settings import Shape
from odeum.settings.architecture import Continuous


@build_stack.register(Continuous)
def continuous(settings: Continuous, shape: Shape, cross: bool) -> Stack:
    """One flow on [0, depth]."""
    pairs = tableaux(embedded=True)
    tableau = pairs[choose(settings.method, pairs, "method of continuous")]

    def branches() -> dict[str, Field]:
        return by_name(*attentions(shape, cross), feed_forward(shape))

    field = field_over_time(settings, branches, "pre", shape)
    kind = AdaptivePerSample if settings.adapt == "sample" else Adaptive
    solver = with_gradient(settings.gradient, kind(tableau, settings.rtol, settings.atol, settings.evaluations))
    return Stack([Flow(field, solver, 0.0, float(shape.depth))], norm=make_norm(shape))
