"""A row of layers: attention and feed-forward under a method, shared as the schedule says."""

from __future__ import annotations

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import depth_rates, final_norm, place_norms
from odeum.architectures.solvers import Place, fixed_solver, make_method, make_step, schedule
from odeum.architectures.terms import attentions, halved, make_field
from odeum.fields import Field, Scaled
from odeum.fields.algebra import by_name
from odeum.flow import Flow, Stack
from odeum.integrators import Strang
from odeum.settings.architecture import Layered
from odeum.settings.model import Shape


@build_stack.register(Layered)
def layered(settings: Layered, shape: Shape, cross: bool) -> Stack:
    """Sequential, parallel, Runge–Kutta, Strang and Macaron layers, and those whose methods remember."""
    order = schedule(settings, shape.depth)
    flows = []
    for index, rate in enumerate(depth_rates(shape, len(set(order)))):
        field = place_norms(_branches(settings, shape, cross), settings.norm, shape, rate)
        layers = tuple(layer for layer, own in enumerate(order) if own == index)
        flows.append(Flow(field, fixed_solver(settings, make_step(settings, Place(field, layers, shape)))))
    return Stack(flows, order, final_norm(settings.norm, shape))


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
