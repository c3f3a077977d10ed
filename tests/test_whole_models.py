"""Every architecture, activation, sharing and number of steps has one gradient, however it is asked for.

Backpropagation = with create_graph = recomputed = by functional_call = of the plain formulas, and the second derivative
is that of the plain formulas too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context, FeedForward, Source
from odeum.settings.architecture import ARCHITECTURES
from odeum.settings.model import Shape

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(autouse=True)
def twice_differentiable_attention() -> Iterator[None]:
    """torch's fused attention refuses a second derivative in words of its own."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


EXTRA = ["transevolve:attention=fused", "transevolve:attention=linear", "transevolve:random-2", "parallel:norm=shared"]
ACTIVATIONS = ["relu", "gelu", "swiglu"]


def spellings() -> Iterator[str]:
    """Every name, alone, with shared weights, and with steps; what has neither is taken as it is."""
    for name in [*ARCHITECTURES, *EXTRA]:
        yield name
        for options in ("independent=1", "independent=1,steps=2"):
            both = with_options(name, options)
            try:
                stack(both, SHAPES["gelu"])
            except OdeumError:
                continue
            yield both


def with_options(spelling: str, options: str) -> str:
    return f"{spelling}{',' if ':' in spelling else ':'}{options}"


SHAPES = {name: Shape(width=4, heads=2, depth=2, hidden=6, activation=name, norm_eps=0.1) for name in ACTIVATIONS}


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


def used(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The weights that the loss depends on: the published random feed-forward has ones that it does not."""
    weights = dict(model.named_parameters())
    found = torch.autograd.grad(loss(model, x), list(weights.values()), allow_unused=True)
    return {name: w for (name, w), g in zip(weights.items(), found, strict=True) if g is not None}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("spelling", list(spellings()))
def test_one_gradient(spelling: str, activation: str) -> None:
    shape, x = SHAPES[activation], torch.randn(2, 3, 4)
    model = stack(spelling, shape)
    weights = used(model, x)
    inputs = list(weights.values())
    right = list(torch.autograd.grad(loss(model, x), inputs))
    close(list(torch.autograd.grad(loss(model, x), inputs, create_graph=True)), right, "create_graph")

    recomputed = stack(with_options(spelling, "gradient=checkpointed"), shape)
    for a, b in zip(model.parameters(), recomputed.parameters(), strict=True):
        b.data.copy_(a.data)
    theirs = used(recomputed, x)
    close(list(torch.autograd.grad(loss(recomputed, x), list(theirs.values()))), right, "checkpointed")

    for way, module in (("functional_call", model), ("checkpointed functional_call", recomputed)):
        names = weights if module is model else theirs
        own = {name: w.detach().clone().requires_grad_() for name, w in names.items()}
        others = {name: torch.zeros_like(p) for name, p in module.named_parameters() if name not in names}
        with torch.no_grad():
            kept = [p.clone() for p in module.parameters()]
            for p in module.parameters():
                p.mul_(0.5)  # what is in the module must not matter
        out = functional_call(module, {**own, **others}, (x, Context(own=Source(causal=True)))).pow(3).sum()
        close(list(torch.autograd.grad(out, list(own.values()))), right, way)
        with torch.no_grad():
            for p, before in zip(module.parameters(), kept, strict=True):
                p.copy_(before)


SECOND = [s for s in spellings() if "linear" not in s and not s.startswith("continuous")]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("spelling", SECOND)
def test_one_second_derivative(spelling: str, activation: str) -> None:
    """Of a penalty on the gradient, by every weight, against the plain formulas: by backprop and recomputed."""
    shape, x, found = SHAPES[activation], torch.randn(2, 3, 4), []
    model = stack(spelling, shape)
    recomputed = stack(with_options(spelling, "gradient=checkpointed"), shape)
    for a, b in zip(model.parameters(), recomputed.parameters(), strict=True):
        b.data.copy_(a.data)
    for module in (plain_twin(model, spelling, shape), model, recomputed):
        inputs = list(used(module, x).values())
        first = torch.autograd.grad(loss(module, x), inputs, create_graph=True)
        penalty = torch.stack([g.square().sum() for g in first]).sum()
        second = torch.autograd.grad(penalty, inputs, allow_unused=True)
        found.append([torch.zeros_like(i) if g is None else g for i, g in zip(inputs, second, strict=True)])
    scale = max(float(g.abs().max()) for g in found[0])
    assert scale > 1e-3
    for other in found[1:]:
        close([g / scale for g in other], [g / scale for g in found[0]], "second derivative")
