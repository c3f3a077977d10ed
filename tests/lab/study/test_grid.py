"""Increments that are rounded to a grid: the way back through reversible layers is exact, to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context
from odeum.fields.base import Carry
from odeum.flow import Stack
from odeum.integrators.reversing import reconstruction_drift
from odeum.models.settings import Shape

DEEP = Shape(width=16, heads=2, depth=48, hidden=24)
NOISY = Shape(width=16, heads=2, depth=48, hidden=24, dropout=0.1, stochastic_depth=0.1)
SPELLINGS = ["reversible:grid=16", "reversible:grid=16,independent=4,sharing=cycle", "reversible:grid=12,interval=0.3"]


def made(spelling: str, shape: Shape) -> Stack:
    torch.manual_seed(0)
    model = stack(spelling, shape)
    assert isinstance(model, Stack)
    return model


@torch.no_grad()
def there_and_back(model: Stack, x: Tensor) -> bool:
    """Whether each state and its twin are met again as they were, in 48 layers of single precision."""
    context = Context(carry=Carry())
    assert context.carry is not None
    method: Any = model.flows[0].stateful_method
    x, way = method.begin(x, context), []
    for flow, t in model.timed():
        way.append((flow, t, x, context.carry.state))
        x = method.step(flow.field, t, flow.duration, x, context)
    for flow, t, before, twin in reversed(way):
        x = method.step_back(flow.field, t, flow.duration, x, context)
        if not (torch.equal(x, before) and torch.equal(context.carry.state, twin)):
            return False
    return True


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_state_of_48_layers_is_met_again_to_the_bit(spelling: str) -> None:
    x = torch.randn(2, 7, 16)
    assert there_and_back(made(spelling, DEEP), x)
    assert not there_and_back(made("reversible", DEEP), x), "what is not rounded is not, so this can fail"


@pytest.mark.parametrize("spelling", SPELLINGS[:2])
def test_the_drift_is_zero_under_dropout_and_after_training(spelling: str) -> None:
    model = made(spelling, NOISY)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(2, 7, 16)).pow(3).mean().backward()
        assert reconstruction_drift(model) == 0.0
        optimizer.step()


def test_states_that_are_too_large_for_the_grid_are_told_by_the_drift() -> None:
    """24 bits of single precision: beyond 2^(24 − grid) sums are rounded again."""
    model = made("reversible:grid=22", DEEP)
    model(torch.randn(2, 7, 16)).sum().backward()
    drift = reconstruction_drift(model)
    assert drift is not None and 0.0 < drift < 1e-4


@pytest.mark.usefixtures("float64")
def test_the_gradient_takes_no_notice_of_the_rounding() -> None:
    """Of the rounded states, backpropagation's; and on a fine grid that of the layers that do not round."""
    shape = Shape(width=8, heads=2, depth=6, hidden=16)
    models: list[nn.Module] = [
        made(name, shape) for name in ("reversible:grid=8", "reversible:grid=8,gradient=backprop")
    ]
    models += [made(name, shape) for name in ("reversible:grid=40", "reversible")]
    x = torch.randn(2, 5, 8)
    found = []
    for model in models:
        out = model(x)
        found.append([out, *torch.autograd.grad(out.pow(3).sum(), list(model.parameters()))])
    for one, other in (found[:2], found[2:]):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found[0][0], found[3][0], rtol=0, atol=1e-6), "a coarse grid is another function"


def test_a_grid_is_of_revnet_alone() -> None:
    with pytest.raises(OdeumError, match="grid=12 applies to scheme=revnet only, but scheme=heun is set"):
        stack("reversible:scheme=heun,grid=12", DEEP)
    with pytest.raises(OdeumError, match="grid of reversible must be an integer from 0 to 40, got 50"):
        stack("reversible:grid=50", DEEP)
