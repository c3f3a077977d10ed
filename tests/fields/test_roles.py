"""Weights have names by role: any architecture finds those of another."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import meeting
from safetensors.torch import load_file
from torch import Tensor, nn

from odeum import Context, Encoder, Field, Shape, build
from odeum.architectures import stack
from odeum.architectures.parts import terms
from odeum.errors import OdeumError
from odeum.fields import FeedForward, PreNorm, Scaled, SelfAttention, StochasticDepth, Sum
from odeum.fields.roles import by_role, role_names
from odeum.flow import Stack
from odeum.models.saved import load_model, save_model
from odeum.models.settings import Translation, Vision

SHAPE = Shape(width=8, heads=2, depth=3, hidden=16)


def test_names_say_what_a_weight_is() -> None:
    model = build("sequential", Vision(image_size=8, patch_size=4, channels=1, classes=3, width=8, heads=2, depth=1))
    assert {name for name in by_role(model) if name.startswith("stack")} == {
        "stack.norm.weight",
        "stack.norm.bias",
        *(
            f"stack.layers.0.{part}.{kind}"
            for part in (
                *("attention.norm", "attention.qkv", "attention.out"),
                *("feedforward.norm", "feedforward.up", "feedforward.down"),
            )
            for kind in ("weight", "bias")
        ),
    }


@pytest.mark.parametrize(
    ("spelling", "names"),
    [
        ("macaron", ["layers.0.feedforward_in.up.weight", "layers.2.feedforward_out.norm.bias"]),
        ("macaron:norm=peri", ["layers.0.attention.inner.weight", "layers.0.attention.outer.weight"]),
        ("parallel:norm=shared", ["layers.0.norm.weight", "layers.0.attention.qkv.weight"]),
        ("post-norm", ["layers.0.attention.norm.weight", "layers.0.feedforward.norm.weight"]),
        (
            "ode-transformer:coefficients=learned,gradient=checkpointed",
            ["layers.1.mix.gamma", "layers.1.attention.qkv.bias"],
        ),
        ("ode-transformer", ["layers.1.mix.gate.weight"]),
        ("transevolve:random-1", ["layers.0.own.q.weight", "layers.0.layers.2.feedforward.up.singular"]),
    ],
)
def test_roles_of_other_architectures(spelling: str, names: list[str]) -> None:
    found = by_role(stack(spelling, SHAPE))
    assert set(names) <= found.keys()
    assert not any(step in name.split(".") for name in found for step in ("field", "fields", "solver", "flows"))


SAME = [
    *("parallel", "strang", "strang-midpoint", "rk4", "adams-bashforth", "post-norm", "sequential:norm=branch"),
    *("rk2:gradient=checkpointed", "midpoint:gradient=adjoint", "sequential:steps=2"),
]


@pytest.mark.parametrize(("spelling", "stochastic_depth", "cross"), meeting(SAME, [0.0, 0.3], [False, True]))
def test_the_state_of_one_architecture_is_read_by_another(spelling: str, stochastic_depth: float, cross: bool) -> None:
    source = stack("sequential", SHAPE, cross=cross)
    if "adjoint" in spelling:
        stochastic_depth = 0.0
    target = stack(spelling, Shape(8, 2, 3, 16, stochastic_depth=stochastic_depth), cross=cross)
    fitting = spelling not in ("post-norm", "sequential:norm=branch")  # whose norms stand elsewhere
    target.load_state_dict(source.state_dict(), strict=fitting)
    ours, theirs = by_role(target), by_role(source)
    assert not fitting or ours.keys() == theirs.keys()
    for name in ours.keys() & theirs.keys():
        assert torch.equal(ours[name], theirs[name]), name
    back = stack("sequential", SHAPE, cross=cross)
    back.load_state_dict(by_role(target), strict=fitting)
    for name in ours.keys() & theirs.keys():
        assert torch.equal(by_role(back)[name], theirs[name]), name


def test_strang_with_a_sequential_layers_weights_is_strang() -> None:
    """Not only equal names: each weight stands where its role says, although strang lists F before G."""
    source, target = stack("sequential", SHAPE), stack("strang", SHAPE)
    target.load_state_dict(source.state_dict())
    x = torch.randn(2, 5, 8)
    g, f = (lambda x, i=i: source.flows[0].field.terms[i](0.0, x, Context()) for i in (0, 1))
    half = x + f(x) / 2
    whole = half + g(half)
    states = list(target.trajectory(x))
    torch.testing.assert_close(states[1], whole + f(whole) / 2)


def test_names_of_torch_are_left_alone() -> None:
    """So that functional_call, optimizers and other libraries, which go by the paths of modules, go on to work."""
    model, x = stack("sequential", SHAPE), torch.randn(2, 5, 8)
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]
    torch.testing.assert_close(torch.func.functional_call(model, model.state_dict(), (x,)), model(x))
    state = model.state_dict()
    model.load_state_dict(by_role(model))
    assert list(state) == list(model.state_dict())


def test_wrapped_and_compiled_models_read_each_others_states() -> None:
    plain = Encoder(8, 2, 2, "sequential")
    layers = copy.deepcopy(plain)
    for i in range(2):
        layers.stack.flows[i] = torch.compile(layers.stack.flows[i], backend="eager")
    whole = torch.compile(copy.deepcopy(plain), backend="eager")
    with torch.no_grad():
        for weight in plain.parameters():
            weight.add_(1.0)
    layers.load_state_dict(plain.state_dict())
    whole.load_state_dict({f"_orig_mod.{name}": weight for name, weight in by_role(plain).items()})
    for other in (layers, whole):
        for a, b in zip(other.parameters(), plain.parameters(), strict=True):
            assert torch.equal(a, b)
    fresh = Encoder(8, 2, 2, "parallel")
    fresh.load_state_dict(layers.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), plain.parameters(), strict=True))


def test_what_does_not_fit_is_still_said() -> None:
    model = stack("sequential", SHAPE)
    state = by_role(model)
    with pytest.raises(RuntimeError, match=r"Missing key.*attention.field.qkv.weight"):
        stack("parallel", SHAPE).load_state_dict(
            {k: v for k, v in state.items() if k != "layers.0.attention.qkv.weight"}
        )
    with pytest.raises(RuntimeError, match=r"Unexpected key.*layers.0.gate"):
        stack("parallel", SHAPE).load_state_dict({**state, "layers.0.gate": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="Unexpected key"):  # the same weight under two names
        stack("parallel", SHAPE).load_state_dict({**state, **model.state_dict()})
    with pytest.raises(RuntimeError, match=r"size mismatch|Missing key"):
        stack("macaron", SHAPE).load_state_dict(state)


def test_a_run_is_saved_by_role_and_read_again(tmp_path: Path) -> None:
    settings = Translation(vocabulary=11, length=8, width=8, heads=2, depth=2, hidden=16, stochastic_depth=0.2)
    model = build("ode-transformer:coefficients=learned,gradient=checkpointed", settings)
    save_model(tmp_path, model)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert names == by_role(model).keys() and "decoder.layers.0.cross.q.weight" in names
    for a, b in zip(load_model(tmp_path).parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


# ------------------------------------------------------------------------------------------- names in a Sum


class ToMean(Field):
    def __init__(self) -> None:
        super().__init__()
        self.pull = nn.Parameter(torch.ones(()))

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.pull * (x.mean(1, keepdim=True) - x)


def test_summands_are_called_by_their_name_role_or_class() -> None:
    total = Sum(
        StochasticDepth(PreNorm(nn.LayerNorm(8), SelfAttention(8, 2)), 0.1),
        Scaled(0.5, FeedForward(8)),
        FeedForward(8),
        ToMean(),
        mine=ToMean(),
    )
    assert list(total.fields) == ["attention", "feedforward", "feedforward_2", "to_mean", "mine"]
    assert list(Sum(*terms(SHAPE, cross=True), ToMean()).fields) == ["attention", "cross", "feedforward", "to_mean"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Sum(ToMean(), to_mean=ToMean()), "two fields called 'to_mean'"),
        (lambda: Sum(keys=ToMean()), "a field of a Sum cannot be called 'keys'"),
        (lambda: Sum(**{"a.b": ToMean()}), "a field of a Sum cannot be called 'a.b'"),
        (lambda: Sum(), "a Sum needs at least one field"),
    ],
)
def test_names_that_cannot_be(make: Any, sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        make()


def test_a_class_with_a_name_of_torch_is_renamed() -> None:
    class Float(ToMean):
        pass

    assert list(Sum(Float()).fields) == ["float_field"]


def test_roles_that_would_be_two_weights_keep_their_paths() -> None:
    twice = Stack([stack("parallel", SHAPE).flows[0]])
    field = PreNorm(nn.LayerNorm(8), PreNorm(nn.LayerNorm(8), Sum(SelfAttention(8, 2))))
    twice.flows[0].field = field
    names = role_names(twice)
    assert len(set(names.values())) == len(names) == len(by_role(twice))
    assert names["flows.0.field.norm.weight"] == "flows.0.field.norm.weight"
    other = copy.deepcopy(twice)
    other.load_state_dict(by_role(twice))
