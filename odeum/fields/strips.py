"""W₂ relu(W₁ x + b₁) + b₂ as one node of the graph, whose gradient is made in strips of rows.

The gradient of the hidden features is the widest tensor of a training step, and on a CPU most of what it costs beside
its products is the way to memory and back. Here it is as wide but only a strip long, and stays in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from odeum.fields.derivatives import gradients_of, more_than_a_gradient, plain_autograd

STRIP = 1024
"""rows whose hidden gradient exists at a time"""


def may_overwrite(linear: nn.Module) -> bool:
    """Whether what this map has just made is nobody else's: no gradient wants it, and no hook has seen it."""
    quiet = not torch.is_grad_enabled() and plain_autograd() and not nn.modules.module._has_any_global_hook()
    return quiet and type(linear) is nn.Linear and not linear._forward_hooks and not linear._forward_pre_hooks


def wants_plain_gradient(x: Tensor, *linears: nn.Module) -> bool:
    """Whether nothing but a plain gradient on a CPU is wanted, of linear maps that nobody listens to or has changed."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and plain_autograd()
        and not nn.modules.module._has_any_global_hook()
        and all(map(_untouched, linears))
    )


def _untouched(linear: nn.Module) -> bool:
    hooks = (linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks, linear._backward_pre_hooks)
    return (
        type(linear) is nn.Linear
        and type(linear.weight) is nn.Parameter
        and type(linear.bias) is nn.Parameter
        and not any(hooks)
    )


def relu_network(x: Tensor, up: Any, down: Any) -> Tensor:
    out, h = _ReluNetwork.apply(x, up.weight, up.bias, down.weight, down.bias)
    with torch.no_grad():
        rows, there = (y.view(-1, y.shape[-1]) for y in (h, out))
        torch.addmm(down.bias, rows, down.weight.T, out=there)
    return out


def _formula(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return nn.functional.linear(nn.functional.linear(x, w1, b1).relu(), w2, b2)


class _ReluNetwork(torch.autograd.Function):
    """Gives room for the output, and h, from which the caller computes it: when an evaluation is made again, it ends as
    soon as all is there that a gradient needs, and so before that product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> tuple[Tensor, Tensor]:
        h = nn.functional.linear(x, w1, b1).relu_()
        ctx.save_for_backward(x, w1, b1, w2, b2, h)
        ctx.mark_non_differentiable(h)
        ctx.set_materialize_grads(False)
        return h.new_empty(*x.shape[:-1], len(w2)), h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, h = ctx.saved_tensors
        grad = grads[0]
        if grad is None:
            return (None,) * len(inputs)
        if more_than_a_gradient(grad):
            return gradients_of(_formula, inputs, ctx.needs_input_grad, grad)
        x, w1, _, w2, _ = inputs
        rows, hidden, grad = (y.reshape(-1, y.shape[-1]) for y in (x, h, grad))
        dx, dw1, db1 = torch.empty_like(rows), torch.zeros_like(w1), w1.new_zeros(len(w1))
        strip = hidden.new_empty(min(STRIP, len(hidden)), hidden.shape[1])
        for x_part, h_part, dx_part, part in zip(*(y.split(STRIP) for y in (rows, hidden, dx, grad)), strict=True):
            dh = torch.mm(part, w2, out=strip[: len(part)])
            torch.ops.aten.threshold_backward.grad_input(dh, h_part, 0.0, grad_input=dh)
            torch.mm(dh, w1, out=dx_part)
            dw1.addmm_(dh.T, x_part)
            db1 += dh.sum(dim=0)
        return dx.view_as(x), dw1, db1, grad.T @ hidden, grad.sum(dim=0)
