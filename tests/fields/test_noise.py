"""Dropout and stochastic depth are one draw a step: every stage of a Runge–Kutta step sees the same field."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import (
    Context,
    FeedForward,
    Field,
    Increment,
    Noise,
    PreNorm,
    Scaled,
    SelfAttention,
    StochasticDepth,
    Sum,
)
from odeum.fields.noise import Dropout, drop_mask
from odeum.flow import Flow
from odeum.integrators import (
    EULER,
    HEUN,
    MIDPOINT,
    RK4,
    Checkpointed,
    FixedSteps,
    LieTrotter,
    Method,
    RungeKutta,
    Strang,
)
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")


def noisy_field(kind: str) -> Field:
    def part(field: Field) -> Field:
        return StochasticDepth(PreNorm(nn.LayerNorm(8), field), 0.5 if kind == "depth" else 0.0)

    rate = 0.4 if kind == "dropout" else 0.0
    return Sum(part(SelfAttention(8, 2, dropout=rate)), part(FeedForward(8, 16, dropout=rate)))


class Frozen(Field):
    """A field under masks drawn once and for all."""

    def __init__(self, field: Field, masks: list[Tensor]) -> None:
        super().__init__()
        self.field = field
        self.masks = masks

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        noise = Noise()
        noise.masks = self.masks
        return self.field(t, x, context._replace(noise=noise))


class Recording(Noise):
    """Remembers every draw of a step."""

    made: list[Recording]

    def __init__(self) -> None:
        super().__init__()
        type(self).made.append(self)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    Recording.made = []
    monkeypatch.setattr("odeum.integrators.base.Noise", Recording)
    return Recording.made


@pytest.mark.parametrize("kind", ["dropout", "depth"])
@pytest.mark.parametrize("tableau", [RK4, HEUN, MIDPOINT], ids=lambda tableau: tableau.name)
def test_a_noisy_step_is_a_step_of_one_frozen_field(kind: str, tableau, draws: list[Recording]) -> None:
    field, x = noisy_field(kind), torch.randn(4, 5, 8)
    found = Flow(field, FixedSteps(RungeKutta(tableau)))(x)
    assert len(draws) == 1 and len(draws[0].masks) == 2
    frozen = Frozen(field, draws[0].masks)
    frozen.train(False)  # so that the step brings no masks of its own
    field.train()
    torch.testing.assert_close(Flow(frozen, FixedSteps(RungeKutta(tableau)))(x), found, rtol=0, atol=0)
    quiet = Flow(field.eval(), FixedSteps(RungeKutta(tableau)))(x)
    assert not torch.allclose(found, quiet)


@pytest.mark.parametrize("kind", ["dropout", "depth"])
def test_masks_differ_from_step_to_step(kind: str, draws: list[Recording]) -> None:
    Flow(noisy_field(kind), FixedSteps(RungeKutta(RK4), 3))(torch.randn(16, 5, 8))
    first, second, third = (draw.masks for draw in draws)
    assert not torch.equal(first[0], second[0]) and not torch.equal(second[0], third[0])


@pytest.mark.parametrize("kind", ["dropout", "depth"])
@pytest.mark.parametrize("method", [Strang(), Strang(RungeKutta(MIDPOINT))], ids=["euler", "midpoint"])
def test_both_half_steps_of_strang_see_the_same_term(kind: str, method: Method, draws: list[Recording]) -> None:
    field, x = noisy_field(kind), torch.randn(4, 5, 8)
    found = Flow(field, FixedSteps(method))(x)
    (draw,) = draws
    assert len(draw.masks) == 2
    frozen = Sum(*(Frozen(term, [mask]) for term, mask in zip(field.terms, draw.masks, strict=True)))
    frozen.train(False)
    field.train()
    torch.testing.assert_close(Flow(frozen, FixedSteps(method))(x), found, rtol=0, atol=0)


@pytest.mark.parametrize(
    "inner", [LieTrotter(), Strang(), Strang(RungeKutta(MIDPOINT))], ids=["lie", "strang", "strang2"]
)
def test_a_layer_as_a_field_is_frozen_too(inner: Method, draws: list[Recording]) -> None:
    field, x = noisy_field("dropout"), torch.randn(4, 5, 8)
    found = Flow(Increment(inner, field), FixedSteps(RungeKutta(HEUN)))(x)
    (draw,) = draws
    assert len(draw.masks) == 2
    frozen = Sum(*(Frozen(term, [mask]) for term, mask in zip(field.terms, draw.masks, strict=True)))
    frozen.train(False)
    field.train()
    again = Flow(Increment(inner, frozen).eval(), FixedSteps(RungeKutta(HEUN)))
    for term in field.terms:
        term.train()
    torch.testing.assert_close(again(x), found, rtol=0, atol=0)


class Twice(Field):
    """One dropout on two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.dropout = Dropout(0.5)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.dropout(self.mix(self.dropout(x, context.noise)), context.noise)


