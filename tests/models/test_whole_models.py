"""Every architecture, activation, sharing and number of steps has one gradient, however it is asked for.

Backpropagation = with create_graph = recomputed = by functional_call = of the plain formulas, and the second derivative
is that of the plain formulas too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context, FeedForward, Source
from odeum.models.settings import Shape
from odeum.registry.names import ARCHITECTURES

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(autouse=True)
def twice_differentiable_attention() -> Iterator[None]:
    """torch's fused attention refuses a second derivative in words of its own."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


EXTRA = ["transevolve:attention=fused", "transevolve:attention=linear", "transevolve:random-2", "parallel:norm=shared"]
ACTIVATIONS = ["relu", "gelu", "swiglu"]


SHAPES = {name: Shape(width=4, heads=2, depth=2, hidden=6, activation=name, norm_eps=0.1) for name in ACTIVATIONS}


def with_options(spelling: str, options: str) -> str:
    return f"{spelling}{',' if ':' in spelling else ':'}{options}"


def ways(name: str) -> Iterator[str]:
    """A name alone, with shared weights, and with steps; what has neither is taken as it is."""
    yield name
    for options in ("independent=1", "independent=1,steps=2"):
        both = with_options(name, options)
        try:
            stack(both, SHAPES["gelu"])
        except OdeumError:
            continue
        yield both


def product() -> Iterator[tuple[str, str, bool]]:
    """Every spelling with every activation; True where it is one of those in which each two choices meet.

    A name's three ways take the activations in turn, and each name begins with another one: name and way, name and
    activation, way and activation all meet in a third of the product. A name that has fewer ways takes all.
    """
    for i, name in enumerate([*ARCHITECTURES, *EXTRA]):
        found = list(ways(name))
        for j, spelling in enumerate(found):
            for k, activation in enumerate(ACTIVATIONS):
                yield spelling, activation, len(found) < len(ACTIVATIONS) or (i + j) % len(ACTIVATIONS) == k


def is_smooth(spelling: str) -> bool:
    return "linear" not in spelling and not spelling.startswith("continuous")


def cases() -> list[Any]:
    """The product: where each two choices meet always, the rest of it when there is time."""
    return [
        pytest.param(spelling, activation, marks=() if meets else pytest.mark.slow)
        for spelling, activation, meets in PRODUCT
    ]


def half_of_cases(turn: int, suits: Callable[[str], bool] = lambda spelling: True) -> list[Any]:
    """Of those where each two choices meet, every second: each name, once or twice; the two tests take turns."""
    smooth = [case for case in cases() if suits(case.values[0])]
    usual = [case for case in smooth if not case.marks]
    left_out = {case.values for case in usual[turn::2]}
    return [pytest.param(*case.values, marks=pytest.mark.slow) if case.values in left_out else case for case in smooth]


PRODUCT = list(product())


class Plain(FeedForward):
    """The same two maps, called one after the other: no node of our own."""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        h = self.up(x)
        if self.gated:
            gate, h = h.chunk(2, dim=-1)
            return self.down(self.activation(gate) * h)
        return self.down(self.activation(h))


def plain_twin(model: nn.Module, spelling: str, shape: Shape) -> nn.Module:
    """With the same weights, of torch's own operations alone."""
    unshared = spelling.startswith("transevolve") and "attention" not in spelling
    twin = stack(with_options(spelling, "attention=fused") if unshared else spelling, shape)
    twin.load_state_dict(model.state_dict())
    for module in twin.modules():
        if type(module) is FeedForward:
            module.__class__ = Plain
    return twin


def loss(model: nn.Module, x: Tensor) -> Tensor:
    return model(x, Context(own=Source(causal=True))).pow(3).sum()


def close(found: list[Tensor], right: list[Tensor], what: str) -> None:
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, msg=lambda text: f"{what}: {text}")


Gradients = dict[str, Tensor]


def gradients(model: nn.Module, x: Tensor, **how: Any) -> Gradients:
    """By the weights that the loss depends on: the published random feed-forward has ones that it does not."""
    weights = dict(model.named_parameters())
    found = torch.autograd.grad(loss(model, x), list(weights.values()), allow_unused=True, **how)
    return {name: g for name, g in zip(weights, found, strict=True) if g is not None}


def recomputed_twin(model: nn.Module, spelling: str, shape: Shape) -> nn.Module:
    """With the same weights, its activations computed again on the way back."""
    twin = stack(with_options(spelling, "gradient=checkpointed"), shape)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        b.data.copy_(a.data)
    return twin


@pytest.mark.parametrize(("spelling", "activation"), half_of_cases(0))
def test_one_gradient(spelling: str, activation: str) -> None:
    shape, x = SHAPES[activation], torch.randn(2, 3, 4)
    model = stack(spelling, shape)
    known = gradients(model, x)
    right = list(known.values())
    close(list(gradients(model, x, create_graph=True).values()), right, "create_graph")

    recomputed = recomputed_twin(model, spelling, shape)
    theirs = gradients(recomputed, x)
    close(list(theirs.values()), right, "checkpointed")

    for way, module, names in (
        ("functional_call", model, known),
        ("checkpointed functional_call", recomputed, theirs),
    ):
        weights = dict(module.named_parameters())
        own = {name: weights[name].detach().clone().requires_grad_() for name in names}
        others = {name: torch.zeros_like(p) for name, p in weights.items() if name not in names}
        with torch.no_grad():
            for p in module.parameters():
                p.mul_(0.5)  # what is in the module must not matter
        out = functional_call(module, {**own, **others}, (x, Context(own=Source(causal=True)))).pow(3).sum()
        close(list(torch.autograd.grad(out, list(own.values()))), right, way)


@pytest.mark.parametrize(("spelling", "activation"), half_of_cases(1, is_smooth))
def test_one_second_derivative(spelling: str, activation: str) -> None:
    """Of a penalty on the gradient, by every weight, against the plain formulas: by backprop and recomputed."""
    shape, x, found = SHAPES[activation], torch.randn(2, 3, 4), []
    model = stack(spelling, shape)
    for module in (plain_twin(model, spelling, shape), model, recomputed_twin(model, spelling, shape)):
        first = gradients(module, x, create_graph=True)
        penalty = torch.stack([g.square().sum() for g in first.values()]).sum()
        weights = dict(module.named_parameters())
        inputs = [weights[name] for name in first]
        second = torch.autograd.grad(penalty, inputs, allow_unused=True)
        found.append([torch.zeros_like(i) if g is None else g for i, g in zip(inputs, second, strict=True)])
    scale = max(float(g.abs().max()) for g in found[0])
    assert scale > 1e-3
    for other in found[1:]:
        close([g / scale for g in other], [g / scale for g in found[0]], "second derivative")
