"""General linear methods with learned coefficients: what each is at the start, and that it stays itself everywhere."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from odeum import build, set_steps
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, Source
from odeum.fields.roles import by_role
from odeum.flow import Stack
from odeum.integrators import Nesterov
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)


def beside(spelling: str, plain: str, shape: Shape = SHAPE, cross: bool = False) -> tuple[nn.Module, nn.Module]:
    """Two stacks with the same weights in their fields."""
    one, other = stack(spelling, shape, cross), stack(plain, shape, cross)
    left = one.load_state_dict(other.state_dict(), strict=False)
    assert not left.unexpected_keys and not any(".field." in name for name in left.missing_keys)
    return one, other


def perturbed(model: nn.Module) -> nn.Module:
    """Coefficients that are not those of the start."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".solver." in name:
                weight.add_(torch.randn_like(weight) / 10)
    return model


def state() -> Tensor:
    return torch.randn(2, 5, SHAPE.width)


# ------------------------------------------------------------------------------------------- momentum and dense


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("momentum:gamma=0", "sequential"),
        ("momentum:gamma=0,method=euler,steps=2", "parallel:steps=2"),
        ("momentum:gamma=0,method=strang,independent=2", "strang:independent=2"),
        ("momentum:gamma=0,norm=post", "post-norm"),
        ("dense", "sequential"),
        ("dense:method=rk4,independent=2,sharing=cycle", "rk4:independent=2,sharing=cycle"),
        ("dense:norm=post", "post-norm"),
        ("dense:form=macaron,method=euler", "macaron:method=euler"),
    ],
)
@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
def test_to_the_bit_the_plain_stack(spelling: str, plain: str, cross: bool) -> None:
    one, other = beside(spelling, plain, cross=cross)
    x, context = state(), Context(other=Source(memory=torch.randn(2, 3, 8)))
    assert torch.equal(one(x, context), other(x, context))


def test_momentum_by_hand() -> None:
    model, x = stack("momentum:gamma=0.75,method=euler", dataclasses.replace(SHAPE, depth=3)), state()
    assert isinstance(model, Stack)
    y, v = x, torch.zeros_like(x)
    for flow in model.flows:
        v = 0.75 * v + 0.25 * flow.field(0.0, y, Context())  # ty: ignore
        y = y + v
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore


@pytest.mark.parametrize("spelling", ["momentum:gamma=0.5", "momentum:gamma=0.5,method=euler", "reversible"])
def test_finer_steps_follow_the_equation_that_describe_prints(spelling: str) -> None:
    """With first order: halving the steps halves the distance to where that equation of two states leads."""
    model, x = stack(f"{spelling}{',' if ':' in spelling else ':'}independent=1", SHAPE), state()
    field: Any = model.flows[0].field  # ty: ignore
    turns = 1 if "euler" in spelling else 2

    def speed(pair: Tensor) -> Tensor:
        x, other = pair
        if spelling == "reversible":
            attention, feed_forward = field.terms
            return torch.stack((feed_forward(0.0, other, Context()), attention(0.0, x, Context())))
        return torch.stack((other, turns * math.log(2.0) * (field(0.0, x, Context()) - other)))

    with torch.no_grad():
        pair, h = torch.stack((x, x if spelling == "reversible" else torch.zeros_like(x))), 1 / 32
        for _ in range(32 * SHAPE.depth):  # Kutta's steps, whose error is not seen here
            k1 = speed(pair)
            k2 = speed(pair + h / 2 * k1)
            k3 = speed(pair + h / 2 * k2)
            pair = pair + h / 6 * (k1 + 2 * k2 + 2 * k3 + speed(pair + h * k3))
        exact = model.norm(pair.mean(0) if spelling == "reversible" else pair[0])  # ty: ignore
        errors = []
        for steps in (64, 128):
            set_steps(model, steps)
            errors.append((model(x) - exact).norm().item())
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.1)


def test_dense_averages_all_states_before() -> None:
    model, x = perturbed(stack("dense:method=euler,independent=2,sharing=cycle", SHAPE)), state()
    assert isinstance(model, Stack)
    rows = {}
    for flow in model.flows:
        method = flow.solver.method  # ty: ignore
        rows |= dict(zip(method.layers, method.rows, strict=True))
    states = [x]
    y = x
    for i, (flow, _) in enumerate(model.timed()):
        states.append(y + flow.field(0.0, y, Context()))
        y = sum(a * s for a, s in zip(rows[i], states, strict=True))
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore
    assert sum(row.numel() for row in rows.values()) == SHAPE.depth * (SHAPE.depth + 3) // 2


@pytest.mark.parametrize("name", ["dense", "yurii", "pcformer", "dense:interval=0.5"])
def test_coefficients_of_a_layer_keep_its_steps(name: str) -> None:
    model, x = stack(name, SHAPE), state()
    before = model(x)
    with pytest.raises(OdeumError, match=r"keep the steps it was built with \(1 per layer\)"):
        set_steps(model, 4)
    set_steps(model, 1)
    assert torch.equal(model(x), before)
    for flow in model.flows:  # ty: ignore
        flow.solver.steps = 4
    with pytest.raises(OdeumError, match="stay as they were built"):
        model(x)


# ------------------------------------------------------------------------------------------ yurii and pcformer


@pytest.mark.parametrize(("rest", "plain"), [("", "sequential"), (",method=euler", "parallel")])
def test_yurii_without_momentum_is_the_plain_stack(rest: str, plain: str) -> None:
    """μ = β = 0, γ = 1 and no norm."""
    one, other = beside(f"yurii:normed=false{rest}", plain)
    for part in one.modules():
        if isinstance(part, Nesterov):
            with torch.no_grad():
                assert part.numbers is not None
                part.numbers[:-1] = -torch.inf
                part.numbers[-1] = math.log(math.e - 1)
    x = state()
    torch.testing.assert_close(one(x), other(x), rtol=0, atol=1e-12)


