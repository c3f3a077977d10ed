"""ODE Transformer (Li et al. 2022): a Runge–Kutta step of whole layers; its stages may be mixed by learned gates.

PCformer (Li et al. 2024) predicts by such a step and corrects by an average of all states so far.
"""

from __future__ import annotations

from collections.abc import Callable

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import depth_rates, make_norm, place_norms
from odeum.architectures.solvers import fixed_solver, schedule, tableaux
from odeum.architectures.terms import attentions, feed_forward
from odeum.errors import OdeumError, choose
from odeum.fields import Increment
from odeum.flow import Flow, Stack
from odeum.integrators import Gated, Learned, LieTrotter, Method, Mix, RungeKutta
from odeum.integrators.pcformer import AveragingCorrector
from odeum.models.settings import Shape
from odeum.settings.architecture import OdeTransformer, Stepped
from odeum.settings.remembering import AveragedCorrector
from odeum.tableaux import Tableau


@build_stack.register(OdeTransformer)
def ode_transformer(settings: OdeTransformer, shape: Shape, cross: bool) -> Stack:
    """The field of each step is what a whole sequential layer adds."""
    tableau = _tableau("ode-transformer", settings.method)
    return _whole_layers(
        settings, shape, cross, lambda layers: RungeKutta(tableau, _mix(settings.coefficients, tableau, shape))
    )


@build_stack.register(AveragedCorrector)
def pcformer(settings: AveragedCorrector, shape: Shape, cross: bool) -> Stack:
    """The same field, predicted and corrected."""
    tableau = _tableau("pcformer", settings.method)
    if settings.steps != 1:
        raise OdeumError(f"pcformer averages the ends of layers of one step: steps=1, not {settings.steps}")
    return _whole_layers(
        settings, shape, cross, lambda layers: AveragingCorrector(tableau, layers, lambda: make_norm(shape))
    )


def _tableau(who: str, method: str) -> Tableau:
    known = tableaux()
    if method not in known:
        raise OdeumError(f"{who} needs a Runge–Kutta method, not '{method}'; use {', '.join(known)}")
    return known[method]


def _whole_layers(settings: Stepped, shape: Shape, cross: bool, step: Callable[[tuple[int, ...]], Method]) -> Stack:
    """Steps, made for the places at which each acts, whose field is what a whole layer adds."""
    order = schedule(settings, shape.depth)
    flows = []
    for index, rate in enumerate(depth_rates(shape, len(set(order)))):
        fields = [*attentions(shape, cross), feed_forward(shape)]
        layer = Increment(LieTrotter(), place_norms(fields, "pre", shape, rate))
        layers = tuple(place for place, own in enumerate(order) if own == index)
        flows.append(Flow(layer, fixed_solver(settings, step(layers))))
    return Stack(flows, order, make_norm(shape))


def _mix(coefficients: str, tableau: Tableau, shape: Shape) -> Mix | None:
    match choose(coefficients, ("fixed", "learned", "gated"), "coefficients"):
        case "learned":
            return Learned(tableau, start=1.0)
        case "gated":
            return Gated(tableau, shape.width)
    return None
