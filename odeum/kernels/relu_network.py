"""W₂ relu(W₁ x + b₁) + b₂ as one node of the graph, whose gradient is made in strips of rows.

The gradient of the hidden features is the widest tensor of a training step, and on a CPU most of what it costs beside
its products is the way to memory and back. Here it is as wide but only a strip long, and stays in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from odeum.kernels.autograd import gradients_of, more_than_a_gradient, plain_autograd
from odeum.kernels.linear import fill, without_hooks
from odeum.kernels.matmul import MatmulBackend, linear_backend, transposed_times

STRIP = 1024
"""rows whose hidden gradient exists at a time"""


def reference(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Compute the network by plain operations, differentiable any number of times."""
    return nn.functional.linear(nn.functional.linear(x, w1, b1).relu(), w2, b2)


def may_overwrite(linear: nn.Module) -> bool:
    """Whether the output of this layer may be changed in place: no gradient is recorded and no hook has seen it."""
    quiet = not torch.is_grad_enabled() and plain_autograd() and not nn.modules.module._has_any_global_hook()
    return quiet and type(linear) is nn.Linear and not linear._forward_hooks and not linear._forward_pre_hooks


def wants_plain_gradient(x: Tensor, *linears: nn.Module) -> bool:
    """Whether a plain gradient on a CPU is recorded, of linear layers without hooks, adapters or parametrizations."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and plain_autograd()
        and without_hooks(*linears)
        and all(linear.bias is not None for linear in linears)
    )


def relu_network(x: Tensor, up: Any, down: Any) -> Tensor:
    """Compute down(relu(up(x))) as one node of the graph."""
    by = linear_backend(x, up.weight, up.bias)
    out, h = _ReluNetwork.apply(by, x, up.weight, up.bias, down.weight, down.bias)
    return fill(by, out, h, down.weight, down.bias)


class _ReluNetwork(torch.autograd.Function):
    """Gives room for the output, and h, from which the caller computes it."""

    @staticmethod
    def forward(
        ctx: Any, by: type[MatmulBackend], x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor
    ) -> tuple[Tensor, Tensor]:
        h = by.linear(x, w1, b1).relu_()
        ctx.by = by
        ctx.save_for_backward(x, w1, b1, w2, b2, h)
        ctx.mark_non_differentiable(h)
        ctx.set_materialize_grads(False)
        return h.new_empty(*x.shape[:-1], len(w2)), h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, h = ctx.saved_tensors
        grad = grads[0]
        if grad is None:
            return (None,) * (1 + len(inputs))
        if more_than_a_gradient(grad):
            return None, *gradients_of(reference, inputs, ctx.needs_input_grad[1:], grad)
        by: type[MatmulBackend] = ctx.by
        x, w1, _, w2, _ = inputs
        rows, hidden, grad = (y.reshape(-1, y.shape[-1]) for y in (x, h, grad))
        dx, dw1, db1 = torch.empty_like(rows), by.sum(), w1.new_zeros(len(w1))
        strip = hidden.new_empty(min(STRIP, len(hidden)), hidden.shape[1])
        for x_part, h_part, dx_part, part in zip(*(y.split(STRIP) for y in (rows, hidden, dx, grad)), strict=True):
            dh = by.times(part, w2, strip[: len(part)])
            torch.ops.aten.threshold_backward.grad_input(dh, h_part, 0.0, grad_input=dh)
            if (made := by.times(dh, w1, dx_part)) is not dx_part:
                dx_part.copy_(made)
            dw1.add(dh, x_part)
            db1 += dh.sum(dim=0)
        return None, dx.view_as(x), dw1.total(), db1, transposed_times(by, grad, hidden), grad.sum(dim=0)