class TwoSteps(Field):
    """A field that takes two steps through another one."""

    def __init__(self, method: Method, field: Field) -> None:
        super().__init__()
        self.method = method
        self.field = field

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        y = self.method.step(self.field, t, 0.5, x, context)
        return self.method.step(self.field, t + 0.5, 0.5, y, context) - x


def test_a_dropout_that_acts_twice_in_a_field_has_two_masks(draws: list[Recording]) -> None:
    field, x = Twice(), torch.randn(4, 5, 8)
    found = Flow(field, FixedSteps(RungeKutta(RK4)))(x)
    (draw,) = draws
    assert len(draw.masks) == 2 and not torch.equal(*draw.masks)
    frozen = Frozen(field, draw.masks)
    frozen.train(False)
    field.train()
    torch.testing.assert_close(Flow(frozen, FixedSteps(RungeKutta(RK4)))(x), found, rtol=0, atol=0)


@pytest.mark.parametrize("method", [LieTrotter(), RungeKutta(RK4), Strang()], ids=["lie", "rk4", "strang"])
def test_terms_that_share_a_dropout_have_a_mask_each(method: Method, draws: list[Recording]) -> None:
    """Macaron with one feed-forward: its two terms are two fields, whichever weights they have."""
    shared = FeedForward(8, 16, dropout=0.5)
    Flow(Increment(method, Sum(Scaled(0.5, shared), Scaled(0.5, shared))), FixedSteps(RungeKutta(HEUN)))(
        torch.randn(4, 5, 8)
    )
    assert [len(draw.masks) for draw in draws] == [2]


