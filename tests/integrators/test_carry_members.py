"""Methods that remember, written as a user would: streams, momentum, dense means; what cannot be kept is refused."""

from __future__ import annotations

import pytest
import torch
from covering import every_second
from test_carry import branches, layer, state
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields import Context, Field, Increment, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import (
    EULER,
    AdamsBashforth,
    Checkpointed,
    FixedSteps,
    LieTrotter,
    Method,
    RungeKutta,
    Solver,
    Strang,
)
from odeum.integrators.base import remembered

pytestmark = pytest.mark.usefixtures("float64")


# ---------------------------------------------------------------- what else remembers fits the same two hooks


class Streams(Method):
    """Hyper-connections as they are at the start: read stream i, add to all of them; their sum goes on."""

    history = "streams"

    def __init__(self, count: int, read: int) -> None:
        super().__init__()
        self.count = count
        self.read = nn.Parameter(torch.eye(count)[read % count])
        self.write = nn.Parameter(torch.ones(count))
        self.keep = nn.Parameter(torch.eye(count))

    def begin(self, x: Tensor, context: Context) -> Tensor:
        return x.unsqueeze(0).expand(self.count, *x.shape)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        f = field(t, torch.einsum("n,n...->...", self.read, x), context)
        return torch.einsum("mn,n...->m...", self.keep, x) + dt * torch.einsum("n,...->n...", self.write, f)

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return x.mean(0)


class Momentum(Method):
    """v ← γ v + (1 − γ) f(x);  x ← x + v (Sander et al. 2021)."""

    history = "momentum"

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def begin(self, x: Tensor, context: Context) -> Tensor:
        remembered(context, "momentum").state = torch.zeros_like(x)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = remembered(context, "momentum")
        carry.state = self.gamma * carry.state + (1 - self.gamma) * field(t, x, context)
        return x + dt * carry.state


class Dense(Method):
    """A weighted mean of all states so far, one number each (DenseFormer)."""

    history = "dense"

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.eye(depth + 2)[-1])

    def begin(self, x: Tensor, context: Context) -> Tensor:
        remembered(context, "dense").state = (x,)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = remembered(context, "dense")
        states = (*carry.state, x + dt * field(t, x, context))
        carry.state = states
        return torch.einsum("n,n...->...", self.row, torch.stack(states))


def with_methods(fields: list[Sum], methods: list[Method]) -> Stack:
    return Stack([layer(m, f) for f, m in zip(fields, methods, strict=True)], norm=nn.LayerNorm(8))


MEMBERS = {
    "streams": lambda i: Streams(3, i),
    "momentum": lambda i: Momentum(0.0),
    "dense": lambda i: Dense(i),
    "streams, split": lambda i: LieTrotter(Streams(3, i)),
    "momentum, split": lambda i: LieTrotter(Momentum(0.0)),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_the_family_start_as_the_plain_stack(name: str) -> None:
    fields, x = [branches() for _ in range(4)], state()
    plain = with_methods(fields, [LieTrotter() if "split" in name else RungeKutta(EULER)] * 4)
    ours = with_methods(fields, [MEMBERS[name](i) for i in range(4)])
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-12)
    for one, other in zip(ours.trajectory(x), plain.trajectory(x), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)  # streams are read off on the way
    ours(x).pow(3).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ours.parameters())


@pytest.mark.parametrize("name", every_second(MEMBERS, turn=1))
def test_members_recompute_compile_and_mix(name: str) -> None:
    fields, x = [branches() for _ in range(2)], state()
    methods = [MEMBERS[name](i) for i in range(2)]
    model = with_methods(fields, methods)
    with torch.no_grad():
        for method in methods:
            for weight in method.parameters():
                weight.add_(torch.randn_like(weight) / 10)
    expected = model(x)
    recomputed = Stack([Flow(f.field, Checkpointed(f.solver)) for f in model.flows], norm=model.norm)
    assert torch.equal(recomputed(x), expected)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=0, atol=1e-12)
    if name != "dense":  # whose last row is made for one state before
        mixed = Stack([layer(RungeKutta(EULER)), *model.flows, layer(AdamsBashforth())])
        by_hand = mixed.flows[3](Stack(list(model.flows))(mixed.flows[0](x)))
        torch.testing.assert_close(mixed(x), by_hand, rtol=0, atol=1e-12)


# -------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: layer(LieTrotter(AdamsBashforth())), "a splitting does not go with adams-bashforth: a splitting"),
        (lambda: layer(Strang(AdamsBashforth())), "a splitting does not go with adams-bashforth: a splitting"),
        (lambda: layer(Strang(LieTrotter(AdamsBashforth()))), "a splitting moves one term at a time"),
        (lambda: Increment(AdamsBashforth(), branches()), "Increment takes a whole step as a field"),
        (lambda: Increment(LieTrotter(Momentum(0.5)), branches()), "but momentum remembers the steps before"),
        (
            lambda: FixedSteps(AdamsBashforth())(branches(), 0.0, 1.0, state(), Context()),
            "adams-bashforth remembers earlier steps, and a Flow or a Stack keeps them",
        ),
    ],
)
def test_what_cannot_be_remembered_is_refused(make, sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        make()


def test_a_solver_that_does_not_pass_the_history_on_is_noticed() -> None:
    class Mine(Solver):
        def __init__(self) -> None:
            super().__init__()
            self.inner = FixedSteps(AdamsBashforth())

        def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
            return self.inner(field, t0, t1, x, context)

    with pytest.raises(OdeumError, match="call it inside of one"):
        Stack([Flow(branches(), Mine())])(state())


def test_a_method_over_increments_of_whole_layers() -> None:
    """f may be the increment of a one-step method: the multistep form of the ODE Transformer."""
    flow, x = layer(AdamsBashforth(), Increment(LieTrotter(), branches())), state()

    def f(x: Tensor) -> Tensor:
        return LieTrotter().step(flow.field.field, 0.0, 1.0, x, Context()) - x  # ty: ignore

    a = x + (f(x) + f(x + f(x))) / 2
    torch.testing.assert_close(Stack([flow], [0, 0])(x), a + 1.5 * f(a) - 0.5 * f(x), rtol=0, atol=1e-12)
