"""From words to stacks: what is refused and how, and that every weight of every architecture learns."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from odeum import Encoder, Layered, Shape, build
from odeum.architectures import stack
from odeum.architectures.parts import make_method
from odeum.architectures.transevolve import Evolved
from odeum.errors import OdeumError
from odeum.fields import Context, FeedForward, Field, PostNorm, PreNorm, Scaled, SelfAttention, Source, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import (
    DOPRI5,
    EULER,
    HEUN,
    MIDPOINT,
    RK4,
    FixedSteps,
    Learned,
    LieTrotter,
    Method,
    RungeKutta,
    Solver,
    Strang,
)
from odeum.integrators.mudd import DynamicSums
from odeum.integrators.reversible import TwoStates
from odeum.integrators.splitting import Splitting
from odeum.integrators.streams import HyperConnections
from odeum.registry.names import ARCHITECTURES, METHODS
from odeum.registry.options import options
from odeum.registry.spelling import parse

SMALL = Shape(width=8, heads=2, depth=4, hidden=16)


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("spelling", "changes", "sentence"),
    [
        ("sequential", {"heads": 3}, "heads=3 must divide width=8; use 2 or 4"),
        ("sequential", {"heads": 0}, "heads must be a positive integer, got 0"),
        ("sequential", {"depth": 0}, "depth must be a positive integer, got 0"),
        ("sequential", {"hidden": 0}, "hidden must be a positive integer, got 0"),
        ("sequential", {"dropout": 1.0}, "dropout must be a number from 0 to below 1, got 1.0"),
        ("sequential", {"stochastic_depth": -0.5}, "stochastic_depth must be a number from 0 to below 1"),
        ("sequential", {"activation": "glu"}, "unknown activation 'glu'"),
        ("sequential", {"norm_kind": "batch"}, "unknown norm_kind 'batch'; known: layer, rms"),
        ("parallel:independent=3", {}, "independent=3 does not divide the depth of 4 layers; it may be 1, 2, 4"),
        ("parallel:norm=post", {}, "euler adds all terms in one step and would drop the norm after each of them"),
        ("rk4:norm=post", {}, "rk4 adds all terms in one step and would drop the norm"),
        ("sequential:norm=shared", {}, "a splitting needs a sum of at least two terms"),
        ("strang:norm=post-sum", {}, "a splitting needs a sum of at least two terms"),
        ("sandwich:coefficient=5", {}, "coefficient=5 of sandwich must lie between 0 and the depth of 4 layers"),
        (
            "continuous",
            {"dropout": 0.1},
            "an adaptive solver needs a field without randomness, but there is Dropout(0.1)",
        ),
        ("continuous", {"stochastic_depth": 0.1}, "without randomness, but there is StochasticDepth(0.1)"),
        ("continuous:rtol=0,atol=0", {}, "an adaptive solver needs a positive tolerance, not rtol=0.0, atol=0.0"),
        ("sequential:gradient=adjoint", {}, "a splitting does not; use gradient=checkpointed"),
        ("rk4:gradient=adjoint", {"dropout": 0.1}, "the adjoint needs the same field in the backward pass"),
        ("parallel:gradient=adjoint,norm=post-sum", {}, "the adjoint cannot pass through a norm after the steps"),
        ("ode-transformer:gradient=adjoint", {}, "gradient=adjoint cannot be combined with heun: it has no gradient"),
        ("ode-transformer:method=strang", {}, "ode-transformer needs a Runge–Kutta method, not 'strang'"),
        (
            "adams-bashforth:gradient=adjoint",
            {},
            "gradient=adjoint cannot be combined with adams-bashforth: it forgets the forward pass",
        ),
        ("adams-bashforth:norm=post", {}, "adams-bashforth adds all terms in one step and would drop the norm"),
        ("adams-bashforth:order=5", {}, "order of adams-bashforth must be an integer from 2 to 4, got 5"),
        ("adams-bashforth:order=1", {}, "order of adams-bashforth must be an integer from 2 to 4, got 1"),
        ("adams-bashforth:method=rk4", {}, "adams-bashforth is a method of its own; use parallel:method=rk4 for that"),
        ("adams-bashforth:order=3,norm=post", {}, "adams-bashforth-3 adds all terms in one step"),
        ("leapfrog:norm=post", {}, "leapfrog adds all terms in one step and would drop the norm"),
        (
            "leapfrog:gradient=adjoint",
            {},
            "gradient=adjoint cannot be combined with leapfrog: it forgets the forward pass",
        ),
        ("momentum:gamma=1", {}, "gamma of momentum must be a number from 0 to below 1, got 1.0"),
        ("momentum:method=rk4", {}, "momentum takes one evaluation per step; use method=euler, lie-trotter or strang"),
        ("momentum:gradient=adjoint", {}, "use gradient=checkpointed"),
        ("dense:steps=2", {}, "dense averages the states at the ends of layers of one step: steps=1, not 2"),
        ("dense:method=leapfrog", {}, "dense cannot be combined with leapfrog: dense averages states itself"),
        (
            "dense:method=euler,gradient=adjoint",
            {},
            "gradient=adjoint cannot be combined with dense: it forgets the forward pass",
        ),
        ("hyper:streams=0", {}, "streams of hyper must be an integer from 1 to 64, got 0"),
        (
            "hyper:method=rk4",
            {},
            "hyper takes one evaluation per step, with coefficients per term; use method=lie-trotter or",
        ),
        ("hyper:norm=post", {}, "hyper adds to 4 streams, and a norm after the step would stand in none"),
        ("hyper:norm=shared", {}, "a norm shared by all terms needs method=euler"),
        ("hyper:norm=post-sum,method=euler", {}, "a norm after the step would stand in none; use norm=pre"),
        ("hyper:gradient=adjoint", {}, "gradient=adjoint cannot be combined with hyper: it forgets the forward pass"),
        ("attention-residuals:block=0", {}, "block of attention-residuals must be a positive integer, got 0"),
        (
            "attention-residuals:norm=post",
            {},
            "attention-residuals adds nothing that a norm after the step could stand",
        ),
        ("adams-moulton:order=2", {}, "order of adams-moulton must be an integer from 3 to 4, got 2"),
        ("adams-moulton:method=heun", {}, "adams-moulton is a method of its own; use parallel:method=heun for that"),
        ("adams-moulton:norm=post", {}, "adams-moulton adds all terms in one step and would drop the norm"),
        ("yurii:steps=2", {}, "yurii makes one step per layer, of length 1: steps=1, not 2"),
        ("yurii:method=rk4", {}, "yurii takes one evaluation per step, with coefficients per term"),
        ("yurii:gradient=adjoint", {}, "gradient=adjoint cannot be combined with yurii: it forgets the forward pass"),
        ("pcformer:steps=2", {}, "pcformer averages the ends of layers of one step: steps=1, not 2"),
        ("pcformer:method=strang", {}, "pcformer needs a Runge–Kutta method, not 'strang'"),
        (
            "pcformer:gradient=adjoint",
            {},
            "gradient=adjoint cannot be combined with pcformer: it forgets the forward pass",
        ),
        ("mhc:mixing=permutations,streams=6", {}, "and 6 have 720; give streams=5 at most, or mixing=sinkhorn"),
        ("mhc:mixing=exact", {}, "unknown mixing of mhc 'exact'"),
        ("mhc:streams=1", {}, "streams of mhc must be an integer from 2 to 64, got 1"),
        ("mhc:method=strang", {}, "mhc takes one evaluation per step"),
        ("ode-transformer:method=adams-bashforth", {}, "ode-transformer needs a Runge–Kutta method"),
        ("ode-transformer:method=euler", {}, "gates need a method of several stages, but euler has one"),
        ("transevolve:blocks=3", {}, "blocks=3 does not divide the depth of 4 layers"),
    ],
)
def test_combinations_that_would_be_something_else_are_refused(spelling: str, changes: dict, sentence: str) -> None:
    with pytest.raises(OdeumError) as error:
        stack(spelling, dataclasses.replace(SMALL, **changes))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def post(field: Field) -> Field:
    return PostNorm(field, torch.nn.LayerNorm(8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scaled(0.5, Sum(post(FeedForward(8)), SelfAttention(8, 2))),
        lambda: PreNorm(torch.nn.LayerNorm(8), Sum(post(FeedForward(8)), SelfAttention(8, 2))),
        lambda: Flow(Sum(Sum(post(FeedForward(8)), FeedForward(8)), FeedForward(8)), FixedSteps(RungeKutta(EULER))),
        lambda: Flow(Sum(Sum(post(FeedForward(8)), FeedForward(8)), FeedForward(8)), FixedSteps(LieTrotter())),
    ],
)
def test_no_norm_is_lost_in_hiding(make) -> None:
    with pytest.raises(OdeumError, match=r"hides its terms, and with them the norm after each|would drop the norm"):
        make()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Sum(), "a Sum needs at least one field"),
        (lambda: FixedSteps(RungeKutta(RK4), 0), "steps per unit of time must be positive, got 0"),
        (lambda: RungeKutta(RK4, Learned(HEUN)), "rk4 has 4 stages, but the mix was made for 2"),
        (lambda: Stack([Flow(FeedForward(8), FixedSteps(RungeKutta(EULER)))], (0, 1)), "must use each of the 1 flows"),
        (lambda: Encoder(8, 2, 2, widht=3), "unknown setting of Encoder 'widht'; did you mean 'width'"),
        (lambda: build("parallel", "deit_tiny", image_size=30), r"patch_size \(16\) must divide image_size \(30\)"),
        (lambda: build("parallel", "deit_teeny"), "unknown model 'deit_teeny'; did you mean 'deit_tiny'"),
        (lambda: build("parallel", "vit_8")(torch.zeros(2, 1, 9, 9)), r"the model takes \[batch, 1, 8, 8\]"),
    ],
)
def test_wrong_parts_get_a_sentence(make, sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        make()


@pytest.mark.parametrize("base", [Field(), Method(), Solver()])
def test_an_unfinished_part_says_what_it_must_define(base) -> None:
    call = base.step if isinstance(base, Method) else base
    with pytest.raises(TypeError, match=f"{type(base).__name__} must define"):
        call(*([None] * (3 if isinstance(base, Field) else 5)))


# ---------------------------------------------------------------------------------------- every weight learns

PLACEMENTS = options(Layered)["norm"].kinds


def check_that_every_weight_learns(spelling: str | Layered, cross: bool, shape: Shape = SMALL) -> None:
    model = stack(spelling, shape, cross=cross)
    for part in model.modules():
        if isinstance(part, HyperConnections) and part.dynamic:
            torch.nn.init.normal_(part.map)  # it starts at zero, where the scale before it has no gradient yet
        if isinstance(part, DynamicSums):
            torch.nn.init.normal_(part.second.weight)  # the same for the map before it
    x, memory = torch.randn(3, 5, 8), torch.randn(3, 4, 8)
    out = model(x, Context(own=Source(causal=cross), other=Source(memory=memory if cross else None)))
    (out * torch.randn_like(out)).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not still
    assert out.isfinite().all()


@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("norm", PLACEMENTS)
@pytest.mark.parametrize("form", ["plain", "macaron"])
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_every_method_with_every_norm_learns_or_is_refused(form: Any, norm: Any, cross: bool, half: int) -> None:
    """Which combinations exist is a rule: one norm for all terms does not split, a norm after each does not add up.

    In one half each three of method, norm, form and side meet.
    """
    shape = dataclasses.replace(SMALL, depth=2)
    turn = PLACEMENTS.index(norm) + (form == "macaron") + cross + half
    for method in list(METHODS)[turn % 2 :: 2]:
        words = Layered(form=form, norm=norm, method=method)  # ty: ignore
        made = make_method(method)
        lost = norm in ("shared", "post-sum") if isinstance(made, Splitting) else norm == "post"
        lost |= isinstance(made, TwoStates) and norm == "post-sum"
        if lost:
            with pytest.raises(OdeumError):
                stack(words, shape, cross=cross)
        else:
            check_that_every_weight_learns(words, cross, shape)


@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(
    "spelling",
    [
        *ARCHITECTURES,
        "parallel:independent=2,sharing=cycle",
        "rk4:gradient=checkpointed",
        "rk4:gradient=adjoint",
        "continuous:gradient=adjoint",
        "continuous:gradient=checkpointed,method=bosh3",
        *(
            f"ode-transformer:method={m},coefficients={c}"
            for m in ("rk4", "bosh3")
            for c in ("fixed", "learned", "gated")
        ),
        "sandwich:coefficient=0",
        "sandwich:coefficient=4",
        *(f"transevolve:{variant}" for variant in Evolved.variants),
        "transevolve:method=rk4,gradient=checkpointed",
        "transevolve:method=euler,independent=1",
    ],
)
def test_every_weight_of_every_architecture_learns(spelling: str, cross: bool) -> None:
    check_that_every_weight_learns(spelling, cross)


@pytest.mark.parametrize(
    ("activation", "norm_kind", "bias"),
    list(itertools.product(["gelu", "relu", "swiglu"], ["layer", "rms"], [True, False])),
)
def test_every_ingredient_learns(activation: Any, norm_kind: Any, bias: bool) -> None:
    model = Encoder(8, 2, 2, "parallel", activation=activation, norm_kind=norm_kind, bias=bias)
    out = model(torch.randn(3, 5, 8))
    (out * torch.randn_like(out)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    assert bias == any(name.endswith("qkv.bias") for name, _ in model.named_parameters())


@pytest.mark.parametrize(
    ("spelling", "lines"),
    [
        ("sequential", ["x ← x + G(N(x))", "x ← x + F(N(x))"]),
        ("post-norm", ["x ← N(x + G(x))", "x ← N(x + F(x))"]),
        ("parallel:norm=post-sum", ["x ← N(x + G(x) + F(x))"]),
        ("strang", ["x ← x + ½ F(N(x))", "x ← x + G(N(x))", "x ← x + ½ F(N(x))"]),
        (
            "rk2:norm=shared",
            ["k1 = G(N(x)) + F(N(x))", "k2 = G(N(x + dt k1)) + F(N(x + dt k1))", "x ← x + dt (1/2 k1 + 1/2 k2)"],
        ),
        (
            "adams-bashforth:norm=post-sum",
            [
                "k = G(x) + F(x)",
                "x ← N(x + dt (3/2 k − 1/2 k′)), k′ = k of the step before",
                "the first step by heun: k1 = G(x) + F(x); k2 = G(x + dt k1) + F(x + dt k1); "
                "x ← N(x + dt (1/2 k1 + 1/2 k2))",
            ],
        ),
        (
            "ode-transformer",
            ["k1 = layer(x) − x", "k2 = layer(x + dt k1) − (x + dt k1)", "x ← x + dt (g1(k) k1 + g2(k) k2)"],
        ),
    ],
)
def test_a_scheme_reads_like_the_papers(spelling: str, lines: list[str]) -> None:
    flow = stack(spelling, SMALL).flows[0]
    assert flow.solver.method.scheme(flow.field) == lines


def test_schemes_keep_their_fractions() -> None:
    *_, before_last, last = RungeKutta(DOPRI5).scheme(FeedForward(8))
    assert before_last == "k6 = F(x + dt (9017/3168 k1 − 355/33 k2 + 46732/5247 k3 + 49/176 k4 − 5103/18656 k5))"
    assert last == "x ← x + dt (35/384 k1 + 500/1113 k3 + 125/192 k4 − 2187/6784 k5 + 11/84 k6)"
    halves = Strang(RungeKutta(MIDPOINT)).scheme(Sum(FeedForward(8), SelfAttention(8, 2)))
    assert halves[:3] == ["k1 = F(x)", "k2 = F(x + ½ dt (1/2 k1))", "x ← x + ½ dt k2"]
    assert RungeKutta(EULER).scheme(Scaled(0.5, Sum(FeedForward(8), SelfAttention(8, 2)))) == [
        "x ← x + ½ (F(x) + G(x))"
    ]


# ------------------------------------------------------------------------------- storing, copying, composing


@pytest.mark.parametrize(
    "spelling", ["sequential", "parallel:independent=2", "ode-transformer", "transevolve:random-2"]
)
def test_state_dict_copies_and_pickles_are_the_same_model(spelling: str) -> None:
    x = torch.randn(2, 5, 8)
    model = Encoder(8, 2, 4, spelling)
    fresh = Encoder(8, 2, 4, spelling)
    assert not torch.equal(fresh(x), model(x))
    fresh.load_state_dict(model.state_dict())
    copied = copy.deepcopy(model)
    thawed = pickle.loads(pickle.dumps(model))
    for other in (fresh, copied, thawed):
        torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)
    with torch.no_grad():
        next(copied.parameters()).add_(1.0)
    assert not torch.equal(next(copied.parameters()), next(model.parameters()))
    tensors = model.state_dict().values()
    assert len({t.data_ptr() for t in tensors}) == len(tensors), "a shared layer is stored once"


def test_an_unheard_of_architecture_takes_few_lines() -> None:
    words = Layered(form="macaron", method="heun", independent=3)
    model = Encoder(8, 2, 12, words, norm_kind="rms", activation="swiglu")
    assert len(model.stack.flows) == 3 and len(model.stack.schedule) == 12
    assert model(torch.randn(2, 5, 8)).shape == (2, 5, 8)
    assert parse("macaron:method=heun,independent=3") == words


@pytest.mark.parametrize(
    ("independent", "millions"), [(12, 5.544), (6, 2.875), (4, 1.985), (3, 1.540), (2, 1.095), (1, 0.650)]
)
def test_parameters_of_table_1_of_zhong(independent: int, millions: float) -> None:
    with torch.device("meta"):
        model = build(f"parallel:independent={independent}", "deit_tiny", classes=100)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=5e-4)


class Waiting(nn.Module):
    """No flow: notes when it begins, takes its time, and leaves the state alone."""

    def __init__(self, duration: float) -> None:
        super().__init__()
        self.duration = duration
        self.began: list[float] = []

    def forward(self, x: torch.Tensor, context: Context, t0: float) -> torch.Tensor:
        self.began.append(t0)
        return x


def test_a_stack_holds_whatever_has_a_duration() -> None:
    flow, wait, x = Flow(FeedForward(8), FixedSteps(RungeKutta(EULER))), Waiting(2.5), torch.randn(2, 3, 8)
    held = Stack([flow, wait], (1, 0, 1))
    assert torch.equal(held(x), flow(x)) and wait.began == [0.0, 3.5]
    assert len(list(held.trajectory(x))) == 4
