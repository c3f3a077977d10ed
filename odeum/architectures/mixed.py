"""Mixed stacks: layers of several architectures in a row.

A mixed stack is as deep as the model. Time and stochastic depth continue through the parts; the state of a multistep
method ends with its part; the final norm is that of the last part.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from odeum.architectures.build import make_stack
from odeum.errors import OdeumError
from odeum.models.settings import Segment, Shape
from odeum.registry.names import Mixed
from odeum.registry.spelling import label

if TYPE_CHECKING:
    from odeum.flow import Stack


def mixed_stack(settings: Mixed, shape: Shape, cross: bool) -> Stack:
    """Builds the layers of each part after those of the one before; the history of a method ends with its part."""
    from odeum.fields.bases import Basis
    from odeum.fields.hypernetwork import AdaptiveNorm
    from odeum.flow import Stack

    total = sum(count for _, count in settings.parts)
    if total != shape.depth:
        raise OdeumError(f"{label(settings)} is {total} layers, but the depth is {shape.depth}; they must be equal")
    _refuse_equal_seeds(settings)
    flows, order, cuts, layers = [], [], [], 0
    norm = None
    for part, count in settings.parts:
        inner = make_stack(part, _segment(shape, layers, count), cross)
        if type(inner) is not Stack:
            raise OdeumError(f"{label(part)} cannot be a part of a mixed stack: its layers are not a plain sequence")
        for module in inner.modules():
            if isinstance(module, Basis | AdaptiveNorm):  # time runs on, and weights over time begin with their part
                module.t0, module.t1 = module.t0 + layers, module.t1 + layers
        cuts += [len(order), *(len(order) + cut for cut in inner.cuts)]
        order += [len(flows) + index for index in inner.schedule]
        flows += inner.flows
        norm = inner.norm  # of the last part: where it ends, the stack ends
        layers += count
    return Stack(flows, order, norm, cuts=cuts)


def _segment(shape: Shape, first: int, count: int) -> Segment:
    """Returns the shape of `count` layers from `first` on."""
    last = max(1, shape.depth - 1)
    values: dict[str, Any] = {field.name: getattr(shape, field.name) for field in fields(Shape)}
    return replace(Segment(**values), depth=count, begin=first / last, end=(first + count - 1) / last)


def _refuse_equal_seeds(settings: Mixed) -> None:
    """Raises `OdeumError` if parts share a seed: their random matrices would be equal."""
    seeds = [seed for part, _ in settings.parts if (seed := getattr(part, "seed", None)) is not None]
    if len(set(seeds)) < len(seeds):
        raise OdeumError(f"the parts of {label(settings)} have random matrices of one seed; give each another seed")
