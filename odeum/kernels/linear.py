"""Linear layers whose matrix products, forward and backward, use the faster backend (`kernels/matmul.py`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from odeum.kernels.autograd import gradients_of, more_than_a_gradient, plain_autograd
from odeum.kernels.matmul import MatmulBackend, OneDnnBackend, linear_backend, transposed_times

reference = nn.functional.linear
"""x Wᵀ + b by torch"""

LEAST_MAP = 1 << 22
"""multiply–adds below which a node of our own costs more than it saves"""


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """Compute module(x); an `nn.Linear` without hooks uses the faster matmul backend."""
    if type(module) is nn.Linear and _faster(x, module.weight, module.bias) and without_hooks(module):
        return _apply(x, module.weight, module.bias)
    return module(x)


def linear_map(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x Wᵀ + b with the faster matmul backend."""
    return _apply(x, weight, bias) if _faster(x, weight, bias) else reference(x, weight, bias)


def _faster(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN is faster than torch's own choice here, and may be used."""
    if type(x) is not Tensor or not plain_autograd():  # first: what is traced has no size to ask for
        return False
    return x.numel() * weight.shape[0] >= LEAST_MAP and linear_backend(x, weight, bias) is OneDnnBackend


def _apply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not torch.is_grad_enabled():
        return OneDnnBackend.linear(x, weight, bias)
    return fill(OneDnnBackend, _Linear.apply(x, weight, bias), x, weight, bias)


def without_hooks(*modules: nn.Module) -> bool:
    """Whether these are unmodified `nn.Linear` modules without hooks, adapters or parametrizations."""
    return not nn.modules.module._has_any_global_hook() and all(map(_untouched, modules))


def _untouched(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    weights = module._parameters.values()
    return (
        type(module) is nn.Linear
        and not any(hooks)
        and len(weights) == 2  # less where they are made of others: a parametrization
        and all(weight is None or _dense(weight) for weight in weights)
        and "forward" not in module.__dict__
    )


def _dense(weight: Tensor) -> bool:
    return type(weight) is nn.Parameter and weight.layout is torch.strided


def fill(by: type[MatmulBackend], room: Tensor, x: Tensor, weight: Any, bias: Any) -> Tensor:
    """Put x Wᵀ + b where a node has given room for it.

    It is made after the node, not in it: when an evaluation is made again for its gradient, it ends as soon as all is
    there that the gradient needs, and so before its last product.
    """
    with torch.no_grad():
        rows, there = (y.reshape(-1, y.shape[-1]) for y in (x, room))
        made = by.linear(rows, weight, bias, there)
        if made is not there:
            room.data = made.view_as(room)
    return room


class _Linear(torch.autograd.Function):
    """Gives room for x Wᵀ + b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        return x.new_empty(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        (grad,) = grads
        if more_than_a_gradient(grad):
            return gradients_of(reference, (x, weight, bias), ctx.needs_input_grad, grad)
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows, out = (y.reshape(-1, y.shape[-1]) for y in (x, grad))
        return (
            OneDnnBackend.times(out, weight).view_as(x) if of_x else None,
            transposed_times(OneDnnBackend, out, rows) if of_weight else None,
            out.sum(dim=0) if of_bias else None,
        )
