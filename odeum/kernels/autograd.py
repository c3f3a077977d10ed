"""Checks of autograd's state, and helpers for custom autograd functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from odeum.errors import OdeumError


def plain_autograd() -> bool:
    """Whether at most ordinary autograd is active: no `torch.func`, forward mode, tracer or compiler."""
    return not torch.compiler.is_compiling() and not torch.jit.is_tracing() and not transformed() and not in_make_fx()


def in_make_fx() -> bool:
    """Whether `make_fx` records operations, which may then neither write to an output (`out=`) nor read a number."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def readable(x: Tensor) -> bool:
    """Whether x can be read without waiting for a device: it is on a CPU and not a fake tensor of a tracer."""
    if torch.compiler.is_compiling() or in_make_fx() or in_vmap():
        return False
    return x.device.type == "cpu" and type(x) in (Tensor, nn.Parameter)


def transformed() -> bool:
    """Whether `torch.func` (grad, vmap, jvp …) or forward mode is active; a compiler traces them itself."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def in_vmap() -> bool:
    """Whether `torch.func.vmap` is active, under which no number can be read; a compiler traces it itself."""
    if torch.compiler.is_compiling():
        return False
    levels = torch._C._functorch.get_interpreter_stack() or []
    return any(level.key() == torch._C._functorch.TransformType.Vmap for level in levels)


def needs_plain_gradients(grad: Tensor) -> bool:
    """Asked in a backward pass: whether its result will be differentiated (create_graph) or is computed in batches."""
    if torch.compiler.is_compiling():
        return False
    return torch.is_grad_enabled() or is_batched(grad)


def is_batched(grad: Tensor) -> bool:
    """Whether gradients are batched: vmap, `is_grads_batched`."""
    return torch._C._are_functorch_transforms_active() or torch._C._functorch.is_legacy_batchedtensor(grad)


def gradients_of(
    formula: Callable[..., Tensor], inputs: Sequence[Any], needed: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of formula(*inputs), made of plain operations, which can be differentiated in their turn.

    They are taken by fresh views. An input may have come from another one (a weight that acts twice is in the history
    of the state that it acts on), and the gradient by it must stop here instead of running through that history.
    """
    with torch.enable_grad():
        fresh = [x.view_as(x) if isinstance(x, Tensor) else x for x in inputs]
        out = formula(*fresh)
    wanted = [x for x, need in zip(fresh, needed, strict=True) if need]
    results = iter(torch.autograd.grad(out, wanted, grad, create_graph=torch.is_grad_enabled(), allow_unused=True))
    return tuple(next(results) if need else None for need in needed)


def differentiable_once(sentence: str, gradients: Sequence[Tensor | None], inputs: Sequence[Any]) -> list[Any]:
    """Gradients of these inputs, which raise an error when they are differentiated again by any of the inputs."""
    if not torch.is_grad_enabled():
        return list(gradients)
    tensors = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    return [None if g is None else _Once.apply(sentence, g, *tensors) for g in gradients]


class _Once(torch.autograd.Function):
    """The identity on its first tensor. It has an edge to each tensor, or autograd.grad would pass it by in silence."""

    @staticmethod
    def forward(ctx: Any, sentence: str, gradient: Tensor, *inputs: Tensor) -> Tensor:
        ctx.sentence = sentence
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise OdeumError(ctx.sentence)


def leaves_of(out: Tensor) -> Iterator[Tensor]:
    """The tensors that `out` is computed from and that a gradient would be given to."""
    seen: set[Any] = set()
    nodes = [out.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            yield variable
        nodes.extend(after for after, _ in node.next_functions)
