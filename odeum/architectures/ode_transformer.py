"""ODE Transformer (Li et al. 2022): a Runge–Kutta step of whole layers; its stages may be mixed by learned gates."""

from __future__ import annotations

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import depth_rates, make_norm, place_norms
from odeum.architectures.solvers import schedule, tableaux, with_gradient
from odeum.architectures.terms import attentions, feed_forward
from odeum.errors import OdeumError, choose
from odeum.fields import Increment
from odeum.flow import Flow, Stack
from odeum.integrators import FixedSteps, Gated, Learned, LieTrotter, Mix, RungeKutta
from odeum.settings.architecture import OdeTransformer
from odeum.settings.model import Shape
from odeum.tableaux import Tableau


@build_stack.register(OdeTransformer)
def ode_transformer(settings: OdeTransformer, shape: Shape, cross: bool) -> Stack:
    """The field of each step is what a whole sequential layer adds."""
    known = tableaux()
    if settings.method not in known:
        raise OdeumError(f"ode-transformer needs a Runge–Kutta method, not '{settings.method}'; use {', '.join(known)}")
    tableau = known[settings.method]
    order = schedule(settings, shape.depth)
    flows = []
    for rate in depth_rates(shape, len(set(order))):
        fields = [*attentions(shape, cross), feed_forward(shape)]
        layer = Increment(LieTrotter(), place_norms(fields, "pre", shape, rate))
        step = RungeKutta(tableau, _mix(settings.coefficients, tableau, shape))
        flows.append(Flow(layer, with_gradient(settings.gradient, FixedSteps(step, settings.steps))))
    return Stack(flows, order, make_norm(shape))


def _mix(coefficients: str, tableau: Tableau, shape: Shape) -> Mix | None:
    match choose(coefficients, ("fixed", "learned", "gated"), "coefficients"):
        case "learned":
            return Learned(tableau, start=1.0)
        case "gated":
            return Gated(tableau, shape.width)
    return None