@pytest.mark.parametrize("spelling", ["macaron:steps=2", "strang:steps=2", "rk4:independent=1,steps=2"])
def test_every_step_of_every_layer_draws_anew(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are as many as there are; a step has a mask for each of its modules."""
    drawn: list[Tensor] = []
    monkeypatch.setattr("odeum.fields.noise.drop_mask", lambda x, rate: drawn.append(drop_mask(x, rate)) or drawn[-1])
    stack(spelling, Shape(width=8, heads=2, depth=3, hidden=16, dropout=0.5))(torch.randn(4, 5, 8))
    assert len(drawn) == 3 * 2 * (3 if "macaron" in spelling else 2)
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))


@pytest.mark.parametrize("inner", [LieTrotter(), RungeKutta(MIDPOINT), Strang()], ids=["lie", "midpoint", "strang"])
def test_each_step_inside_a_step_has_its_own_masks(inner: Method, draws: list[Recording]) -> None:
    Flow(TwoSteps(inner, noisy_field("dropout")), FixedSteps(RungeKutta(RK4)))(torch.randn(4, 5, 8))
    (draw,) = draws
    assert len(draw.masks) == 4
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(draw.masks, 2))


FIELDS = {
    "twice": Twice,
    "depth": lambda: noisy_field("depth"),
    "increment": lambda: Increment(Strang(), noisy_field("dropout")),
    "two steps": lambda: TwoSteps(RungeKutta(MIDPOINT), noisy_field("dropout")),
}


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_recomputed_finds_its_masks_and_draws_none(name: str) -> None:
    field, x = FIELDS[name](), torch.randn(4, 5, 8, requires_grad=True)
    found = []
    for solver in (FixedSteps(RungeKutta(RK4), 2), Checkpointed(FixedSteps(RungeKutta(RK4), 2))):
        torch.manual_seed(3)
        out = Flow(field, solver)(x)
        wanted = [x, *field.parameters()]
        before = torch.get_rng_state()
        torch.manual_seed(9)  # nothing that the backward pass draws could be right
        found.append([out, before, *torch.autograd.grad(out.square().sum(), wanted)])
    for plain, recomputed in zip(*found, strict=True):
        assert torch.equal(plain, recomputed)


def test_the_backward_pass_makes_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr("odeum.fields.noise.drop_mask", lambda x, rate: made.append(1) or drop_mask(x, rate))
    out = Flow(Twice(), Checkpointed(FixedSteps(RungeKutta(RK4), 2)))(torch.randn(4, 5, 8))
    assert len(made) == 4
    out.sum().backward()
    assert len(made) == 4


def test_dropout_keeps_the_mean_and_the_rate() -> None:
    dropout, ones = Dropout(0.25), torch.ones(200, 200)
    for noise in (None, Noise()):
        out = dropout(ones, noise)
        assert out.mean().item() == pytest.approx(1.0, abs=0.02)
        assert (out == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(dropout.eval()(ones, Noise()), ones)


def test_stochastic_depth_drops_whole_samples() -> None:
    class One(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return torch.ones_like(x)

    field = StochasticDepth(One(), 0.25)
    out = field(0.0, torch.zeros(4000, 2, 3), Context())
    assert out.flatten(1).std(dim=1).max() == 0
    assert sorted(out.unique().tolist()) == pytest.approx([0.0, 4 / 3])
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(field.eval()(0.0, torch.zeros(4, 2, 3), Context()), torch.ones(4, 2, 3))


def test_stochastic_depth_grows_with_depth() -> None:
    model = stack("parallel", Shape(width=8, heads=2, depth=5, stochastic_depth=0.4))
    rates = [[getattr(term, "rate", 0.0) for term in flow.field.terms] for flow in model.flows]
    assert rates == [pytest.approx([r, r]) for r in (0.0, 0.1, 0.2, 0.3, 0.4)]
    shared = stack("parallel:independent=1", Shape(width=8, heads=2, depth=5, stochastic_depth=0.4))
    assert [term.rate for term in shared.flows[0].field.terms] == [0.4, 0.4]


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(OdeumError, match=f"a probability of at least 0 and below 1, got {rate}"):
        Dropout(rate)
    with pytest.raises(OdeumError, match=f"a probability of at least 0 and below 1, got {rate}"):
        StochasticDepth(FeedForward(8), rate)


class Theirs(Field):
    """A user's field around a module of torch.nn that draws."""

    def __init__(self, drawing: nn.Module) -> None:
        super().__init__()
        self.drawing = drawing

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.drawing(x)


DRAWING = [nn.Dropout(0.5), nn.AlphaDropout(0.5), nn.Sequential(nn.Tanh(), nn.Dropout1d(0.5)), nn.RReLU()]
REPEATING = [RungeKutta(HEUN), RungeKutta(RK4), Strang(), Strang(RungeKutta(MIDPOINT)), LieTrotter(RungeKutta(RK4))]


@pytest.mark.parametrize("method", REPEATING, ids=lambda m: f"{type(m).__name__} {getattr(m, 'part', m).tableau.name}")
@pytest.mark.parametrize("drawing", DRAWING, ids=lambda m: type(m).__name__)
def test_torchs_dropout_is_refused_where_a_step_repeats(drawing: nn.Module, method: Method) -> None:
    """Each stage would see another field: refused when it is made, and when training wakes it up later."""
    sentence = "a step of several stages evaluates one field, but .* draws a new mask in each; use odeum.fields.Dropout"
    field = Sum(Theirs(drawing).train(), FeedForward(8, 16))
    with pytest.raises(OdeumError, match=sentence):
        Flow(field, FixedSteps(method))
    flow, x = Flow(field.eval(), FixedSteps(method)), torch.randn(2, 3, 8)
    torch.testing.assert_close(flow(x), flow(x), rtol=0, atol=0)
    flow.train()
    with pytest.raises(OdeumError, match=sentence):
        flow(x)


def test_torchs_dropout_is_taken_where_a_step_does_not_repeat() -> None:
    field, x = Sum(Theirs(nn.Dropout(0.5)), FeedForward(8, 16)), torch.randn(2, 3, 8)
    for method in (RungeKutta(EULER), LieTrotter()):
        flow = Flow(field, FixedSteps(method, 2))
        assert not torch.equal(flow(x), flow(x))
    with pytest.raises(OdeumError, match="draws a new mask in each"):
        Flow(Increment(LieTrotter(), field), FixedSteps(RungeKutta(HEUN)))
