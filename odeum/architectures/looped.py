"""Depth that loops: prelude, core and coda of ordinary layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odeum.architectures.builders import build_stack
from odeum.architectures.layered import layered_flows
from odeum.architectures.norms import final_norm, make_norm
from odeum.architectures.over_time import check_options
from odeum.architectures.solvers import schedule
from odeum.errors import OdeumError, choose
from odeum.looping import AddedInjection, ConcatInjection, Injection, Looped, StableInjection
from odeum.models.settings import Shape
from odeum.settings.looped import LoopedLayers

INJECTIONS: dict[str, Callable[[Shape], Injection]] = {
    "add": lambda shape: AddedInjection(),
    "concat": lambda shape: ConcatInjection(shape.width),
    "stable": lambda shape: StableInjection(shape.width, make_norm(shape)),
    "none": lambda shape: Injection(),
}


@build_stack.register(LoopedLayers)
def looped(settings: LoopedLayers, shape: Shape, cross: bool) -> Looped:
    """The layers of a plain stack, some of which act again."""
    check_options(settings)
    if settings.weights != "constant":
        raise OdeumError(
            f"looped repeats layers with weights of their own, but weights={settings.weights} is one field for all; "
            "leave weights out"
        )
    if settings.gradient == "reversible":
        raise OdeumError(
            "looped mixes its input in between rounds, which no step back undoes; use gradient=checkpointed"
        )
    few = min(2, shape.depth // 4)
    prelude, coda = (few if count is None else count for count in (settings.prelude, settings.coda))
    size = shape.depth - prelude - coda if settings.core is None else settings.core
    if size < 1:
        raise OdeumError(
            f"prelude={prelude} and coda={coda} leave no layer of the depth of {shape.depth} to the core; "
            "give less of them, or core"
        )
    shape = replace(shape, depth=prelude + size + coda)
    order = schedule(settings, shape.depth)
    return Looped(
        layered_flows(settings, shape, cross, order),
        order,
        range(prelude, prelude + size),
        settings.repeats,
        INJECTIONS[choose(settings.inject, INJECTIONS, "inject")](shape),
        final_norm(settings.norm, shape),
        random=settings.random,
        through=settings.through,
        exit=settings.exit,
    )