def test_yurii_under_a_norm_moves_by_one_unit_whatever_gamma_is() -> None:
    """β = 0: x ← x + N(f(x + μ v)); γ changes nothing but by the norm's eps."""
    model, x = stack("yurii", dataclasses.replace(SHAPE, norm_eps=1e-12)), state()
    found = []
    for gamma in (-2.0, 2.0):
        for part in model.modules():
            if isinstance(part, Nesterov) and part.numbers is not None:
                with torch.no_grad():
                    part.numbers[1], part.numbers[2] = -torch.inf, gamma
        found.append(model(x))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-8)


def test_yurii_by_hand() -> None:
    model, x = perturbed(stack("yurii:independent=2,sharing=cycle", SHAPE)), state()
    y, v = x, torch.zeros_like(x)
    for flow, _ in model.timed():  # ty: ignore
        for term, part in zip(flow.field.terms, flow.solver.method.parts, strict=True):
            mu, beta = part.numbers[:2].sigmoid()
            v = part.norm(beta * v + nn.functional.softplus(part.numbers[2]) * term(0.0, y + mu * v, Context()))
            y = y + v
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore


def test_pcformer_by_hand() -> None:
    """α (1 − α)^(o − i) over the stages, two averages over all that was corrected."""
    model, x = perturbed(stack("pcformer", dataclasses.replace(SHAPE, depth=3))), state()
    y, past = x, [x]
    for i, flow in enumerate(model.flows):  # ty: ignore

        def f(z: Tensor, flow=flow) -> Tensor:
            return flow.field(0.0, z, Context())

        part = flow.solver.method
        k1 = f(y)
        guess = y + part.alpha * (1 - part.alpha) * k1 + part.alpha * f(y + k1)
        states = [*past, part.predicted_norm(guess)]
        here = sum(a * h for a, h in zip(part.predicted[0], states, strict=True))
        past.append(part.corrected_norm(here + f(here)))
        y = sum(c * h for c, h in zip(part.corrected[0], past, strict=True))
        assert part.predicted[0].shape == (i + 2,)
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore


def test_pcformer_of_the_last_state_alone_is_a_layer_at_the_prediction() -> None:
    model, x = stack("pcformer:independent=1", dataclasses.replace(SHAPE, depth=1)), state()
    flow = model.flows[0]  # ty: ignore
    part = flow.solver.method
    part.predicted_norm = part.corrected_norm = nn.Identity()
    with torch.no_grad():
        for row in (part.predicted[0], part.corrected[0]):
            row.copy_(torch.tensor([0.0, 1.0]))
        k1 = flow.field(0.0, x, Context())
        guess = x + 0.25 * k1 + 0.5 * flow.field(0.0, x + k1, Context())
    plain = stack("sequential", dataclasses.replace(SHAPE, depth=1))
    plain.load_state_dict({n: w for n, w in by_role(model).items() if n in by_role(plain)})
    torch.testing.assert_close(model(x), plain(guess), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------- all of them

MEMBERS = [
    *("momentum", "momentum:method=euler,steps=2,independent=2", "dense", "dense:independent=2,sharing=cycle"),
    *("hyper", "hyper:dynamic=false,steps=2", "hyper:method=euler,norm=shared,independent=2", "mhc", "mhc:steps=2"),
    *("attention-residuals", "attention-residuals:block=3,independent=2", "mhc:mixing=permutations,streams=3"),
    *("adams-moulton", "adams-moulton:order=4,steps=2,independent=2"),
    *("yurii", "yurii:normed=false,method=euler,independent=2"),
    *("pcformer", "pcformer:method=rk4,independent=2,sharing=cycle"),
]


@pytest.mark.parametrize("spelling", MEMBERS)
def test_checkpointed_is_the_same(spelling: str) -> None:
    shape = dataclasses.replace(SHAPE, dropout=0.2, stochastic_depth=0.1)
    one = perturbed(stack(spelling, shape))
    again = stack(f"{spelling}{',' if ':' in spelling else ':'}gradient=checkpointed", shape)
    again.load_state_dict(by_role(one))
    x = state()
    for model in (one, again):
        torch.manual_seed(3)
        model(x).pow(3).sum().backward()
    found = {name: p.grad for name, p in again.named_parameters()}
    for name, p in one.named_parameters():
        other = found[name.replace("solver.", "solver.solver.", 1)]
        torch.testing.assert_close(p.grad, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spelling", MEMBERS)
def test_decoding_with_a_cache_is_recomputing_with_any_coefficients(spelling: str) -> None:
    model = build(spelling, "language_small", vocabulary=17, width=8, heads=2, depth=4, hidden=16).eval()
    perturbed(model)
    ids, cache = torch.randint(0, 17, (3, 7)), Cache()
    whole = model(ids).logits
    for start, end in ((0, 4), (4, 5), (5, 7)):
        found = model(ids[:, start:end], cache=cache).logits
        torch.testing.assert_close(found, whole[:, start:end], rtol=0, atol=1e-11)


@pytest.mark.parametrize("spelling", MEMBERS)
def test_coefficients_are_saved_and_loaded_by_role(spelling: str) -> None:
    one, other, x = perturbed(stack(spelling, SHAPE)), stack(spelling, SHAPE), state()
    saved = by_role(one)
    assert not any(step in name.split(".") for name in saved for step in ("solver", "method", "flows"))
    other.load_state_dict(saved)
    assert torch.equal(one(x), other(x))
