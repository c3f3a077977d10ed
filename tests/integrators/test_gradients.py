"""The three kinds of gradient agree: backpropagation, recomputation, adjoint."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import (
    Context,
    CrossAttention,
    FeedForward,
    Field,
    PreNorm,
    SelfAttention,
    Source,
    StochasticDepth,
    Sum,
)
from odeum.flow import Flow
from odeum.integrators import (
    DOPRI5,
    HEUN,
    RK4,
    AdamsBashforth,
    Adaptive,
    Adjoint,
    Checkpointed,
    FixedSteps,
    Gated,
    Learned,
    LieTrotter,
    Method,
    RungeKutta,
    Solver,
    Strang,
)
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")


def decoder_field(dropout: float = 0.0) -> Field:
    """Self-attention, attention to a memory, feed-forward."""

    def normed(field: Field) -> Field:
        return PreNorm(nn.LayerNorm(8, eps=0.1), field)

    looks = SelfAttention(8, 2, dropout=dropout), CrossAttention(8, 2, dropout=dropout)
    return Sum(*map(normed, looks), normed(FeedForward(8, 16, dropout=dropout)))


def gradients(flow: Flow, x: Tensor, memory: Tensor, seed: int = 5) -> dict[str, Tensor]:
    """Of a fixed random function of the end point: by state, memory and every weight; and the end point itself."""
    x, memory = x.clone().requires_grad_(), memory.clone().requires_grad_()
    keep = torch.tensor([[True] * 4, [True, True, True, False]])[:, None, None, :]
    context = Context(own=Source(causal=True), other=Source(mask=keep, memory=memory))
    flow.zero_grad()
    torch.manual_seed(seed)
    out = flow(x, context)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (out * weights).sum().backward()
    assert x.grad is not None and memory.grad is not None
    named = {name: p.grad.clone() for name, p in flow.named_parameters() if p.grad is not None}
    return {"out": out.detach(), "state": x.grad, "memory": memory.grad, **named}


def compare(a: dict[str, Tensor], b: dict[str, Tensor], atol: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def rename(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """A wrapped solver's own weights are one level deeper."""
    return {name.replace("solver.solver.", "solver."): value for name, value in found.items()}


@pytest.mark.parametrize(
    "solver",
    [FixedSteps(RungeKutta(RK4), 24), Adaptive(DOPRI5, rtol=1e-9, atol=1e-9)],
    ids=["rk4", "dopri5"],
)
def test_adjoint_is_backpropagation_for_state_weights_and_memory(solver: Solver) -> None:
    field, x, memory = decoder_field(), torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    exact = gradients(Flow(field, solver), x, memory)
    found = gradients(Flow(field, Adjoint(solver)), x, memory)
    assert len(found) == 3 + len(list(field.parameters()))
    compare(found, exact, atol=1e-5)
    assert exact["memory"].norm() > 0.1


def test_adjoint_converges_to_backpropagation_with_the_order_of_the_method() -> None:
    field, x, memory = decoder_field(), torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    errors = []
    for steps in (8, 16, 32):
        solver = FixedSteps(RungeKutta(RK4), steps)
        exact = gradients(Flow(field, solver), x, memory)
        found = gradients(Flow(field, Adjoint(solver)), x, memory)
        errors.append(max((found[name] - exact[name]).abs().max().item() for name in exact))
    assert errors[0] / errors[1] > 8 and errors[1] / errors[2] > 8


def test_adjoint_gives_gradients_where_only_some_are_wanted() -> None:
    field, x = decoder_field(), torch.randn(2, 5, 8)
    memory = torch.randn(2, 4, 8)
    flow = Flow(field, Adjoint(FixedSteps(RungeKutta(RK4), 4)))
    first = next(field.parameters())
    first.requires_grad_(False)
    flow(x, Context(other=Source(memory=memory))).sum().backward()
    assert first.grad is None
    assert all(p.grad is not None for p in list(field.parameters())[1:])
    with torch.no_grad():
        assert not flow(x, Context(other=Source(memory=memory))).requires_grad


