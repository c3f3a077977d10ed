"""Options that architectures share, and the row of layers that every stepped architecture is built as."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from odeum.errors import OdeumError, choose
from odeum.registry.names import FIELDS, METHODS, Architecture
from odeum.registry.options import COUNT, Range
from odeum.schedules import SCHEDULES, explicit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from odeum.fields.base import Field
    from odeum.flow import Flow
    from odeum.integrators.base import Method
    from odeum.models.settings import Shape

MethodName = Annotated[str, METHODS]
FieldName = Annotated[str, FIELDS]
Gradient = Literal["backprop", "checkpointed", "adjoint", "reversible"]


class Place(NamedTuple):
    """A place in the stack: the field that a method integrates, its depths and its step sizes."""

    field: Field
    layers: tuple[int, ...]
    """depths at which the weights of this layer act: several if layers share weights"""
    shape: Shape


@dataclass(frozen=True)
class Stepped(Architecture):
    """Layers of a few steps each: options for the method, the number of steps, shared weights and the gradient.

    A subclass defines `field(self, shape)`, or `field(self, shape, cross)` if it can attend to an encoder's memory. It
    may define `method_for(self, place)` for a method with options of its own.
    """

    method: MethodName = "lie-trotter"
    """integration method of a layer"""
    steps: Annotated[int, COUNT] = 1
    """steps per layer; can be changed after training"""
    independent: Annotated[int | None, COUNT] = None
    """number of layers with their own weights (default: all)"""
    sharing: Literal["sequence", "cycle"] = "sequence"
    """neighbours share (0 0 1 1) or the whole stack repeats (0 1 0 1)"""
    schedule: str | None = None
    """which layer's weights act at each depth, as in 0-5/4-5/6-10 (default: by independent and sharing)"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the steps"""

    @property
    def _duration(self) -> float:
        """The length of a layer in time."""
        return 1.0

    def field(self, shape: Shape, cross: bool = False) -> Field:
        """Returns what a layer steps through; called once for each layer with weights of its own.

        The shape's `stochastic_depth` is the rate of this layer.
        """
        raise OdeumError(
            f"{type(self).__name__} does not define how it is built; define field(self, shape), as for an "
            "odeum.Stepped, or stack(self, shape, cross)"
        )

    def method_for(self, place: Place) -> Method:
        """Returns the method of one layer, or of layers that share weights; by default the one of that name."""
        from odeum.architectures.parts import make_method

        return make_method(self.method)

    def stack(self, shape: Shape, cross: bool = False) -> nn.Module:
        """Builds the layers in the order of the schedule."""
        from odeum.flow import Stack

        order = self._layer_order(shape.depth)
        flows = self._flows(shape, cross, order)
        return Stack(flows, order, self._final_norm(shape, flows))

    def _layer_order(self, depth: int, independent: int | None = None) -> tuple[int, ...]:
        """Returns the index of the weights that act at each depth."""
        if self.schedule is not None:
            if self.independent is not None:
                raise OdeumError(
                    f"schedule={self.schedule} and independent={self.independent} both define which layers share "
                    "weights; give one of them"
                )
            return explicit(self.schedule, depth)
        share = SCHEDULES[choose(self.sharing, SCHEDULES, "sharing")]
        return share(depth, independent or self.independent or depth)

    def _flows(self, shape: Shape, cross: bool, order: tuple[int, ...]) -> list[Flow]:
        """Builds one flow for each layer with weights of its own."""
        from odeum.architectures.parts import depth_rates, fixed_solver
        from odeum.flow import Flow

        flows = []
        for index, rate in enumerate(depth_rates(shape, len(set(order)))):
            field = self._checked_field(replace(shape, stochastic_depth=rate), cross)
            layers = tuple(layer for layer, weights in enumerate(order) if weights == index)
            solver = fixed_solver(self, self.method_for(Place(field, layers, shape)), self._duration)
            flows.append(Flow(field, solver, 0.0, self._duration, layer=self._duration))
        return flows

    def _final_norm(self, shape: Shape, flows: Sequence[Flow]) -> nn.Module | None:
        """Returns the norm after the last layer: none if steps end in a norm."""
        from odeum.architectures.parts import make_norm
        from odeum.fields.base import projects_anywhere

        return None if any(projects_anywhere(flow.field) for flow in flows) else make_norm(shape)

    def _checked_field(self, shape: Shape, cross: bool) -> Field:
        from odeum.fields.base import Field

        name = type(self).__name__
        takes_cross = "cross" in inspect.signature(self.field).parameters
        if cross and not takes_cross:
            raise OdeumError(
                f"{name} cannot be a decoder: its field does not read the encoder; define field(self, shape, cross) "
                "and, "
                "where cross is True, add cross-attention, as odeum.terms(shape, cross) does"
            )
        field = self.field(shape, cross) if takes_cross else self.field(shape)
        if not isinstance(field, Field):
            raise OdeumError(f"{name}.field should return an odeum.Field, not {type(field).__name__}")
        return field


@dataclass(frozen=True)
class OverTime(Architecture):
    """Options for weights that depend on time: one field for all layers, with weights θ(t)."""

    weights: Literal["constant", "knots", "legendre", "hyper", "adaln"] = "constant"
    """constant per layer; or, over all layers, interpolated between knots in time, a sum of Legendre polynomials of the
    time, given by a hypernetwork of it (hyper), or in the norms alone (adaln)"""
    knots: Annotated[int | None, COUNT] = None
    """for weights=knots: number of knots (default: 4, or the number of layers if smaller)"""
    between: Literal["constant", "linear", "cubic"] | None = None
    """for weights=knots: interpolation between knots (default: linear)"""
    degree: Annotated[int | None, Range(0, 64)] = None
    """for weights=legendre: degree of the polynomials, whose higher terms start at zero (default: 3, or one below the
    number of layers if smaller)"""
    rank: Annotated[int | None, Range(1, 1000)] = None
    """for weights=hyper: number of matrices that the network mixes into each (default: 4)"""
