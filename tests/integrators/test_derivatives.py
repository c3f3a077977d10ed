"""Nodes of our own are as differentiable as their formulas: twice, in batches, forwards, by torch.func."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context, FeedForward, PreNorm, Source, Sum
from odeum.flow import Flow
from odeum.integrators import RK4, Adjoint, FixedSteps, RungeKutta
from odeum.models.embedding import TiedEmbedding
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

Function = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def twice_differentiable_attention():
    """torch's fused attention refuses a second derivative in words of its own."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def feed_forward() -> tuple[Function, nn.Module]:
    """Weights that act four times a pass: each is in the history of the state that it acts on."""
    field = PreNorm(nn.LayerNorm(6, eps=0.1), FeedForward(6, 10, activation="relu"))
    flow = Flow(field, FixedSteps(RungeKutta(RK4)))
    return lambda x: flow(x).pow(3).sum(), flow


def chunked_loss(smoothing: float) -> tuple[Function, nn.Module]:
    embedding, labels = TiedEmbedding(11, 6), torch.tensor([1, 10, -100, 4, 0])
    return lambda x: embedding.loss(x, labels, smoothing, chunk=2), embedding


def shared_exponential(mask: Tensor | None) -> tuple[Function, nn.Module]:
    model = stack("transevolve:attention=shared,independent=1", Shape(6, 2, 2, activation="gelu", norm_eps=0.1))
    return lambda x: model(x.unsqueeze(0), Context(own=Source(mask=mask, causal=True))).pow(3).sum(), model


ONE_HIDDEN = torch.tensor([True, True, False, True, True])[None, None, None]
NODES: dict[str, Callable[[], tuple[Function, nn.Module]]] = {
    "feed-forward": feed_forward,
    "loss": lambda: chunked_loss(0.0),
    "smoothed loss": lambda: chunked_loss(0.1),
    "shared exponential": lambda: shared_exponential(None),
    "shared exponential, masked": lambda: shared_exponential(ONE_HIDDEN),
    "shared exponential, weighed": lambda: shared_exponential(torch.linspace(-1, 1, 25).view(5, 5)),
}


@pytest.fixture(params=NODES)
def node(request: pytest.FixtureRequest) -> tuple[Function, nn.Module]:
    torch.manual_seed(0)
    return NODES[request.param]()


def state() -> Tensor:
    return torch.randn(5, 6, requires_grad=True)


def test_the_gradient_is_the_same_when_it_is_to_be_differentiated(node: tuple[Function, nn.Module]) -> None:
    function, module = node
    inputs = [state(), *module.parameters()]
    plain = torch.autograd.grad(function(inputs[0]), inputs)
    again = torch.autograd.grad(function(inputs[0]), inputs, create_graph=True)
    for a, b in zip(again, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_first_and_second_derivatives_are_those_of_finite_differences(node: tuple[Function, nn.Module]) -> None:
    function, module = node
    inputs = (state(), *module.parameters())  # moved in place, so the module need not be told
    assert torch.autograd.gradcheck(lambda x, *_: function(x), inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda x, *_: function(x), inputs, fast_mode=True)


def test_a_second_derivative_by_weights_alone(node: tuple[Function, nn.Module]) -> None:
    """autograd.grad runs only what leads to its inputs: nothing on the way may be left out for it."""
    function, module = node
    x, weights = state().detach(), list(module.parameters())
    first = torch.autograd.grad(function(x), weights, create_graph=True)
    sum(g.square().sum() for g in first).backward(retain_graph=True)  # ty: ignore[unresolved-attribute]
    second = torch.autograd.grad(sum(g.square().sum() for g in first), weights)  # ty: ignore[invalid-argument-type]
    for weight, found in zip(weights, second, strict=True):
        torch.testing.assert_close(found, weight.grad, rtol=1e-12, atol=1e-12)
    assert max(float(g.abs().max()) for g in second) > 1e-3


def test_gradients_in_batches(node: tuple[Function, nn.Module]) -> None:
    function, module = node
    x, weights = state(), list(module.parameters())
    out, scales = function(x), torch.tensor([1.0, -2.0])
    batched = torch.autograd.grad(out, [x, *weights], scales, is_grads_batched=True, retain_graph=True)
    for both, one in zip(batched, torch.autograd.grad(out, [x, *weights]), strict=True):
        torch.testing.assert_close(both, torch.stack((one, -2.0 * one)), rtol=1e-11, atol=1e-12)


def test_torch_func(node: tuple[Function, nn.Module]) -> None:
    function, _ = node
    x, direction = state(), torch.randn(5, 6)
    value = function(x)
    (gradient,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(torch.func.grad(function)(x.detach()), gradient, rtol=1e-10, atol=1e-11)
    found, slope = torch.func.jvp(function, (x.detach(),), (direction,))
    torch.testing.assert_close(found, value)
    torch.testing.assert_close(slope, (gradient * direction).sum(), rtol=1e-10, atol=1e-11)
    rows = torch.func.vmap(function)(torch.stack((x.detach(), x.detach() + direction)))
    torch.testing.assert_close(rows, torch.stack((value, function(x + direction))))
    per_sample = torch.func.vmap(torch.func.grad(function))(x.detach().unsqueeze(0))
    torch.testing.assert_close(per_sample[0], gradient, rtol=1e-10, atol=1e-11)


def test_forward_mode_under_the_hood(node: tuple[Function, nn.Module]) -> None:
    function, _ = node
    x, direction = state(), torch.randn(5, 6)
    (gradient,) = torch.autograd.grad(function(x), x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), direction)
        slope = torch.autograd.forward_ad.unpack_dual(function(dual)).tangent
    torch.testing.assert_close(slope, (gradient * direction).sum(), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("linear", [True, False], ids=["of a sum", "of a square"])
def test_the_adjoint_refuses_a_second_derivative(linear: bool) -> None:
    """Whether or not the gradient that comes in has a history, and by whatever it is asked for."""
    flow = Flow(Sum(FeedForward(8, 16)), Adjoint(FixedSteps(RungeKutta(RK4))))
    x, weights = torch.randn(1, 2, 8, requires_grad=True), list(flow.parameters())
    out = flow(x)
    first = torch.autograd.grad(out.sum() if linear else out.square().sum(), [x, *weights], create_graph=True)
    for inputs in (x, weights[0]):
        with pytest.raises(OdeumError, match="first derivative only; use gradient=backprop or checkpointed"):
            torch.autograd.grad(first[0].square().sum() + x.sum() + weights[0].sum(), inputs, retain_graph=True)
    with pytest.raises(OdeumError, match="first derivative only"):
        first[0].sum().backward()


def test_a_frozen_part_gets_no_gradient_of_a_gradient() -> None:
    function, module = feed_forward()
    first = next(p for name, p in module.named_parameters() if name.endswith("up.weight"))
    first.requires_grad_(False)
    x = state()
    (slope,) = torch.autograd.grad(function(x), x, create_graph=True)
    slope.square().sum().backward()
    assert first.grad is None
    assert all(p.grad is not None for p in module.parameters() if p is not first)