def test_adjoint_of_shared_layers_adds_up() -> None:
    shape = Shape(width=8, heads=2, depth=3, norm_eps=0.1)
    backprop = stack("rk4:independent=1,steps=12", shape)
    adjoint = stack("rk4:independent=1,steps=12,gradient=adjoint", shape)
    adjoint.load_state_dict(backprop.state_dict())
    x = torch.randn(2, 5, 8)
    for model in (backprop, adjoint):
        model(x).square().sum().backward()
    for a, b in zip(backprop.parameters(), adjoint.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", ["fused", "shared"])
def test_adjoint_reaches_what_was_measured_at_the_start_of_a_block(form: str) -> None:
    """TransEvolve's anchor is made once a block and constant in the solve: its weights learn through the context."""
    shape = Shape(width=8, heads=2, depth=2, norm_eps=0.1)
    backprop = stack(f"transevolve:attention={form},method=rk4,steps=12", shape)
    adjoint = stack(f"transevolve:attention={form},method=rk4,steps=12,gradient=adjoint", shape)
    adjoint.load_state_dict(backprop.state_dict())
    x = torch.randn(2, 5, 8)
    for model in (backprop, adjoint):
        model(x).pow(3).sum().backward()
    for (name, a), b in zip(backprop.named_parameters(), adjoint.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


METHODS = {
    "lie-trotter": LieTrotter,
    "strang": Strang,
    "rk4": lambda: RungeKutta(RK4),
    "learned": lambda: RungeKutta(RK4, Learned(RK4)),
    "adams-bashforth": AdamsBashforth,
    "gated": lambda: RungeKutta(HEUN, Gated(HEUN, 8)),
}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", METHODS)
def test_checkpointed_is_backpropagation_exactly(name: str, dropout: float) -> None:
    method: Method = METHODS[name]()
    field = decoder_field(dropout)
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    exact = gradients(Flow(field, FixedSteps(method, 2)), x, memory)
    found = gradients(Flow(field, Checkpointed(FixedSteps(method, 2))), x, memory)
    compare(rename(found), exact, atol=0.0)
    if dropout:
        other = gradients(Flow(field, FixedSteps(method, 2)), x, memory, seed=6)
        assert not torch.equal(other["out"], exact["out"])
    if name in ("learned", "gated"):
        assert sum("mix" in key and bool(value.abs().max() > 0) for key, value in exact.items()) == (
            1 if name == "learned" else 2
        )


def test_checkpointed_adaptive_is_backpropagation_exactly() -> None:
    field, x, memory = decoder_field(), torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    exact = gradients(Flow(field, Adaptive()), x, memory)
    compare(gradients(Flow(field, Checkpointed(Adaptive())), x, memory), exact, atol=0.0)


@pytest.mark.parametrize(
    "spelling",
    [
        "post-norm",
        "macaron",
        "ode-transformer",
        "sandwich",
        "parallel:norm=post-sum",
        "transevolve:attention=fused",
        "transevolve:attention=shared,blocks=3",
        "transevolve:attention=shared,method=rk4",
        "transevolve:feedforward=random",
        "adams-bashforth",
        "transevolve:method=adams-bashforth,blocks=3",
    ],
)
def test_checkpointed_stacks_are_backpropagation_exactly(spelling: str) -> None:
    shape = Shape(width=8, heads=2, depth=3, dropout=0.2, stochastic_depth=0.3)
    plain = stack(spelling, shape)
    recomputed = stack(spelling + ("," if ":" in spelling else ":") + "gradient=checkpointed", shape)
    for a, b in zip(plain.parameters(), recomputed.parameters(), strict=True):
        b.data.copy_(a.data)
    x = torch.randn(4, 5, 8)
    for model in (plain, recomputed):
        torch.manual_seed(3)
        model(x).square().sum().backward()
    for a, b in zip(plain.parameters(), recomputed.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-14)


def test_checkpointed_keeps_less() -> None:
    """Bytes that the graph holds on to, counted as they are saved."""

    def kept(solver: Solver) -> int:
        field, sizes = Sum(FeedForward(16, 256), FeedForward(16, 256)), []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t)
        with hooks:
            Flow(field, solver)(torch.randn(2, 32, 16, requires_grad=True))
        return sum(sizes)

    assert kept(Checkpointed(FixedSteps(RungeKutta(RK4)))) < kept(FixedSteps(RungeKutta(RK4))) / 4


@pytest.mark.parametrize(
    ("solver", "field", "sentence"),
    [
        (Adjoint(FixedSteps(LieTrotter())), decoder_field(), "a splitting does not; use gradient=checkpointed"),
        (Adjoint(FixedSteps(Strang())), decoder_field(), "a splitting does not; use gradient=checkpointed"),
        (Adjoint(FixedSteps(RungeKutta(RK4, Learned(RK4)))), decoder_field(), "no gradient for coefficients"),
        (Adjoint(FixedSteps(RungeKutta(HEUN, Gated(HEUN, 8)))), decoder_field(), "no gradient for coefficients"),
        (
            Adjoint(FixedSteps(RungeKutta(RK4))),
            decoder_field(0.1),
            r"there is Dropout\(0.1\) at fields.attention.field.dropout",
        ),
        (
            Adjoint(FixedSteps(RungeKutta(RK4))),
            Sum(StochasticDepth(FeedForward(8), 0.2)),
            r"there is StochasticDepth\(0.2\)",
        ),
        (
            Adjoint(FixedSteps(AdamsBashforth())),
            decoder_field(),
            "gradient=adjoint cannot be combined with adams-bashforth: it forgets the forward pass",
        ),
        (Checkpointed(Adjoint(FixedSteps(RungeKutta(RK4)))), decoder_field(), "use one kind of gradient"),
    ],
)
def test_what_would_be_wrong_is_refused(solver: Solver, field: Field, sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        Flow(field, solver)


def test_adjoint_notices_dropout_that_wakes_up_later() -> None:
    flow = Flow(decoder_field(0.1).eval(), Adjoint(FixedSteps(RungeKutta(RK4))))
    context = Context(other=Source(memory=torch.randn(2, 4, 8)))
    assert flow(torch.randn(2, 5, 8), context).isfinite().all()
    flow.train()
    with pytest.raises(OdeumError, match="the adjoint needs the same field in the backward pass"):
        flow(torch.randn(2, 5, 8), context)


def test_a_users_dropout_counts_as_randomness() -> None:
    class Mine(Field):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return self.drop(x)

    with pytest.raises(OdeumError, match=r"Dropout\(0.5\) at drop"):
        Flow(Mine(), Adaptive())
