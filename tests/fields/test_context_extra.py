"""A user's own tensors in the context reach fields and get their gradients, however the gradient passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from odeum import Context, Encoder, Field, Flow, Stack
from odeum.errors import OdeumError
from odeum.fields import FeedForward, PreNorm, Sum
from odeum.integrators import RK4, AdamsBashforth, Adjoint, Checkpointed, FixedSteps, RungeKutta, Solver

pytestmark = pytest.mark.usefixtures("float64")


class Conditioned(Field):
    """Drawn to a point, as strongly as a scale says: both come from outside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        extra = context.extra
        return extra["scales"][0] * torch.tanh(self.map(extra["point"] - x))


def field() -> Field:
    torch.manual_seed(1)
    return Sum(Conditioned(8), PreNorm(nn.LayerNorm(8, eps=0.1), FeedForward(8, 16)))


def gradients(solver: Solver) -> list[Tensor]:
    """Of the end point by state, by what is in extra, and by every weight."""
    stack = Stack([Flow(field(), solver)], [0, 0])
    torch.manual_seed(2)
    x, point = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 1, 8, requires_grad=True)
    scale = torch.tensor(0.7, requires_grad=True)
    out = stack(x, Context(extra={"point": point, "scales": (scale, "a word")}))
    return [out, *torch.autograd.grad(out.pow(3).sum(), [x, point, scale, *stack.parameters()])]


def test_backpropagation_checkpointing_and_adjoint_agree() -> None:
    steps = FixedSteps(RungeKutta(RK4), 24)
    exact = gradients(steps)
    assert all(g.abs().max() > 1e-3 for g in exact)
    for found, expected in zip(gradients(Checkpointed(steps)), exact, strict=True):
        assert torch.equal(found, expected)
    for found, expected in zip(gradients(Adjoint(steps)), exact, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_method_that_remembers_passes_them_on() -> None:
    exact = gradients(FixedSteps(AdamsBashforth(), 2))
    for found, expected in zip(gradients(Checkpointed(FixedSteps(AdamsBashforth(), 2))), exact, strict=True):
        assert torch.equal(found, expected)


def test_the_adjoint_refuses_what_it_cannot_look_into() -> None:
    class Box:
        def __init__(self, point: Tensor) -> None:
            self.point = point

    flow = Flow(field(), Adjoint(FixedSteps(RungeKutta(RK4))))
    with pytest.raises(OdeumError, match="the adjoint cannot find tensors in the Box in the context's extra"):
        flow(torch.randn(2, 5, 8), Context(extra=[Box(torch.randn(2, 1, 8))]))


def test_the_drop_in_modules_take_them() -> None:
    model, seen = Encoder(8, 2, 1, "parallel"), []

    class Listening(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            seen.append(context.extra)
            return torch.zeros_like(x)

    flow: Any = model.stack.flows[0]
    model.stack.flows[0] = Flow(Sum(flow.field, Listening()), flow.solver)
    extra = {"label": torch.zeros(2)}
    model(torch.randn(2, 5, 8), extra=extra)
    assert seen[0] is extra
