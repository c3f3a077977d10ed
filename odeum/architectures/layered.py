"""A row of layers: attention and feed-forward under a method, shared as the schedule says."""

from __future__ import annotations

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import depth_rates, final_norm, make_norm, place_norms
from odeum.architectures.over_time import check_options, field_over_time
from odeum.architectures.solvers import Place, fixed_solver, make_method, make_step, schedule
from odeum.architectures.terms import attentions, halved, make_field
from odeum.errors import OdeumError
from odeum.fields import Field, Scaled, Sum
from odeum.fields.algebra import Paced, by_name
from odeum.flow import Flow, Stack
from odeum.integrators import Dense, Strang
from odeum.models.settings import Shape
from odeum.settings.architecture import Layered


@build_stack.register(Layered)
def layered(settings: Layered, shape: Shape, cross: bool) -> Stack:
    """Sequential, parallel, Runge–Kutta, Strang and Macaron layers, and those whose methods remember."""
    check_options(settings)
    if settings.weights != "constant":
        return _over_time(settings, shape, cross)
    order = schedule(settings, shape.depth)
    return Stack(layered_flows(settings, shape, cross, order), order, final_norm(settings.norm, shape))


def layered_flows(settings: Layered, shape: Shape, cross: bool, order: tuple[int, ...]) -> list[Flow]:
    """One for each layer with weights of its own."""
    flows = []
    for index, rate in enumerate(depth_rates(shape, len(set(order)))):
        field = _paced(settings, place_norms(_branches(settings, shape, cross), settings.norm, shape, rate))
        layers = tuple(layer for layer, own in enumerate(order) if own == index)
        step = make_step(settings, Place(field, layers, shape))
        solver = fixed_solver(settings, step, settings.interval)
        flows.append(Flow(field, solver, 0.0, settings.interval, layer=settings.interval))
    return flows


def _paced(settings: Layered, field: Field) -> Field:
    """With a learned time for each term."""
    if settings.pace == "fixed":
        return field
    if isinstance(field, Sum):
        return Sum(**{name: Paced(term) for name, term in field.fields.items()})  # ty: ignore
    return Paced(field)


def _over_time(settings: Layered, shape: Shape, cross: bool) -> Stack:
    """One flow through all layers, whose weights depend on time."""
    for option in ("independent", "schedule"):
        if (value := getattr(settings, option)) is not None:
            raise OdeumError(
                f"weights={settings.weights} is one field for all layers, which {option}={value} contradicts; say how "
                "many knots instead, or leave it out"
            )
    if settings.interval != 1.0:
        raise OdeumError(
            f"weights={settings.weights} go over all layers, each of length 1; leave out interval={settings.interval:g}"
        )
    field = _paced(settings, field_over_time(settings, lambda: _branches(settings, shape, cross), settings.norm, shape))
    step = make_step(settings, Place(field, tuple(range(shape.depth)), shape))
    if isinstance(step, Dense) or any(True for _ in step.parameters()):
        raise OdeumError(
            f"{step.history or settings.method} has coefficients for each layer, but weights={settings.weights} is one "
            "field for any number of them; use a method without learned coefficients"
        )
    return Stack([Flow(field, fixed_solver(settings, step), 0.0, float(shape.depth))], norm=make_norm(shape))


def _branches(settings: Layered, shape: Shape, cross: bool) -> dict[str, Field]:
    middle = attentions(shape, cross, settings.attention)
    if settings.form == "macaron":
        # The published Macaron halves each feed-forward, so that parameters and work stay the same.
        first, last = (Scaled(0.5, make_field(settings.feedforward, halved(shape))) for _ in range(2))
        return {"feedforward_in": first, **by_name(*middle), "feedforward_out": last}
    feed = make_field(settings.feedforward, shape)
    if isinstance(make_method(settings.method), Strang):
        # The feed-forward takes the two half steps, attention the whole one: tied Macaron.
        return by_name(feed, *middle)
    return by_name(*middle, feed)
