"""From an architecture's dataclass to its stack of layers: one function a class."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import singledispatch

from torch import nn

from odeum.architectures.norms import depth_rates, make_norm
from odeum.architectures.shapes import check_shape
from odeum.architectures.solvers import fixed_solver, schedule
from odeum.errors import OdeumError
from odeum.fields import Field
from odeum.fields.base import projects_anywhere
from odeum.flow import Flow, Stack
from odeum.models.settings import Shape
from odeum.registry.spelling import parse
from odeum.settings.architecture import Architecture, Stepped


def stack(architecture: str | Architecture, shape: Shape, cross: bool = False) -> nn.Module:
    """The stack of layers of an architecture; `cross` adds attention to an encoder's memory."""
    return make_stack(parse(architecture), shape, cross)


def make_stack(settings: Architecture, shape: Shape, cross: bool = False) -> nn.Module:
    """The same for settings that have been read and checked already."""
    check_shape(shape)
    if hasattr(settings, "stack"):
        return _whole(settings, shape, cross)
    if hasattr(settings, "field") and isinstance(settings, Stepped):
        return _stepped(settings, shape, cross)
    return build_stack(settings, shape, cross)


@singledispatch
def build_stack(settings: Architecture, shape: Shape, cross: bool) -> nn.Module:
    """The builder registered for the class of the settings; Odeum's own families register theirs here."""
    raise OdeumError(
        f"{type(settings).__name__} does not say how it is built: it needs a method field(self, shape), as an "
        "odeum.Stepped, or stack(self, shape, cross)"
    )


def _whole(settings: Architecture, shape: Shape, cross: bool) -> nn.Module:
    """A class that makes the whole stack by itself."""
    made = settings.stack(shape, cross)  # ty: ignore[missing-attribute]
    if not isinstance(made, nn.Module):
        raise OdeumError(f"{type(settings).__name__}.stack should return an odeum.Stack, not {type(made).__name__}")
    return made


def _stepped(settings: Stepped, shape: Shape, cross: bool) -> Stack:
    """A class that says what is stepped through; steps, sharing, gradient and stochastic depth are as for our own."""
    who = type(settings).__name__
    make = settings.field  # ty: ignore[missing-attribute]
    takes_cross = "cross" in inspect.signature(make).parameters
    if cross and not takes_cross:
        raise OdeumError(
            f"{who} cannot be a decoder: its field looks at no encoder; write field(self, shape, cross) and, where "
            "cross is True, add cross-attention, as odeum.terms(shape, cross) does"
        )
    order = schedule(settings, shape.depth)
    flows = []
    for rate in depth_rates(shape, len(set(order))):
        layer = replace(shape, stochastic_depth=rate)
        field = make(layer, cross) if takes_cross else make(layer)
        if not isinstance(field, Field):
            raise OdeumError(f"{who}.field should return an odeum.Field, not {type(field).__name__}")
        flows.append(Flow(field, fixed_solver(settings)))
    return Stack(flows, order, None if any(projects_anywhere(flow.field) for flow in flows) else make_norm(shape))
