"""A tableau is what it claims, or a sentence says what it is not; an adaptive solver takes any embedded pair."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields import Context, Field
from odeum.integrators import BOSH3, DOPRI5, EULER, HEUN, RK4, Adaptive, Tableau
from odeum.tableaux import order_of, rooted_trees

FEHLBERG_A = (
    (),
    (1 / 4,),
    (3 / 32, 9 / 32),
    (1932 / 2197, -7200 / 2197, 7296 / 2197),
    (439 / 216, -8.0, 3680 / 513, -845 / 4104),
    (-8 / 27, 2.0, -3544 / 2565, 1859 / 4104, -11 / 40),
)
FOURTH = (25 / 216, 0.0, 1408 / 2565, 2197 / 4104, -1 / 5, 0.0)
FIFTH = (16 / 135, 0.0, 6656 / 12825, 28561 / 56430, -9 / 50, 2 / 55)


def fehlberg(order: int) -> Tableau:
    """Fehlberg 1969: no stage of it is the first of the next step. Either solution may be taken."""
    b, other = (FOURTH, FIFTH) if order == 4 else (FIFTH, FOURTH)
    error = tuple(x - y for x, y in zip(b, other, strict=True))
    return Tableau(f"rkf45-{order}", order, c=(0.0, 1 / 4, 3 / 8, 12 / 13, 1.0, 1 / 2), a=FEHLBERG_A, b=b, error=error)


HEUN_EULER = Tableau("heun-euler", 2, HEUN.c, HEUN.a, HEUN.b, error=(-1 / 2, 1 / 2))
"""c ends in 1, but the last stage is an Euler step's end and not the step's own"""


class Swing(Field):
    """dx/dt = (x₂, −x₁) cos t: back where it was after π, with a phase of sin t."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        self.calls += 1
        return math.cos(t) * torch.stack((x[..., 1], -x[..., 0]), dim=-1)


@pytest.mark.parametrize(
    "tableau", [BOSH3, DOPRI5, fehlberg(4), fehlberg(5), HEUN_EULER], ids=lambda tableau: tableau.name
)
def test_an_adaptive_solver_keeps_its_tolerance_with_any_pair(tableau: Tableau, float64: None) -> None:
    tolerance = 1e-8 if tableau.order > 3 else 1e-6
    x = torch.tensor([[[1.0, 0.0]]])
    for end in (1.3, -0.7):
        field, solver = Swing(), Adaptive(tableau, rtol=tolerance, atol=tolerance, max_evaluations=100_000)
        found = solver(field, 0.0, end, x, Context())
        phase = math.sin(end)
        exact = torch.tensor([[[math.cos(phase), -math.sin(phase)]]])
        assert (found - exact).abs().max() < 50 * tolerance
        assert solver.evaluations == field.calls


def test_what_a_pair_says_of_itself() -> None:
    pairs = (BOSH3, DOPRI5, fehlberg(4), fehlberg(5), HEUN_EULER)
    assert [pair.first_same_as_last for pair in pairs] == [True, True, False, False, False]
    assert [pair.error_order for pair in pairs] == [3, 5, 5, 5, 2]
    assert not EULER.first_same_as_last and not RK4.first_same_as_last


def test_the_number_of_conditions_is_the_known_one() -> None:
    assert [len(rooted_trees(n)) for n in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]
    assert [order_of(t.a, t.b) for t in (EULER, HEUN, BOSH3, RK4, DOPRI5)] == [1, 2, 3, 4, 5]


GOOD: dict[str, Any] = {"name": "mine", "order": 2, "c": (0.0, 2 / 3), "a": ((), (2 / 3,)), "b": (1 / 4, 3 / 4)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": ""}, "needs a name, not ''"),
        ({"name": 3}, "needs a name, not 3"),
        ({"b": (0.5, 0.6)}, "weights b of the tableau mine sum to 1.1, but should sum to 1"),
        ({"c": (0.0, 0.5)}, "row 2 of a in the tableau mine sums to 0.6666666667, but c there is 0.5"),
        ({"c": (0.5, 2 / 3)}, "row 1 of a in the tableau mine sums to 0, but c there is 0.5"),
        ({"a": ((0.5,), (1 / 3, 1 / 3)), "c": (0.5, 2 / 3)}, "row 1 of a .* must have 0, .* only explicit methods"),
        ({"a": ((), (1 / 3, 1 / 3))}, "row 2 of a in the tableau mine has 2 entries, but must have 1"),
        ({"a": ((), ())}, "row 2 of a in the tableau mine has 0 entries, but must have 1"),
        ({"a": ((), (2 / 3,), (0.0, 1.0))}, "has 2 weights b, but 3 entries in a"),
        ({"c": (0.0,)}, "has 2 weights b, but 1 entries in c"),
        ({"b": (), "c": (), "a": ()}, "has no stages"),
        ({"b": (1 / 4, math.nan)}, "holds nan, which is not a finite number"),
        ({"c": (0.0, math.inf)}, "holds inf"),
        ({"error": (0.5,)}, "has 2 weights b, but 1 entries in error"),
        ({"error": (0.5, 0.5)}, "error weights of the tableau mine sum to 1, but should sum to 0"),
        ({"error": (0.0, 0.0)}, "should sum to 0 and not all be 0"),
        ({"order": 3}, "claims order 3, but its coefficients have order 2"),
        ({"order": 12}, "claims order 12, but its coefficients have order 2"),
        ({"order": 0}, "must be a positive integer, not 0"),
        ({"order": 2.0}, "must be a positive integer, not 2.0"),
        ({"order": True}, "must be a positive integer, not True"),
        ({"b": "ab"}, "must contain numbers"),
        ({"a": (None, (1.0,))}, "must contain numbers"),
    ],
)
def test_wrong_numbers_are_refused(change: dict[str, Any], sentence: str) -> None:
    ralston = Tableau(**GOOD)
    with pytest.raises(OdeumError, match=sentence) as raised:
        Tableau(**{**GOOD, **change})
    with pytest.raises(OdeumError, match=sentence):
        ralston._replace(**change)
    assert "\n" not in str(raised.value)


def test_a_tableau_is_a_value() -> None:
    exact = Tableau("mine", 2, [0, Fraction(2, 3)], [[], [Fraction(2, 3)]], [Fraction(1, 4), Fraction(3, 4)])
    assert exact == Tableau(**GOOD) and hash(exact) == hash(Tableau(**GOOD))
    assert pickle.loads(pickle.dumps(DOPRI5)) == DOPRI5 and copy.deepcopy(DOPRI5) == DOPRI5
    assert isinstance(DOPRI5._replace(name="other"), Tableau)


@pytest.mark.parametrize("tolerances", [(0.0, 0.0), (-1.0, 1e-3), (math.nan, 1e-3), (1e-3, math.inf)])
def test_tolerances_that_are_none_are_refused(tolerances: tuple[float, float]) -> None:
    with pytest.raises(OdeumError, match="needs a positive tolerance"):
        Adaptive(DOPRI5, *tolerances)
