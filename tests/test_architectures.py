"""From words to stacks: spellings, what is refused and how, and that every weight of every architecture learns."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
import random
from typing import Any, get_args, get_type_hints

import pytest
import torch

from odeum import Encoder, Layered, Shape, build
from odeum.architectures import METHODS, SPLITTINGS, stack
from odeum.errors import OdeumError
from odeum.fields import Context, FeedForward, Field, PostNorm, PreNorm, Scaled, SelfAttention, Source, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import EULER, HEUN, RK4, FixedSteps, Learned, LieTrotter, Method, RungeKutta, Solver
from odeum.settings.architecture import (
    ARCHITECTURES,
    MAY_BE_ZERO,
    VARIANTS,
    Continuous,
    NormPlacement,
    Sandwich,
    parse,
    spell,
    split_spellings,
)

SMALL = Shape(width=8, heads=2, depth=4, hidden=16)


# ------------------------------------------------------------------------------------------------- spellings


def random_architecture(generator: random.Random) -> Any:
    """A named architecture with some of its words replaced by any that their annotations allow."""
    base = generator.choice(list(ARCHITECTURES.values()))
    changes = {}
    for key, hint in get_type_hints(type(base)).items():
        kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
        if generator.random() < 0.5:
            continue
        if isinstance(kinds[0], str):
            changes[key] = generator.choice(kinds)
        elif type(None) in get_args(hint) and generator.random() < 0.3:
            changes[key] = None
        elif kinds[0] is int:
            changes[key] = generator.randint(0 if key in MAY_BE_ZERO else 1, 99)
        else:
            changes[key] = generator.choice([generator.random(), 10.0 ** generator.randint(-12, 3), 1 / 3])
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize("seed", range(10))
def test_every_architecture_can_be_spelled_and_read_back(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(50):
        architecture = random_architecture(generator)
        spelling = spell(architecture)
        assert parse(spelling) == architecture
        assert spell(parse(spelling)) == spelling
        assert parse(architecture) is architecture


@pytest.mark.parametrize("seed", range(10))
def test_lists_of_spellings_are_split_where_they_were_joined(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(20):
        spellings = [spell(random_architecture(generator)) for _ in range(generator.randint(1, 5))]
        assert split_spellings(",".join(spellings)) == spellings
        assert split_spellings(" , ".join(spellings) + ",") == spellings


def test_spellings_are_short() -> None:
    assert [spell(architecture) for architecture in ARCHITECTURES.values()] == list(ARCHITECTURES)
    assert spell(Layered(method="euler", independent=6)) == "parallel:independent=6"
    assert spell(Layered(norm="post", method="rk4")) == "rk4:norm=post"
    assert spell(Continuous(rtol=1e-2)) == "continuous:rtol=0.01"
    for variant in VARIANTS["transevolve"]:
        assert len(spell(parse(f"transevolve:{variant}"))) <= len(f"transevolve:{variant}")
    assert split_spellings("transevolve:full-1,steps=2,rk4,independent=2") == [
        "transevolve:full-1,steps=2",
        "rk4:independent=2",
    ]
    assert split_spellings("") == []
    assert parse(" parallel : independent = 6 , steps=2 ".replace(" :", ":")) == parse("parallel:independent=6,steps=2")


@pytest.mark.parametrize(
    ("spelling", "sentence"),
    [
        ("paralel", "unknown architecture 'paralel'; did you mean 'parallel'? known: sequential, post-norm, parallel"),
        ("", "unknown architecture ''; known: sequential"),
        ("rk4:step=2", "unknown option of rk4 'step'; did you mean 'steps'?"),
        ("rk4:steps=two", "steps of rk4 should be a whole number, not 'two'"),
        ("rk4:steps=1.5", "steps of rk4 should be a whole number, not '1.5'"),
        ("rk4:steps=0", "steps of rk4 should be positive, not 0"),
        ("rk4:steps=-1", "steps of rk4 should be positive, not -1"),
        ("rk4:steps", "'steps' in 'rk4:steps' should read key=value; rk4 takes: method, steps"),
        ("rk4:steps=1,steps=2", "'rk4:steps=1,steps=2' says steps of rk4 twice"),
        ("rk4:norm=prenorm", "unknown norm of rk4 'prenorm'; did you mean 'pre'? known: pre, shared, post"),
        ("continuous:method=rk4", "unknown method of continuous 'rk4'; known: bosh3, dopri5"),
        ("continuous:rtol=nan", "rtol of continuous should be zero or more, not nan"),
        ("continuous:rtol=-1", "rtol of continuous should be zero or more, not -1"),
        ("sandwich:coefficient=-1", "coefficient of sandwich should be zero or more, not -1"),
        ("transevolve:full-3", "unknown variant of transevolve 'full-3'; did you mean 'full-2'? known: full-1"),
        ("transevolve:full-1,random-2", "says blocks and feedforward of transevolve twice"),
        (Layered(method="rk5"), "unknown method of Layered 'rk5'; did you mean 'rk4'?"),  # ty: ignore
        (Layered(form="maccaroni"), "unknown form of Layered 'maccaroni'; did you mean 'macaron'?"),  # ty: ignore
        (Layered(steps=0), "steps of Layered should be positive, not 0"),
        (Layered(independent=2.0), "independent of Layered should be a whole number, not 2.0"),  # ty: ignore
        (Sandwich(gradient="none"), "unknown gradient of Sandwich 'none'"),  # ty: ignore
        (7, "an architecture is a spelling or one of the dataclasses, not 7"),
    ],
)
def test_wrong_words_get_a_sentence(spelling: Any, sentence: str) -> None:
    with pytest.raises(OdeumError) as error:
        stack(spelling, SMALL)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("spelling", "changes", "sentence"),
    [
        ("sequential", {"heads": 3}, "heads (3) must divide the width (8)"),
        ("sequential", {"heads": 0}, "heads must be at least 1, not 0"),
        ("sequential", {"depth": 0}, "depth must be at least 1, not 0"),
        ("sequential", {"hidden": 0}, "hidden must be at least 1, not 0"),
        ("sequential", {"dropout": 1.0}, "dropout is a probability from 0 to below 1, not 1.0"),
        ("sequential", {"stochastic_depth": -0.5}, "stochastic_depth is a probability"),
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
        ("rk4:gradient=adjoint", {"dropout": 0.1}, "the adjoint needs the same field backwards"),
        ("parallel:gradient=adjoint,norm=post-sum", {}, "the adjoint cannot pass through a norm after the steps"),
        ("ode-transformer:gradient=adjoint", {}, "the adjoint has no gradient for learned or gated coefficients"),
        ("ode-transformer:method=strang", {}, "ode-transformer needs a Runge–Kutta method, not 'strang'"),
        ("ode-transformer:method=euler", {}, "gates choose between stages, but euler has one"),
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
        (lambda: FixedSteps(RungeKutta(RK4), 0), "steps a unit of time must be at least 1, not 0"),
        (lambda: RungeKutta(RK4, Learned(HEUN)), "rk4 has 4 stages, but the mix was made for 2"),
        (lambda: Stack([Flow(FeedForward(8), FixedSteps(RungeKutta(EULER)))], (0, 1)), "must use each of the 1 flows"),
        (lambda: Encoder(8, 2, 2, widht=3), "'widht'; Shape takes width, heads, depth"),
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

PLACEMENTS = get_args(NormPlacement)


def check_that_every_weight_learns(spelling: str | Layered, cross: bool) -> None:
    model = stack(spelling, SMALL, cross=cross)
    x, memory = torch.randn(3, 5, 8), torch.randn(3, 4, 8)
    out = model(x, Context(own=Source(causal=cross), other=Source(memory=memory if cross else None)))
    (out * torch.randn_like(out)).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not still
    assert out.isfinite().all()


@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("norm", PLACEMENTS)
@pytest.mark.parametrize("form", ["plain", "macaron"])
def test_every_method_with_every_norm_learns_or_is_refused(form: Any, norm: Any, cross: bool) -> None:
    """Which combinations exist is a rule: one norm for all terms does not split, a norm after each does not add up."""
    for method in METHODS:
        words = Layered(form=form, norm=norm, method=method)  # ty: ignore
        lost = norm in ("shared", "post-sum") if method in SPLITTINGS else norm == "post"
        if lost:
            with pytest.raises(OdeumError):
                stack(words, SMALL, cross=cross)
        else:
            check_that_every_weight_learns(words, cross)


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
        *(f"transevolve:{variant}" for variant in VARIANTS["transevolve"]),
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
