"""Every name in the registry keeps every line of the contract; what a plugin breaks is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from registries import kept_registries
from torch import Tensor, nn

import odeum
from odeum.fields import Context, Field, Sum
from odeum.lab.testing import CONTRACT, ContractBroken, check
from odeum.models.settings import Shape
from odeum.registry.names import ARCHITECTURES

EXTRA = [
    *("looped:inject=stable,exit=0.1", "looped:inject=concat,through=2", "parallel*2+mhc*1+rk4*1"),
    *("sequential:schedule=0-1/0-1", "mhc:mixing=permutations", "parallel:weights=knots,knots=3", "rk4:weights=hyper"),
    *("sequential:weights=adaln", "parallel:weights=legendre", "hyper:mixing=identity", "value-residual:source=input"),
    *("moda:method=rk4", "value-residual:method=midpoint,independent=2"),
    *("mudd:method=euler,independent=2", "keel:method=rk4", "ngpt:method=strang,form=macaron"),
]
SLOW = {"compiles", "generates under transformers", "trains on digits", "trains on text"}
ELSEWHERE = {"every weight learns": "test_architectures.py", "decodes with a cache": "test_decode.py"}
"""where the registry keeps it in other sizes already"""


IN_TURNS = ("is saved and loaded", "takes plain weights")
"""of which an architecture is asked one by default"""


def cases() -> Iterator[Any]:
    for line in CONTRACT:
        for i, architecture in enumerate([*ARCHITECTURES, *EXTRA]):
            again = line in ELSEWHERE and architecture not in EXTRA
            again |= line in IN_TURNS and i % 2 == IN_TURNS.index(line)
            yield pytest.param(line, architecture, marks=pytest.mark.slow if line in SLOW or again else ())


@pytest.mark.parametrize(("line", "architecture"), list(cases()))
def test_contract(line: str, architecture: str) -> None:
    if reason := check(line, architecture):
        pytest.skip(reason)


# ------------------------------------------------------------------------------------------ a plugin may run it too


class Pull(Field):
    """Every particle is drawn to the mean of those before it; what it must know of them it does not say."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(0.1))
        self.wrong = wrong
        self.cached = wrong == "cached"
        if wrong == "idle":
            self.idle = nn.Parameter(torch.zeros(3))

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        weights = torch.ones_like(x[..., :1])
        if self.wrong != "padding" and context.own.mask is not None and context.own.mask.dim() == 4:
            weights = context.own.mask[:, 0, -1, :, None].to(x)
        count, total = weights.cumsum(1).clamp(min=1), (weights * x).cumsum(1)
        if not context.own.causal:
            count, total = count[:, -1:], total[:, -1:]
        return self.strength * (total / count - x)


@dataclass(frozen=True)
class Pulled(odeum.Stepped):
    """Attention, feed-forward and a pull."""

    wrong: str = "nothing"

    def field(self, shape: Shape, cross: bool = False) -> Field:
        return Sum(*odeum.terms(shape, cross), pull=Pull(self.wrong))


@pytest.fixture
def pulled() -> Iterator[None]:
    with kept_registries():
        odeum.register.architecture("pulled", Pulled())
        yield


@pytest.mark.parametrize("line", [line for line in CONTRACT if line not in SLOW])
def test_a_plugin_keeps_it(line: str, pulled: None) -> None:
    reason = check(line, "pulled:method=rk4")
    assert (reason is not None) == (line == "decodes with a cache"), "whose past is not kept, and it says so"


@pytest.mark.parametrize(
    ("wrong", "line", "sentence"),
    [
        ("idle", "every weight learns", "pull.idle'] has no gradient in an encoder"),
        ("padding", "padding changes nothing", "padding on the left of a prompt changes it"),
        ("cached", "decodes with a cache", "a cached pass has other outputs"),
    ],
)
def test_what_a_plugin_breaks_is_named(wrong: str, line: str, sentence: str, pulled: None) -> None:
    with pytest.raises(ContractBroken) as error:
        check(line, f"pulled:wrong={wrong}")
    assert sentence in str(error.value)


def test_the_callers_random_numbers_stay() -> None:
    before = torch.get_rng_state()
    check("takes plain weights", "rk4")
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(odeum.OdeumError, match="unknown line of the contract 'lerns'"):
        check("lerns", "rk4")
