"""A stack as decoding runs it: its layers with flat fields, where nothing listens that a short cut would pass by."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from odeum.decode.flat_fields import FlatField, flat_map, is_flat
from odeum.fields.base import Context
from odeum.fields.derivatives import plain_autograd
from odeum.fields.transevolve.block import Anchored
from odeum.flow import Flow, Stack
from odeum.integrators import FixedSteps, LieTrotter, RungeKutta

Pass = Callable[[Tensor, Context], Tensor]
FlatLayer = Callable[[Tensor, Context, float], Tensor]
_training = attrgetter("training")


class FlatStack:
    """Runs a stack on one new position a row, under caches; any other pass is the stack's own.

    The caches are those that the stack itself fills, so that a pass may go either way at any token. Whoever gives a
    part a hook, or training mode, while a text is being made is heard from the next token on.
    """

    def __init__(self, stack: nn.Module) -> None:
        self.stack = stack
        self.parts = list(stack.modules())
        self.hooks = [hooks for part in self.parts for hooks in _hooks(part)]
        self.run = _flat_stack(stack) if as_made(stack) else None

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        if self.run is None or x.shape[1] != 1 or context.own.cache is None or not self.unheard():
            return self.stack(x, context)
        return self.run(x, context)

    def unheard(self) -> bool:
        """Whether at this moment nobody would miss the call of a module, and no gradient is wanted."""
        quiet = not any(self.hooks) and not nn.modules.module._has_any_global_hook() and plain_autograd()
        return quiet and not torch.is_grad_enabled() and not any(map(_training, self.parts))


def as_made(module: nn.Module) -> bool:
    """Whether every part is one of ours or torch's as it was made: not wrapped, compiled, patched or sharded."""
    return all(
        type(part).__module__.partition(".")[0] in ("odeum", "torch")
        and "forward" not in part.__dict__
        and part._compiled_call_impl is None
        and all(type(weight) is nn.Parameter for weight in part._parameters.values() if weight is not None)
        and all(type(buffer) is Tensor for buffer in part._buffers.values() if buffer is not None)
        for part in module.modules()
    )


def _hooks(part: nn.Module) -> tuple[Any, ...]:
    return part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks


def _flat_stack(stack: nn.Module) -> Pass | None:
    """The layers one after the other; None for a kind of stack that walks in a way of its own."""
    if type(stack) is not Stack:
        return None
    flats = {flow: _flat_layer(flow) for flow in stack.flows}
    norm = (lambda x: x) if stack.norm is None else flat_map(stack.norm)
    if any(getattr(flow, "remembering", None) for flow in flats):

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


def _flat_flow(flow: Flow) -> FlatLayer:
    """Any method over a flat field."""
    field = FlatField(flow.field)
    return lambda x, context, time: flow.under(field, x, context, time)  # ty: ignore[invalid-argument-type]


def _one_step(flow: Flow) -> FlatLayer | None:
    """A layer that is one Euler step of length one, of the whole field or of one term after the other: nearly all are.

    What any other method needs (divided intervals, stages, masks) takes longer than a small term. None for a layer of
    another kind; one that has become another goes the way of `_flat_flow`, where the cache says what it thinks of it.
    """
    solver, field, any_method = flow.solver, FlatField(flow.field), _flat_flow(flow)
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

    def step(x: Tensor, context: Context, time: float) -> Tensor:
        caches = [source.cache for source in (context.own, context.other) if source.cache is not None]
        same = flow.solver is solver and solver.method is method and solver.steps == 1 and solver.moved is None
        begun = all(cache.length for cache in caches)  # before, a flow asks its field whether it knows its past
        if not (same and begun) or context.noise is not None or context.carry is not None:
            return any_method(x, context, time)
        for cache in caches:
            cache.enter(solver)
        for evaluate, project, start in terms:
            x = x + evaluate(time + start, x, context)
            if project is not None:
                x = project(x)
        return x

    return step


def _is_euler(method: object) -> bool:
    return type(method) is RungeKutta and method.single


def _flat_layer(layer: nn.Module) -> FlatLayer:
    if type(layer) is Flow:
        return _one_step(layer) or _flat_flow(layer)
    body = _flat_stack(layer.body) if type(layer) is Anchored and isinstance(layer.body, nn.Module) else None
    if body is None:
        return layer
    block: Any = layer
    norm = (lambda x: x) if block.norm is None else flat_map(block.norm)
    return lambda x, context, time: norm(body(x, block.anchor(x, context)))
