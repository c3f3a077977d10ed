"""Another solver for a trained model: nothing is lost, nothing shared, and a word means what it means elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from odeum.architectures import stack
from odeum.architectures.parts import make_method
from odeum.errors import OdeumError
from odeum.fields import (
    Context,
    FeedForward,
    PreNorm,
    Source,
    Sum,
)
from odeum.flow import Flow, set_solver
from odeum.integrators import (
    HEUN,
    RK4,
    Adaptive,
    Adjoint,
    Checkpointed,
    FixedSteps,
    Learned,
    LieTrotter,
    RungeKutta,
    Strang,
)
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=3)
WORDS = ["sequential", "strang", "strang-midpoint", "parallel", "rk4", "midpoint"]


def same_weights(spelling: str, other: nn.Module, cross: bool) -> nn.Module:
    """Of another order of attention and feed-forward, so by what they are and not by place."""
    model = stack(spelling, SHAPE, cross)
    for ours, theirs in zip(model.flows, other.flows, strict=True):
        terms = {type(term.field): term for term in theirs.field.terms}
        for term in ours.field.terms:
            term.load_state_dict(terms[type(term.field)].state_dict())
    model.norm.load_state_dict(other.norm.state_dict())
    return model


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("trained", WORDS)
@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_the_same_layer_for_every_trained_model(word: str, trained: str, cross: bool) -> None:
    model, x = stack(trained, SHAPE, cross), torch.randn(2, 5, 8)
    context = Context(other=Source(memory=torch.randn(2, 4, 8)))
    expected = same_weights(word, model, cross)(x, context)
    method = {"sequential": "lie-trotter", "parallel": "euler"}.get(word, word)
    set_solver(model, FixedSteps(make_method(method)))
    torch.testing.assert_close(model(x, context), expected, rtol=0, atol=1e-12)


def test_sums_of_other_terms_keep_their_order() -> None:
    """What the sum says is what happens: two feed-forwards, or two attentions, have no order by name."""
    first, second = (PreNorm(nn.LayerNorm(8), FeedForward(8, 16)) for _ in range(2))
    model, x = Flow(Sum(first, second), FixedSteps(RungeKutta(RK4))), torch.randn(2, 5, 8)
    set_solver(model, FixedSteps(Strang()))
    x1 = x + 0.5 * first(0.0, x, Context())
    x2 = x1 + second(0.0, x1, Context())
    torch.testing.assert_close(model(x), x2 + 0.5 * first(0.0, x2, Context()), rtol=0, atol=1e-13)
    set_solver(model, FixedSteps(LieTrotter()))
    x1 = x + first(0.0, x, Context())
    torch.testing.assert_close(model(x), x1 + second(0.0, x1, Context()), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["full-1", "random-1"])
def test_transevolve_has_the_same_order(kind: str) -> None:
    x = torch.randn(2, 5, 8)
    for word, other in (("strang", "lie-trotter"), ("lie-trotter", "strang")):
        torch.manual_seed(1)
        model, right = (
            stack(f"transevolve:{kind},method={other}", SHAPE),
            stack(f"transevolve:{kind},method={word}", SHAPE),
        )
        names = dict(right.named_parameters())
        for name, weight in model.named_parameters():
            names[name].data.copy_(weight.data)
        set_solver(model, FixedSteps(make_method(word)))
        torch.testing.assert_close(model(x), right(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_the_kind_of_gradient_stays(gradient: str) -> None:
    model = stack(f"rk4:gradient={gradient}", SHAPE)
    kind = Checkpointed if gradient == "checkpointed" else Adjoint
    set_solver(model, FixedSteps(RungeKutta(HEUN)))
    assert all(type(flow.solver) is kind and flow.solver.solver.method.tableau == HEUN for flow in model.flows)
    set_solver(model, Checkpointed(FixedSteps(RungeKutta(RK4))))
    assert all(type(flow.solver) is Checkpointed and isinstance(flow.solver.solver, FixedSteps) for flow in model.flows)
    set_solver(model, Adaptive(), keep_gradient=False)
    assert all(type(flow.solver) is Adaptive for flow in model.flows)


def test_an_adjoint_refuses_a_splitting_and_nothing_is_changed() -> None:
    model, x = stack("rk4:gradient=adjoint", SHAPE), torch.randn(2, 5, 8)
    before = model(x)
    with pytest.raises(OdeumError, match="a splitting does not; use gradient=checkpointed"):
        set_solver(model, FixedSteps(LieTrotter()))
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)


@pytest.mark.parametrize("coefficients", ["gated", "learned"])
def test_learned_coefficients_are_not_dropped(coefficients: str) -> None:
    model, x = stack(f"ode-transformer:coefficients={coefficients}", SHAPE), torch.randn(2, 5, 8)
    before = model(x)
    with pytest.raises(OdeumError, match=r"has \d+ learned coefficients per layer, which another solver would drop"):
        set_solver(model, FixedSteps(RungeKutta(RK4)))
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)


def test_each_flow_learns_for_itself() -> None:
    model, given = stack("parallel", SHAPE), FixedSteps(RungeKutta(RK4, Learned(RK4)))
    set_solver(model, given)
    mixes = [flow.solver.method.mix.gamma for flow in model.flows]
    assert len({id(mix) for mix in [*mixes, given.method.mix.gamma]}) == 4
    assert sum("gamma" in name for name, _ in model.named_parameters()) == 3
