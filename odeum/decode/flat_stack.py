"""A stack as decoding runs it: its layers with flat fields, where nothing listens that a short cut would pass by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from odeum.decode.flat_fields import FlatField, Maps, flat_map, is_flat
from odeum.fields.base import Context, fast_modules
from odeum.fields.transevolve.block import Anchored
from odeum.flow import Flow, Stack
from odeum.integrators import FixedSteps, LieTrotter, RungeKutta
from odeum.kernels.autograd import plain_autograd
from odeum.looping import Looped

Pass = Callable[[Tensor, Context], Tensor]
FlatLayer = Callable[[Tensor, Context, float], Tensor]
_training = attrgetter("training")


class FlatStack:
    """Runs a stack on one new position a row, under caches; any other pass is the stack's own.

    The caches are those that the stack itself fills, so that a pass may go either way at any token. Whoever gives a
    part a hook, or training mode, while a text is being made is heard from the next token on. Where nobody can, since
    all passes are made in one call and nothing in the `whole` model runs code of somebody's own, one look is enough,
    and linear maps may be computed by `maps` that take their weights to stay what they are.
    """

    def __init__(self, stack: nn.Module, whole: nn.Module | None = None, maps: Maps = flat_map) -> None:
        self.stack, self.maps = stack, maps
        everything = [] if whole is None else fast_modules(whole)
        known = whole is not None and is_unmodified(everything)
        self.alone, self.looked = known and not any(_all_hooks(everything)), False
        self._look(known)

    def _look(self, known: bool = False) -> None:
        self.parts = fast_modules(self.stack)
        self.hooks = _all_hooks(self.parts)
        maps = self.maps if self.alone else flat_map
        self.run = _flat_stack(self.stack, maps) if known or is_unmodified(self.parts) else None

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        if not self.alone and fast_modules(self.stack) != self.parts:  # a module has been replaced since the last token
            self._look()
        if self.run is None or x.shape[1] != 1 or context.own.cache is None or not self.has_no_hooks():
            return self.stack(x, context)
        return self.run(x, context)

    def has_no_hooks(self) -> bool:
        """Whether at this moment nobody would miss the call of a module, and no gradient is wanted."""
        if torch.is_grad_enabled() or not plain_autograd() or nn.modules.module._has_any_global_hook():
            return False
        if not (self.alone and self.looked):
            self.looked = not any(self.hooks) and not any(map(_training, self.parts))
        return self.looked


def is_unmodified(parts: Iterable[nn.Module]) -> bool:
    """Whether every part is one of ours or torch's as it was made: not wrapped, compiled, patched or sharded."""
    return all(
        type(part).__module__.partition(".")[0] in ("odeum", "torch")
        and "forward" not in part.__dict__
        and part._compiled_call_impl is None
        and all(type(weight) is nn.Parameter for weight in part._parameters.values() if weight is not None)
        and all(type(buffer) is Tensor for buffer in part._buffers.values() if buffer is not None)
        for part in parts
    )


def _all_hooks(parts: Iterable[nn.Module]) -> list[Any]:
    """Where the hooks of every part stand."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [part.__dict__[kind] for part in parts for kind in kinds]


def _flat_stack(stack: nn.Module, maps: Maps) -> Pass | None:
    """The layers one after the other; None for a kind of stack that walks in a way of its own."""
    if not isinstance(stack, Stack) or type(stack) not in (Stack, Looped):
        return None
    flats = {flow: _flat_layer(flow, maps) for flow in stack.flows}
    norm = (lambda x: x) if stack.norm is None else maps(stack.norm)
    if isinstance(stack, Looped):

        def call(flow: nn.Module, x: Tensor, context: Context, time: float) -> Tensor:
            return flats[flow](x, context, time)

        def looping(x: Tensor, context: Context) -> Tensor:
            for state, _, _ in stack._walk(x, context, leave=True, call=call):
                x = state
            return norm(x)

        return looping
    if any(getattr(flow, "stateful_method", None) for flow in flats):

        def carrying(x: Tensor, context: Context) -> Tensor:
            for flow, time, here in stack._carrying(context):
                x = flats[flow](x, here, time)
            return norm(x)

        return carrying
    layers = [(flats[flow], time) for flow, time in stack.timed()]

    def run(x: Tensor, context: Context) -> Tensor:
        for layer, time in layers:
            x = layer(x, context, time)
        return norm(x)

    return run


def _flat_flow(flow: Flow, field: FlatField) -> FlatLayer:
    """Any method over a flat field."""
    return lambda x, context, time: flow.integrate(field, x, context, time)  # ty: ignore[invalid-argument-type]


def _one_step(flow: Flow, field: FlatField) -> FlatLayer | None:
    """A layer that is one Euler step of length one, of the whole field or of one term after the other: nearly all are.

    What any other method needs (divided intervals, stages, masks) takes longer than a small term. None for a layer of
    another kind; one that has become another goes the way of `_flat_flow`, where the cache says what it thinks of it.
    """
    solver, any_method = flow.solver, _flat_flow(flow, field)
    method = getattr(solver, "method", None)
    if type(solver) is not FixedSteps or flow.duration != 1.0 or not is_flat(flow.field):
        return None
    if type(method) is LieTrotter and _is_euler(method.part):
        stages: Any = method.stages(field)
    elif _is_euler(method):
        stages = [(field, 0.0, 1.0)]
    else:
        return None
    if any(share != 1.0 for _, _, share in stages):
        return None
    terms = [(term.evaluate, term.project if term.projects else None, start) for term, start, _ in stages]

    parts, inner = flow._modules, solver._modules  # looked at in each pass, and a module is slow to be asked

    def step(x: Tensor, context: Context, time: float) -> Tensor:
        own, other, noise, carry = context.own.cache, context.other.cache, context.noise, context.carry
        same = parts["solver"] is solver and inner["method"] is method and solver.steps == 1 and solver.moved is None
        # Before the first pass, a flow asks its field whether it knows its past.
        begun = own is not None and own.length and (other is None or other.length)
        if not (same and begun) or noise is not None or carry is not None:
            return any_method(x, context, time)
        own.enter(solver)
        if other is not None:
            other.enter(solver)
        for evaluate, project, start in terms:
            x = x + evaluate(time + start, x, context)
            if project is not None:
                x = project(x)
        return x

    return step


def _is_euler(method: object) -> bool:
    return type(method) is RungeKutta and method.single


def _flat_layer(layer: nn.Module, maps: Maps) -> FlatLayer:
    if type(layer) is Flow:
        field = FlatField(layer.field, maps)
        return _one_step(layer, field) or _flat_flow(layer, field)
    body = _flat_stack(layer.body, maps) if type(layer) is Anchored and isinstance(layer.body, nn.Module) else None
    if body is None:
        return layer
    block: Any = layer
    norm = (lambda x: x) if block.norm is None else maps(block.norm)
    return lambda x, context, time: norm(body(x, block.anchor(x, context)))
