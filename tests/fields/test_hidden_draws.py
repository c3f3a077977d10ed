"""A field that draws its own random numbers is another field at each evaluation: refused where there are several."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields import Context, Dropout, FeedForward, Field, PreNorm, SelfAttention, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import (
    DOPRI5,
    EULER,
    HEUN,
    RK4,
    Adaptive,
    AdaptivePerSample,
    Adjoint,
    Checkpointed,
    FixedSteps,
    ImplicitMidpoint,
    LieTrotter,
    Momentum,
    Reversible,
    RungeKutta,
    Solver,
    Strang,
    within_step,
)
from odeum.lab.train.batches import refuse_hidden_draws


class Drawing(Field):
    """Linear, then a mask: through the noise of the step, or by itself."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.map = nn.Linear(8, 8)
        self.dropout = Dropout(0.5 if how in ("told", "both") else 0.0)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        y = self.dropout(self.map(x), context.noise)
        if self.how in ("hidden", "both"):
            y = nn.functional.dropout(y, 0.1, self.training)
        return y + 0.01 * torch.randn_like(y) if self.how == "normal" else y


def fixed(method: object) -> Solver:
    return FixedSteps(method)  # ty: ignore[invalid-argument-type]


REPEATING = {
    "heun": lambda: fixed(RungeKutta(HEUN)),
    "rk4": lambda: fixed(RungeKutta(RK4)),
    "strang": lambda: fixed(Strang()),
    "implicit": lambda: fixed(ImplicitMidpoint(2)),
    "checkpointed": lambda: Checkpointed(fixed(RungeKutta(HEUN))),
    "adaptive": lambda: Adaptive(DOPRI5, 1e-2, 1e-2),
    "per sample": lambda: AdaptivePerSample(DOPRI5, 1e-2, 1e-2),
    "adjoint": lambda: Adjoint(fixed(RungeKutta(EULER))),
    "reversible": lambda: Reversible(fixed(Momentum(0.9))),
}


def flow(how: str, solver: Solver) -> Flow:
    torch.manual_seed(0)
    attention = PreNorm(nn.LayerNorm(8), SelfAttention(8, 2, dropout=0.2 if how == "both" else 0.0))
    return Flow(Sum(attention, Drawing(how)), solver)


@pytest.mark.parametrize("how", ["hidden", "normal", "both"])
@pytest.mark.parametrize("name", REPEATING)
def test_what_would_differ_is_refused(name: str, how: str) -> None:
    if how == "both" and name in ("adaptive", "per sample", "adjoint"):
        return  # which take no dropout at all
    layer = Stack([flow(how, REPEATING[name]())])
    with pytest.raises(OdeumError, match=r"Drawing\(.*\) draws its own random numbers"):
        layer(torch.randn(2, 3, 8, requires_grad=True))


@pytest.mark.parametrize("name", REPEATING)
def test_what_stays_the_same_is_not(name: str) -> None:
    for how in ("none", "told"):
        if how == "told" and name in ("adaptive", "per sample", "adjoint"):
            continue
        layer = Stack([flow(how, REPEATING[name]()), flow(how, REPEATING[name]())])
        layer(torch.randn(2, 3, 8, requires_grad=True)).sum().backward()


def test_one_evaluation_may_draw_what_it_likes() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    for solver in (fixed(RungeKutta(EULER)), fixed(LieTrotter()), Checkpointed(fixed(RungeKutta(EULER)))):
        flow("hidden", solver)(x).sum().backward()
    quiet = flow("hidden", fixed(RungeKutta(RK4))).eval()
    assert torch.equal(quiet(x), quiet(x))


def test_nothing_is_watched_where_all_is_ours() -> None:
    field = Sum(SelfAttention(8, 2, dropout=0.1), FeedForward(8, dropout=0.1))
    inside = within_step(field, Context(), repeats=True)
    assert inside.noise is not None and inside.noise.watch is None


def test_before_compiling_a_pass_looks_and_leaves_no_trace() -> None:
    with pytest.raises(OdeumError, match="draws its own random numbers"):
        refuse_hidden_draws(flow("hidden", fixed(RungeKutta(RK4))), {"x": torch.randn(2, 3, 8)})
    layer = flow("told", fixed(RungeKutta(RK4)))
    layer.field.register_buffer("seen", torch.zeros(()))
    layer.register_forward_hook(lambda *_: layer.field.seen.add_(1))
    before = torch.get_rng_state()
    refuse_hidden_draws(layer, {"x": torch.randn(2, 3, 8, generator=torch.Generator())})
    assert torch.equal(before, torch.get_rng_state()) and layer.field.seen == 0
