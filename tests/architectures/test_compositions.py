"""Every member beside every way of using it: what nobody tried as a pair is right, or refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from odeum import build, set_steps
from odeum.architectures import stack
from odeum.decode.common import cacheable
from odeum.errors import Diverged, OdeumError
from odeum.fields import Cache, Context, Source
from odeum.flow import Flow
from odeum.integrators import Adaptive, FixedSteps
from odeum.lab.testing import perturbed
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SIZE: dict[str, Any] = {"width": 8, "heads": 2, "depth": 4, "hidden": 12, "activation": "gelu"}
MEMBERS = [
    *("adams-bashforth:order=4", "adams-moulton:steps=2", "leapfrog:independent=2", "momentum:interval=0.5"),
    *("yurii:norm=post", "dense:method=rk4,independent=2", "hyper:form=macaron", "mhc:steps=2,independent=2"),
    *("attention-residuals:block=2", "pcformer:schedule=0-1/0-1", "reversible:pace=learned,steps=2"),
    *("reversible:scheme=heun,independent=1", "reversible:scheme=momentum", "reversible:scheme=leapfrog,weights=hyper"),
    *("reversible:scheme=coupling,method=rk4", "looped:inject=concat,through=2", "looped:inject=stable,independent=2"),
    *("looped:inject=none,method=adams-bashforth,core=1", "implicit-midpoint", "rk4:weights=knots,between=cubic"),
    *("parallel:weights=knots,knots=3,between=constant", "sequential:weights=adaln", "continuous:adapt=sample"),
    *("parallel*1+mhc*2+rk4:gradient=checkpointed*1", "transevolve:method=adams-bashforth,blocks=2"),
    *("transevolve:method=reversible-heun,gradient=reversible", "momentum:gradient=reversible,method=euler"),
]
"""each new member, with an option that it meets nowhere else in the tests"""


def members(turn: int) -> list[Any]:
    """All of them; of each way of use every second one is tried by default, the others with the slow tests."""
    return [pytest.param(s, marks=() if (i + turn) % 2 else pytest.mark.slow) for i, s in enumerate(MEMBERS)]


def made(spelling: str, **changes: Any) -> nn.Module:
    torch.manual_seed(0)
    model = perturbed(stack(spelling, Shape(**(SIZE | changes))))
    return model.to(torch.float64).train()


def loss(model: Callable[..., Tensor], x: Tensor) -> Tensor:
    out = model(x, Context(own=Source(causal=True)))
    return (out * torch.linspace(-1.0, 1.0, out.numel()).view_as(out)).sum()


def moved(model: nn.Module, along: list[Tensor], by: float) -> None:
    with torch.no_grad():
        for weight, way in zip(model.parameters(), along, strict=True):
            weight.add_(way, alpha=by)


def slope(model: nn.Module, function: Callable[[], Tensor], along: list[Tensor], h: float = 1e-5) -> Tensor:
    """Of the function of the weights in one direction, by its values."""
    found = []
    for by in (h, -2 * h):
        moved(model, along, by)
        found.append(function())
    moved(model, along, h)
    return (found[0] - found[1]) / (2 * h)


def adapts(model: nn.Module) -> bool:
    return any(isinstance(part, Adaptive) for part in model.modules())


@pytest.mark.parametrize("spelling", members(0))
def test_the_gradient_under_dropout_is_the_slope(spelling: str) -> None:
    """Masks are found again wherever a step evaluates twice, recomputes or runs back; and layers are dropped whole."""
    if adapts(made(spelling)):
        with pytest.raises(OdeumError, match="set dropout and stochastic_depth to 0 or use fixed steps"):
            made(spelling, dropout=0.2)
        return
    model, x = made(spelling, dropout=0.2, stochastic_depth=0.2), torch.randn(3, 4, 8)

    def value() -> Tensor:
        torch.manual_seed(7)
        return loss(model, x)

    along = [torch.randn_like(weight) for weight in model.parameters()]
    gradients = torch.autograd.grad(value(), list(model.parameters()), materialize_grads=True)
    if "through" in spelling:
        return  # whose gradient is cut on purpose
    numeric = slope(model, value, along)
    assert sum((g * way).sum() for g, way in zip(gradients, along, strict=True)).item() == pytest.approx(
        numeric.item(), rel=1e-5, abs=1e-7
    )


@pytest.mark.parametrize("spelling", members(1))
def test_weights_handed_in_and_derivatives_of_the_gradient(spelling: str) -> None:
    """functional_call gives the gradient to what it was given; with a graph, the gradient's own slope is right."""
    model, x = made(spelling), torch.randn(2, 4, 8)
    own = dict(model.named_parameters())
    given = {name: weight.detach().clone().requires_grad_() for name, weight in own.items()}
    along = [torch.randn_like(weight) for weight in own.values()]
    with sdpa_kernel(SDPBackend.MATH):
        plain = torch.autograd.grad(loss(model, x), list(own.values()), create_graph=True, materialize_grads=True)
        called = loss(lambda *args: functional_call(model, given, args), x)
        for a, b in zip(torch.autograd.grad(called, list(given.values()), materialize_grads=True), plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
        if "through" in spelling or adapts(model):
            return  # gradients that are cut, or steps that depend on the weights
        way = sum((g * d).sum() for g, d in zip(plain, along, strict=True))
        assert isinstance(way, Tensor)
        second = torch.autograd.grad(way, list(own.values()), materialize_grads=True)
        exact = sum((g * d).sum() for g, d in zip(second, along, strict=True))

        def first() -> Tensor:
            found = torch.autograd.grad(loss(model, x), list(own.values()), materialize_grads=True)
            return sum((g * d).sum() for g, d in zip(found, along, strict=True))  # ty: ignore

        assert exact.item() == pytest.approx(slope(model, first, along, 1e-6).item(), rel=1e-5, abs=1e-5)  # ty: ignore


@pytest.mark.parametrize("spelling", members(0))
def test_precisions_sizes_and_steps(spelling: str) -> None:
    """Half precision is near, one sample of one position is what it is among others, and steps come back."""
    model, x = made(spelling).eval(), torch.randn(3, 5, 8)
    whole = model(x)
    torch.testing.assert_close(model(x[1:2]), whole[1:2], rtol=0, atol=1e-11)
    assert model(x[:1, :1]).shape == (1, 1, 8) and model(x[:0]).shape == (0, 5, 8)
    flows = [part for part in model.modules() if isinstance(part, Flow)]
    solvers = [(flow, part) for flow in flows for part in flow.solver.modules() if isinstance(part, FixedSteps)]
    before = {part.steps * flow.layer for flow, part in solvers}
    try:
        set_steps(model, 4)
        assert not torch.allclose(model(x), whole)
        set_steps(model, before.pop())
    except OdeumError as error:
        assert "another number of steps cannot be combined with" in str(error) or "uses adaptive steps" in str(error)
    assert torch.equal(model(x), whole)
    single = made(spelling).float()
    with torch.autocast("cpu", torch.bfloat16):
        out = single(x.float())
        assert (out.double() - whole).norm() < 0.1 * whole.norm()
        try:
            out.float().pow(2).sum().backward()
        except Diverged as error:  # of two steps back, rounded to eight bits
            assert "heun" in spelling and "at which gradients are wrong; use gradient=checkpointed" in str(error)
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in single.parameters())


@pytest.mark.parametrize("spelling", members(1))
def test_a_beam_is_reordered_in_mid_decode(spelling: str) -> None:
    torch.manual_seed(0)
    model = perturbed(build(spelling, "language_small", vocabulary=13, **SIZE)).double().eval()
    if not cacheable(model):
        assert adapts(model)
        return
    ids, new, rows, cache = (
        torch.randint(0, 13, (3, 5)),
        torch.randint(0, 13, (4, 2)),
        torch.tensor([2, 0, 2, 1]),
        Cache(),
    )
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, :2] = False
    with torch.no_grad():
        model(ids, mask, cache=cache)
        cache.reorder(rows)
        longer = torch.cat((mask[rows], torch.ones(4, 2, dtype=torch.bool)), 1)
        whole = model(torch.cat((ids[rows], new), 1), longer).logits
        for i in range(2):
            found = model(new[:, i : i + 1], longer[:, : 6 + i], cache=cache).logits
            torch.testing.assert_close(found[:, 0], whole[:, 5 + i], rtol=0, atol=1e-10)
