"""What is evaluated again for the gradient is what was evaluated: its weights, its precision, and nothing unknown."""

from __future__ import annotations

import pytest
import torch
from covering import meeting
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context, FeedForward, Field, PreNorm, SelfAttention, Sum
from odeum.flow import Flow
from odeum.integrators import RK4, Adjoint, Checkpointed, FixedSteps, RungeKutta
from odeum.models.settings import Shape


def with_gradient(spelling: str, gradient: str) -> str:
    return f"{spelling}{',' if ':' in spelling else ':'}gradient={gradient}"


def gradients(out: Tensor, weights: dict[str, Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(out.pow(3).sum(), list(weights.values())))


HELD = [
    ("checkpointed", "sequential"),
    ("checkpointed", "strang:independent=1"),
    ("checkpointed", "rk4:steps=2"),
    ("checkpointed", "transevolve"),
    ("checkpointed", "continuous"),
    ("adjoint", "rk4:steps=4"),
    ("adjoint", "transevolve:method=rk4,steps=4"),
    ("adjoint", "continuous"),
]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("held", "activation", "history"), meeting(HELD, ("relu", "gelu"), (False, True)))
def test_functional_call(held: tuple[str, str], activation: str, history: bool) -> None:
    """Weights handed in for one call, alone or made of others, are those that get the gradient."""
    gradient, spelling = held
    shape = Shape(width=8, heads=2, depth=2, activation=activation, norm_eps=0.1)
    model, own = (stack(with_gradient(spelling, gradient), shape) for _ in range(2))
    leaves = {name: (1.1 * p.detach()).requires_grad_() for name, p in model.named_parameters()}
    weights = {name: w * 0.9 for name, w in leaves.items()} if history else leaves
    x = torch.randn(2, 5, 8)
    found = gradients(functional_call(model, weights, (x,)), leaves)
    own.load_state_dict({**model.state_dict(), **weights})
    for a, b in zip(found, gradients(own(x), dict(own.named_parameters())), strict=True):
        torch.testing.assert_close(a, 0.9 * b if history else b, rtol=1e-6, atol=1e-9)
        assert b.abs().max() > 0
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("wrap", [Adjoint, Checkpointed])
def test_weights_changed_before_the_gradient_are_refused(wrap: type) -> None:
    flow = Flow(Sum(FeedForward(8, 16)), wrap(FixedSteps(RungeKutta(RK4))))
    out = flow(torch.randn(1, 2, 8)).square().sum()
    with torch.no_grad():
        next(flow.parameters()).add_(1.0)
    with pytest.raises((OdeumError, RuntimeError), match=r"in place since the forward|by an inplace operation"):
        out.backward()


@pytest.mark.usefixtures("float64")
def test_torch_func_passes_a_checkpoint_and_is_refused_by_the_adjoint() -> None:
    shape, x = Shape(width=8, heads=2, depth=2, norm_eps=0.1), torch.randn(3, 5, 8)
    plain, model = stack("rk4", shape), stack("rk4:gradient=checkpointed", shape)
    model.load_state_dict(plain.state_dict())

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return module(x.unsqueeze(0)).pow(3).sum()

    one, other = (torch.func.vmap(torch.func.grad(lambda x, m=m: loss(m, x)))(x) for m in (plain, model))
    torch.testing.assert_close(one, other)
    with sdpa_kernel(SDPBackend.MATH):  # torch's fused attention has no forward mode
        tangents = [torch.func.jvp(lambda x, m=m: loss(m, x), (x[0],), (x[1],))[1] for m in (plain, model)]
    torch.testing.assert_close(*tangents)
    adjoint = stack("rk4:gradient=adjoint", shape)
    for call in (torch.func.grad, torch.func.vmap, torch.func.jacfwd):
        with pytest.raises(OdeumError, match=r"the adjoint supports backward.. only, not torch.func"):
            call(lambda x: loss(adjoint, x))(x if call is torch.func.vmap else x[0])
    out = adjoint(x).square().sum()
    with pytest.raises(OdeumError, match="one gradient at a time"):
        torch.autograd.grad(out, list(adjoint.parameters()), torch.ones(2), is_grads_batched=True)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("spelling", ["looped:exit=0.3", "implicit-midpoint", "continuous", "continuous:adapt=sample"])
def test_what_looks_at_its_data_is_mapped_or_refused(spelling: str) -> None:
    model, x = stack(spelling, Shape(width=8, heads=2, depth=4, hidden=12)).eval(), torch.randn(3, 2, 4, 8)
    if spelling.startswith("continuous"):
        with pytest.raises(OdeumError, match=r"which vmap, make_fx, .* use fixed steps"):
            torch.func.vmap(model)(x)
        return
    torch.testing.assert_close(torch.func.vmap(model)(x), torch.stack([model(one) for one in x]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_the_backward_pass_has_the_precision_of_the_forward_pass(gradient: str) -> None:
    """Wherever backward is called; with another precision it would be the gradient of another function."""
    seen: list[torch.dtype] = []

    class Watched(FeedForward):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            out = super().forward(t, x, context)
            seen.append(out.dtype)
            return out

    field = PreNorm(nn.LayerNorm(8), Watched(8, 16))
    wrap = Adjoint if gradient == "adjoint" else Checkpointed
    flow, x, found = Flow(field, wrap(FixedSteps(RungeKutta(RK4)))), torch.randn(2, 3, 8), []
    for inside in (True, False):
        flow.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = flow(x).float().square().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        found.append([p.grad.clone() for p in flow.parameters() if p.grad is not None])
    assert set(seen) == {torch.bfloat16} and len(seen) >= 8
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b) and a.abs().max() > 0


class Pulled(Field):
    """dx/dt = f(x) + a condition, which is held in one way or another."""

    def __init__(self, where: str, condition: Tensor) -> None:
        super().__init__()
        self.field = Sum(SelfAttention(8, 2), FeedForward(8, 16))
        self.where = where
        if where == "buffer":
            self.register_buffer("condition", condition, persistent=False)
        elif where == "attribute":
            self.condition = condition
        else:
            self.get = lambda: condition.exp()

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        condition = context.extra["condition"] if self.where == "extra" else None
        if condition is None:
            condition = self.get() if self.where == "closure" else self.condition
        return self.field(t, x, context) + condition.tanh()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("where", ["buffer", "attribute", "closure"])
def test_a_condition_beside_the_weights_gets_its_gradient_or_a_sentence(where: str, frozen: bool) -> None:
    condition, x, found = torch.randn(8, requires_grad=True), torch.randn(2, 5, 8), []
    field = Pulled(where, condition)
    field.field.requires_grad_(not frozen)
    for wrap in (Checkpointed, Adjoint):
        out = Flow(field, wrap(FixedSteps(RungeKutta(RK4), 12)))(x).pow(3).sum()
        if wrap is Adjoint and not frozen and where != "buffer":
            with pytest.raises(OdeumError, match=r"does not reach a tensor of shape \[8\] .* Context\(extra=...\)"):
                out.backward()
            return
        found.append(torch.autograd.grad(out, condition)[0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)
    assert found[0].abs().max() > 0.1
