"""General linear methods with learned coefficients: what each is at the start, and that it stays itself everywhere."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from odeum import build, set_steps
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, Source
from odeum.fields.roles import by_role
from odeum.flow import Stack
from odeum.settings.model import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)


def beside(spelling: str, plain: str, shape: Shape = SHAPE, cross: bool = False) -> tuple[nn.Module, nn.Module]:
    """Two stacks with the same weights in their fields."""
    one, other = stack(spelling, shape, cross), stack(plain, shape, cross)
    left = one.load_state_dict(other.state_dict(), strict=False)
    assert not left.unexpected_keys and not any(".field." in name for name in left.missing_keys)
    return one, other


def stirred(model: nn.Module) -> nn.Module:
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


def test_finer_steps_of_momentum_have_a_limit() -> None:
    """Of first order in the step: halving it halves the distance to the limit."""
    model, x = stack("momentum:gamma=0.5,independent=1", SHAPE), state()
    found = []
    for steps in (64, 128, 256):
        set_steps(model, steps)
        with torch.no_grad():
            found.append(model(x))
    ratio = (found[1] - found[0]).norm() / (found[2] - found[1]).norm()
    assert ratio.item() == pytest.approx(2.0, abs=0.1)


def test_dense_averages_all_states_before() -> None:
    model, x = stirred(stack("dense:method=euler,independent=2,sharing=cycle", SHAPE)), state()
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


def test_dense_keeps_its_steps() -> None:
    model = stack("dense", SHAPE)
    set_steps(model, 2)
    with pytest.raises(OdeumError, match="its steps and layers stay as they were built"):
        model(state())


# ------------------------------------------------------------------------------------------------- all of them

MEMBERS = ["momentum", "momentum:method=euler,steps=2,independent=2", "dense", "dense:independent=2,sharing=cycle"]


@pytest.mark.parametrize("spelling", MEMBERS)
def test_checkpointed_is_the_same(spelling: str) -> None:
    shape = dataclasses.replace(SHAPE, dropout=0.2, stochastic_depth=0.1)
    one = stirred(stack(spelling, shape))
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
    stirred(model)
    ids, cache = torch.randint(0, 17, (3, 7)), Cache()
    whole = model(ids).logits
    for start, end in ((0, 4), (4, 5), (5, 7)):
        found = model(ids[:, start:end], cache=cache).logits
        torch.testing.assert_close(found, whole[:, start:end], rtol=0, atol=1e-11)


@pytest.mark.parametrize("spelling", MEMBERS)
def test_coefficients_are_saved_and_loaded_by_role(spelling: str) -> None:
    one, other, x = stirred(stack(spelling, SHAPE)), stack(spelling, SHAPE), state()
    saved = by_role(one)
    assert not any(step in name.split(".") for name in saved for step in ("solver", "method", "flows"))
    other.load_state_dict(saved)
    assert torch.equal(one(x), other(x))
