"""Architectures are integrators: the known layers come out of the family exactly."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.architectures.parts import make_method
from odeum.errors import OdeumError
from odeum.fields import Context, FeedForward, Field, Increment, PreNorm, Scaled, SelfAttention, Source, Sum
from odeum.flow import Flow, Stack, set_solver, set_steps
from odeum.integrators import (
    BOSH3,
    DOPRI5,
    EULER,
    HEUN,
    RK4,
    Adaptive,
    FixedSteps,
    Gated,
    Learned,
    LieTrotter,
    RungeKutta,
    Strang,
    Tableau,
)
from odeum.models.settings import Shape
from odeum.registry.names import METHODS
from odeum.schedules import cycle, sequence

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=3)
CONTEXT = Context(own=Source(causal=True))


def state() -> Tensor:
    return torch.randn(2, 5, 8)


def g() -> Field:
    return PreNorm(torch.nn.LayerNorm(8), SelfAttention(8, 2))


def f() -> Field:
    return PreNorm(torch.nn.LayerNorm(8), FeedForward(8, 16))


def by_hand(model: Stack, x: Tensor, layer) -> Tensor:
    for flow in model.flows:
        x = layer(flow.field.terms, x)
    assert model.norm is not None
    return model.norm(x)


def test_sequential_is_lie_trotter() -> None:
    def layer(terms: tuple[Field, ...], x: Tensor) -> Tensor:
        attention, feed_forward = terms
        middle = x + attention(0.0, x, CONTEXT)
        return middle + feed_forward(0.0, middle, CONTEXT)

    model, x = stack("sequential", SHAPE), state()
    torch.testing.assert_close(model(x, CONTEXT), by_hand(model, x, layer), rtol=0, atol=1e-14)
    torch.testing.assert_close(model(x, CONTEXT), stack_as("parallel:method=lie-trotter", model)(x, CONTEXT))


def test_parallel_is_euler() -> None:
    def layer(terms: tuple[Field, ...], x: Tensor) -> Tensor:
        attention, feed_forward = terms
        return x + attention(0.0, x, CONTEXT) + feed_forward(0.0, x, CONTEXT)

    model, x = stack("parallel", SHAPE), state()
    torch.testing.assert_close(model(x, CONTEXT), by_hand(model, x, layer), rtol=0, atol=1e-14)
    assert not torch.allclose(model(x, CONTEXT), stack_as("sequential", model)(x, CONTEXT))


def stack_as(spelling: str, model: torch.nn.Module) -> torch.nn.Module:
    other = stack(spelling, SHAPE)
    other.load_state_dict(model.state_dict())
    return other


def test_rk4_is_the_textbook_formula() -> None:
    model, x = stack("rk4", Shape(width=8, heads=2, depth=1)), state()

    def k(x: Tensor) -> Tensor:
        return model.flows[0].field(0.0, x, CONTEXT)

    k1 = k(x)
    k2 = k(x + k1 / 2)
    k3 = k(x + k2 / 2)
    k4 = k(x + k3)
    expected = model.norm(x + (k1 + 2 * k2 + 2 * k3 + k4) / 6)
    torch.testing.assert_close(model(x, CONTEXT), expected, rtol=0, atol=1e-13)


def test_tied_macaron_is_strang() -> None:
    attention, feed_forward, x = g(), f(), state()
    macaron = Flow(Sum(Scaled(0.5, feed_forward), attention, Scaled(0.5, feed_forward)), FixedSteps(LieTrotter()))
    strang = Flow(Sum(feed_forward, attention), FixedSteps(Strang()))
    torch.testing.assert_close(macaron(x, CONTEXT), strang(x, CONTEXT), rtol=0, atol=1e-14)


def test_tied_macaron_is_strang_by_name() -> None:
    strang = stack("strang", SHAPE)
    macaron = stack("macaron", Shape(width=8, heads=2, depth=3, hidden=64))  # which halves each feed-forward
    for half, whole in zip(macaron.flows, strang.flows, strict=True):
        first, attention, second = half.field.terms
        feed_forward, same_attention = whole.field.terms
        attention.load_state_dict(same_attention.state_dict())
        for part in (first, second):
            part.norm.load_state_dict(feed_forward.norm.state_dict())
            part.field.field.load_state_dict(feed_forward.field.state_dict())
    macaron.norm.load_state_dict(strang.norm.state_dict())
    x = state()
    torch.testing.assert_close(macaron(x), strang(x), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", METHODS)
def test_one_flow_over_n_is_n_tied_layers(name: str) -> None:
    field, x = Sum(g(), f()), state()
    layers = Stack([Flow(field, FixedSteps(make_method(name), 2))], sequence(4, 1))
    flow = Flow(field, FixedSteps(make_method(name), 2), 0.0, 4.0)
    torch.testing.assert_close(layers(x), flow(x), rtol=0, atol=1e-13)


def test_time_runs_on_through_the_layers() -> None:
    class Clock(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return torch.full_like(x, t)

    layers = Stack([Flow(Clock(), FixedSteps(RungeKutta(HEUN)))], sequence(4, 1))
    zero = torch.zeros(1, 1, 1)
    assert layers(zero).item() == pytest.approx(8.0)  # ∫ t dt over [0, 4]
    assert [round(x.item(), 6) for x in layers.trajectory(zero)] == [0.0, 0.5, 2.0, 4.5, 8.0]


def test_schedules() -> None:
    assert sequence(6, 3) == (0, 0, 1, 1, 2, 2)
    assert cycle(6, 3) == (0, 1, 2, 0, 1, 2)
    assert sequence(4, 4) == cycle(4, 4) == (0, 1, 2, 3)
    with pytest.raises(OdeumError, match="independent=5 does not divide the depth of 12 layers; it may be 1, 2, 3, 4"):
        sequence(12, 5)


@pytest.mark.parametrize("sharing", ["sequence", "cycle"])
@pytest.mark.parametrize("independent", [1, 2, 3, 4, 6, 12])
def test_sharing_stores_each_layer_once_and_acts_like_copies(sharing: str, independent: int) -> None:
    shape = Shape(width=8, heads=2, depth=12)
    shared = stack(f"parallel:independent={independent},sharing={sharing}", shape)
    assert len(shared.flows) == independent and len(shared.schedule) == 12
    copies = Stack([copy.deepcopy(shared.flows[i]) for i in shared.schedule], norm=shared.norm)
    x = state()
    torch.testing.assert_close(shared(x), copies(x), rtol=0, atol=0)
    parameters = sum(p.numel() for p in shared.flows.parameters())
    assert 12 * parameters == independent * sum(p.numel() for p in copies.flows.parameters())


@pytest.mark.parametrize("tableau", [BOSH3, DOPRI5], ids=["bosh3", "dopri5"])
def test_refining_the_steps_converges_to_the_adaptive_solution(tableau: Tableau) -> None:
    field, x = Sum(g(), f()), state()
    with torch.no_grad():
        adaptive = Flow(field, Adaptive(tableau, 1e-9, 1e-9), 0.0, 2.0)(x)
        errors = [
            (Flow(field, FixedSteps(RungeKutta(RK4), n), 0.0, 2.0)(x) - adaptive).abs().max() for n in (4, 8, 16, 32)
        ]
    assert all(fine < coarse / 8 for coarse, fine in itertools.pairwise(errors))
    assert errors[-1] < 1e-5


@pytest.mark.parametrize("tableau", [BOSH3, DOPRI5], ids=["bosh3", "dopri5"])
def test_the_adaptive_solver_keeps_to_its_tolerance(tableau: Tableau) -> None:
    field, x = Sum(g(), f()), state()
    with torch.no_grad():
        exact = Flow(field, FixedSteps(RungeKutta(DOPRI5), 200))(x)
        costs = []
        for tolerance in (1e-3, 1e-5, 1e-7):
            solver = Adaptive(tableau, rtol=tolerance, atol=tolerance)
            error = (Flow(field, solver)(x) - exact).abs().max().item()
            assert error < 30 * tolerance  # the errors of the steps, carried on to the end
            costs.append(solver.evaluations)
    assert costs[0] < costs[1] < costs[2]


def test_the_adaptive_solver_counts_its_evaluations_and_also_goes_back() -> None:
    calls = []

    class Counted(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            calls.append(t)
            return -x

    x, solver = torch.ones(1, 1, 1), Adaptive(DOPRI5, 1e-8, 1e-8)
    end = solver(Counted(), 0.0, 1.0, x, Context())
    assert end.item() == pytest.approx(torch.e**-1, abs=1e-7)
    assert solver.evaluations == len(calls)
    assert solver(Counted(), 1.0, 0.0, end, Context()).item() == pytest.approx(1.0, abs=1e-7)
    assert solver(Counted(), 1.0, 1.0, end, Context()) is end


@pytest.mark.parametrize("tableau", [BOSH3, DOPRI5], ids=["bosh3", "dopri5"])
def test_a_step_that_went_too_far_is_taken_back(tableau: Tableau) -> None:
    """A calm field with a sudden burst: the long step that runs into it must be rejected."""

    class Burst(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return torch.full_like(x, math.exp(-(((t - 0.7) / 0.05) ** 2)) / (0.05 * math.sqrt(math.pi)))

    end = Adaptive(tableau, rtol=1e-6, atol=1e-6)(Burst(), 0.0, 1.0, torch.zeros(1, 1, 1), Context())
    assert end.item() == pytest.approx(1.0, abs=3e-5)  # the area under the burst


def test_an_adaptive_solver_that_cannot_go_on_says_so() -> None:
    class Blowup(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return x * x

    with pytest.raises(OdeumError, match=r"reached t = .* of 2; the field is stiff for rtol=0.001|not finite at t ="):
        Adaptive()(Blowup(), 0.0, 2.0, torch.ones(1, 1, 1), Context())

    class Broken(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return x * float("nan")

    with pytest.raises(OdeumError, match="the field is not finite at t = 0"):
        Adaptive()(Broken(), 0.0, 2.0, torch.ones(1, 1, 1), Context())


def test_steps_and_solver_of_a_trained_model_can_be_changed() -> None:
    model, x = stack("parallel:independent=1", SHAPE), state()
    before = model(x)
    set_steps(model, 64)
    fine = model(x)
    set_steps(model, 1)
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)
    set_solver(model, Adaptive(DOPRI5, 1e-8, 1e-8))
    limit = model(x)
    assert (fine - limit).abs().max() < (before - limit).abs().max() / 10
    for wrong in (0, 1.5):
        with pytest.raises(OdeumError, match=f"steps per layer must be a positive integer, got {wrong}"):
            set_steps(model, wrong)  # ty: ignore[invalid-argument-type]
    with pytest.raises(OdeumError, match="not 'rk4'"):
        set_solver(model, "rk4")  # ty: ignore[invalid-argument-type]
    with pytest.raises(OdeumError, match="Linear has no flows"):
        set_solver(nn.Linear(1, 1), Adaptive())


def test_steps_reach_a_wrapped_solver_and_a_bad_solver_changes_nothing() -> None:
    model, x = stack("rk4:gradient=checkpointed", SHAPE), state()
    set_steps(model, 3)
    assert [flow.solver.solver.steps for flow in model.flows] == [3, 3, 3]
    post = stack("post-norm", SHAPE)
    before = post(x)
    with pytest.raises(OdeumError, match="would drop the norm after each of them"):
        set_solver(post, FixedSteps(RungeKutta(EULER)))
    torch.testing.assert_close(post(x), before, rtol=0, atol=0)


def test_a_model_trained_with_dropout_may_be_evaluated_adaptively_but_not_trained_so() -> None:
    model = stack("parallel", Shape(width=8, heads=2, depth=2, dropout=0.1, stochastic_depth=0.1))
    with pytest.raises(OdeumError, match="adaptive solver needs a field without randomness"):
        set_solver(model, Adaptive())
    model.eval()
    set_solver(model, Adaptive())
    assert model(state()).isfinite().all()
    model.train()
    with pytest.raises(OdeumError, match="adaptive solver needs a field without randomness"):
        model(state())


def test_coefficients_that_start_at_the_tableau_are_the_tableau() -> None:
    field, x = Sum(g(), f()), state()
    fixed = Flow(field, FixedSteps(RungeKutta(RK4)))
    learned = Flow(field, FixedSteps(RungeKutta(RK4, Learned(RK4))))
    torch.testing.assert_close(learned(x), fixed(x), rtol=0, atol=1e-13)
    gated = Gated(HEUN, 8)
    torch.nn.init.zeros_(gated.gate.weight)  # equal gates
    heun = Flow(field, FixedSteps(RungeKutta(HEUN)))
    torch.testing.assert_close(Flow(field, FixedSteps(RungeKutta(HEUN, gated)))(x), heun(x), rtol=0, atol=1e-13)


def test_ode_transformer_is_the_published_formula() -> None:
    """Li et al. 2022: F(x) is the increment of a whole layer; gate g = σ(W [F₁, F₂]); x + g F₁ + (1 − g) F₂."""
    model, x = stack("ode-transformer", Shape(width=8, heads=2, depth=1)), state()
    flow = model.flows[0]
    assert isinstance(flow.field, Increment)
    attention, feed_forward = flow.field.field.terms

    def increment(x: Tensor) -> Tensor:
        middle = x + attention(0.0, x, CONTEXT)
        return middle + feed_forward(0.0, middle, CONTEXT) - x

    k1 = increment(x)
    k2 = increment(x + k1)
    gate = torch.sigmoid(flow.solver.method.mix.gate(torch.cat((k1, k2), dim=-1)))
    torch.testing.assert_close(model(x, CONTEXT), model.norm(x + gate * k1 + (1 - gate) * k2), rtol=0, atol=1e-13)


def test_an_increment_under_euler_is_the_layer_itself() -> None:
    field, x = Sum(g(), f()), state()
    layer = Flow(field, FixedSteps(LieTrotter()))
    wrapped = Flow(Increment(LieTrotter(), field), FixedSteps(RungeKutta(EULER)))
    torch.testing.assert_close(wrapped(x), layer(x), rtol=0, atol=1e-14)


def test_sandwich_is_attentions_then_layers_then_feed_forwards() -> None:
    model = stack("sandwich:coefficient=2", Shape(width=8, heads=2, depth=5))
    letters = ["".join(term.formula("x")[0] for term in flow.field.terms) for flow in model.flows]
    assert letters == ["G", "G", "GF", "GF", "GF", "F", "F"]
    zero = stack("sandwich:coefficient=0", SHAPE)
    x = state()
    torch.testing.assert_close(zero(x), stack_as("sequential", zero)(x), rtol=0, atol=0)
