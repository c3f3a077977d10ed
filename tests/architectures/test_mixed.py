"""Schedules layer by layer and layers of several architectures in a row: each is what its parts are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from odeum import build
from odeum.architectures import stack
from odeum.fields import Cache, Context, Source, StochasticDepth
from odeum.fields.roles import by_role
from odeum.flow import Stack
from odeum.lab.cli import main
from odeum.models.saved import load_model, save_model
from odeum.models.settings import Shape
from odeum.registry.spelling import parse

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)
TEXT: dict[str, Any] = {"vocabulary": 17, "width": 8, "heads": 2, "depth": 4, "hidden": 16}
STACKS = [
    "parallel:schedule=0-1/0-1",
    "rk4:schedule=0/1/0/2",
    "parallel*2+rk4*1+sequential*1",
    "mhc*2+adams-bashforth*2",
    "dense*2+dense*2",
    "attention-residuals*2+attention-residuals:block=2*2",
    "transevolve:blocks=2*2+sequential*2",
    "post-norm*2+parallel:independent=1*2",
]


def same(one: nn.Module, other: nn.Module, cross: bool = False) -> None:
    one.load_state_dict(by_role(other))
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 3, 8) if cross else None
    context = Context(own=Source(causal=cross), other=Source(memory=memory))
    assert torch.equal(one(x, context), other(x, context))


@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("parallel:schedule=0/0/1/1", "parallel:independent=2"),
        ("rk4:schedule=0-1/0-1", "rk4:independent=2,sharing=cycle"),
        ("transevolve:schedule=0/0/1/1", "transevolve:independent=2"),
        ("parallel*4", "parallel"),
        ("sequential*1+sequential*3", "sequential"),
        ("parallel:independent=1*2+parallel:independent=1*2", "parallel:independent=2"),
        ("transevolve*4", "transevolve"),
        ("mhc*4", "mhc"),
        ("attention-residuals*4", "attention-residuals"),
        ("leapfrog*1+leapfrog*3", "parallel*1+leapfrog*3"),  # a history ends with its part: Euler makes a first step
    ],
)
def test_what_is_spelled_in_another_way_is_the_same(spelling: str, plain: str, cross: bool) -> None:
    same(stack(spelling, SHAPE, cross), stack(plain, SHAPE, cross), cross)


def test_a_mixed_stack_is_its_parts_one_after_the_other() -> None:
    whole = stack("mhc*2+adams-bashforth*2", SHAPE)
    parts = [stack(name, dataclasses.replace(SHAPE, depth=2)) for name in ("mhc", "adams-bashforth")]
    assert isinstance(whole, Stack) and isinstance(parts[0], Stack) and isinstance(parts[1], Stack)
    weights = by_role(parts[0]) | {
        name.replace(f"layers.{i}.", f"layers.{i + 2}."): w
        for i in (1, 0)
        for name, w in by_role(parts[1]).items()
        if f"layers.{i}." in name or name.startswith("norm")
    }
    whole.load_state_dict(weights)
    x = torch.randn(2, 5, 8)
    *_, middle = parts[0].trajectory(x)
    torch.testing.assert_close(whole(x), parts[1](middle), rtol=0, atol=1e-12)


def test_stochastic_depth_grows_through_all_parts() -> None:
    shape = dataclasses.replace(SHAPE, stochastic_depth=0.3, depth=7)

    def rates(spelling: str) -> list[float]:
        return [part.rate for part in stack(spelling, shape).modules() if isinstance(part, StochasticDepth)]

    assert rates("parallel*2+parallel*1+parallel*4") == pytest.approx(rates("parallel"), abs=1e-15)


@pytest.mark.parametrize("spelling", STACKS)
def test_every_weight_learns_and_a_cache_recomputes(spelling: str) -> None:
    model = build(spelling, "language_small", **TEXT)
    ids, cache = torch.randint(0, 17, (3, 7)), Cache()
    whole = model(ids).logits
    whole.pow(3).sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]
    for start, end in ((0, 4), (4, 5), (5, 7)):
        found = model.eval()(ids[:, start:end], cache=cache).logits
        torch.testing.assert_close(found, whole[:, start:end], rtol=0, atol=1e-11)


@pytest.mark.parametrize("spelling", ["parallel:schedule=0-2/1", "parallel*2+rk4:steps=2*1+sequential*1"])
def test_it_is_saved_and_loaded(spelling: str, tmp_path: Path) -> None:
    model = build(spelling, "language_small", **TEXT).eval()
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    ids = torch.randint(0, 17, (2, 5))
    assert again.architecture == parse(spelling)
    assert torch.equal(again.double()(ids).logits, model(ids).logits)


def test_described_as_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_default_dtype(torch.float32)
    assert main(["describe", "parallel*1+rk4*1", "--model", "vit_8", "--depth", "2"]) == 0
    out = capsys.readouterr().out
    assert "x ← x + G(N(x)) + F(N(x))" in out and "k4 = " in out and "0 1" in out and "parallel*1+rk4*1" in out
