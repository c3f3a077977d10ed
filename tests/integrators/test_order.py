"""Every method has the order it claims, measured against exact solutions and on a real transformer field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from torch import Tensor

from odeum.architectures.parts import make_method, place_norms, tableaux
from odeum.fields import Context, FeedForward, Field, SelfAttention, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import BOSH3, DOPRI5, Coupled, FixedSteps, LieTrotter, Method, RungeKutta, Strang, Tableau
from odeum.integrators.multistep import weights
from odeum.models.settings import Shape
from odeum.registry.names import METHODS

pytestmark = pytest.mark.usefixtures("float64")

ORDERS = {
    "lie-trotter": 1,
    "strang": 1,
    "strang-midpoint": 2,
    "euler": 1,
    "midpoint": 2,
    "heun": 2,
    "rk4": 4,
    "rk4-38": 4,
    "bosh3": 3,
    "dopri5": 5,
    "adams-bashforth": 2,
    "adams-bashforth-3": 3,
    "adams-bashforth-4": 4,
    "adams-moulton": 3,
    "adams-moulton-4": 4,
    "leapfrog": 2,
    "reversible-heun": 2,
    "implicit-midpoint": 2,
}


class Linear(Field):
    """dx/dt = s(t) A x."""

    def __init__(self, matrix: Tensor, speed: Callable[[float], float] = lambda t: 1.0) -> None:
        super().__init__()
        self.matrix = matrix
        self.speed = speed

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.speed(t) * (x @ self.matrix.mT)


def matrices(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 4, generator=generator, dtype=torch.float64) / 2 for _ in range(count)]


def measured_order(method: Method, field: Field, x: Tensor, exact: Tensor, counts: tuple[int, ...]) -> float:
    """The slope of log error over log step, by the last halving, which is nearest to the limit."""
    errors = []
    with torch.no_grad():
        for count in counts:
            errors.append((Flow(field, FixedSteps(method, count))(x) - exact).norm().item())
    ratio = counts[-1] / counts[-2]
    assert errors[-1] > 1e-13, "nothing left but rounding: the measurement would mean nothing"
    return math.log(errors[-2] / errors[-1]) / math.log(ratio)


def counts_for(name: str, order: int) -> tuple[int, ...]:
    """Many steps for a low order; few for a high one, before rounding is reached; more for many steps' memory."""
    if name.startswith(("adams-bashforth-", "adams-moulton")):
        return (64, 128)
    return (64, 128) if order == 1 else (32, 64) if order < 4 else (16, 32)


def test_every_method_is_measured() -> None:
    assert set(ORDERS) == set(METHODS)


@pytest.mark.parametrize(("name", "order"), ORDERS.items())
def test_order_against_the_matrix_exponential(name: str, order: int) -> None:
    a, b = matrices(2)
    assert (a @ b - b @ a).norm() > 0.1
    x = torch.randn(1, 3, 4)
    exact = x @ torch.linalg.matrix_exp(a + b).mT
    found = measured_order(make_method(name), Sum(Linear(a), Linear(b)), x, exact, counts_for(name, order))
    assert found == pytest.approx(order, abs=0.1)
    assert make_method(name).order == order


@pytest.mark.parametrize(("name", "order"), ORDERS.items())
def test_order_where_the_field_depends_on_time(name: str, order: int) -> None:
    """dx/dt = 2t A x + 2t A x / 2 ends at exp(3/2 A) x: the nodes c and the times of the half steps are right."""
    (a,) = matrices(1)
    x = torch.randn(1, 3, 4)
    field = Sum(Linear(a, lambda t: 2 * t), Linear(a / 2, lambda t: 2 * t))
    exact = x @ torch.linalg.matrix_exp(1.5 * a).mT
    found = measured_order(make_method(name), field, x, exact, counts_for(name, order))
    assert found == pytest.approx(order, abs=0.1)


@cache
def transformer_field() -> tuple[Field, Tensor, Tensor]:
    """Attention and feed-forward with their norms, a state, and where it is at t = 1."""
    generator = torch.random.get_rng_state()
    torch.manual_seed(3)
    field = place_norms(
        [SelfAttention(8, 2), FeedForward(8, 16)], "pre", Shape(width=8, heads=2, norm_eps=1e-2)
    ).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.random.set_rng_state(generator)
    with torch.no_grad():
        return field, x, FixedSteps(RungeKutta(DOPRI5), 200)(field, 0.0, 1.0, x, Context())


def field_counts(name: str, order: int) -> tuple[int, int]:
    """What remembers many steps needs many to come near to its order."""
    remembers = name.startswith(("adams-bashforth-", "adams-moulton"))
    return (32, 64) if order < 3 or not remembers else (64, 128) if order == 3 else (128, 256)


@pytest.mark.parametrize(("name", "order"), ORDERS.items())
def test_order_on_attention_and_feed_forward(name: str, order: int) -> None:
    field, x, exact = transformer_field()
    found = measured_order(make_method(name), field, x, exact, field_counts(name, order))
    assert found == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("name", ["euler", "heun", "bosh3", "rk4", "strang-midpoint"])
def test_a_coupling_has_the_order_of_its_base(name: str) -> None:
    field, x, exact = transformer_field()
    coupled = Coupled(make_method(name), 0.5)  # near λ = 1 the limit begins at steps below 1 − λ
    assert coupled.order == ORDERS[name]
    counts = (64, 128) if ORDERS[name] < 4 else (32, 64)
    assert measured_order(coupled, field, x, exact, counts) == pytest.approx(ORDERS[name], abs=0.15)


def test_strang_over_euler_is_first_order_with_a_smaller_error_than_lie_trotter() -> None:
    field, x, exact = transformer_field()
    errors = [(FixedSteps(m, 64)(field, 0.0, 1.0, x, Context()) - exact).norm() for m in (LieTrotter(), Strang())]
    assert errors[1] < errors[0]


def slope(errors: list[float], counts: tuple[int, int]) -> float:
    return math.log(errors[0] / errors[1]) / math.log(counts[1] / counts[0])


REMEMBERING = [
    *[("adams-bashforth", 2), ("adams-bashforth-3", 3), ("adams-bashforth-4", 4), ("leapfrog", 2)],
    *[("adams-moulton", 3), ("adams-moulton-4", 4)],
    ("reversible-heun", 2),
]


@pytest.mark.parametrize(("name", "order"), REMEMBERING)
@pytest.mark.parametrize("steps", [1, 2])
def test_a_method_that_remembers_has_its_order_across_layers_of_one_field(name: str, order: int, steps: int) -> None:
    """One step a layer, and what it remembers comes from the layer before; with two, from either."""
    field, x, exact = transformer_field()
    counts, errors = field_counts(name, order), []
    for count in counts:
        layers = count // steps
        shared = Flow(field, FixedSteps(make_method(name), steps * layers), 0.0, 1.0 / layers)
        with torch.no_grad():
            errors.append((Stack([shared], [0] * layers)(x) - exact).norm().item())
    assert slope(errors, counts) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize(("name", "order"), REMEMBERING)
def test_a_method_that_remembers_has_its_order_over_uneven_steps(name: str, order: int) -> None:
    """Layers of length h and 2h in turn: the formula for equal steps would be of first order only."""
    field, x, exact = transformer_field()
    counts, errors = (32, 64) if order < 4 else (64, 128), []
    for count in counts:
        ends = [1.0 / (3 * count), 2.0 / (3 * count)]
        flows = [Flow(field, FixedSteps(make_method(name)), 0.0, end) for end in ends]
        with torch.no_grad():
            errors.append((Stack(flows, [0, 1] * count)(x) - exact).norm().item())
    assert slope(errors, counts) == pytest.approx(order, abs=0.15)


def test_equal_steps_have_the_weights_of_the_books() -> None:
    for lengths, known in {
        2: (3 / 2, -1 / 2),
        3: (23 / 12, -16 / 12, 5 / 12),
        4: (55 / 24, -59 / 24, 37 / 24, -9 / 24),
    }.items():
        assert weights([0.3] * lengths) == pytest.approx(known, abs=1e-14)
    assert weights([0.5, 0.5]) == (1.5, -0.5)


@pytest.mark.parametrize(("tableau", "order"), [(BOSH3, 2), (DOPRI5, 4)])
def test_the_embedded_solution_has_one_order_less(tableau: Tableau, order: int) -> None:
    """b − error are the weights of the embedded method, so `error` estimates what the lower order leaves out."""
    assert tableau.error is not None
    lower = tuple(b - e for b, e in zip(tableau.b, tableau.error, strict=True))
    embedded = RungeKutta(tableau._replace(name="embedded", order=order, b=lower))
    field, x, exact = transformer_field()
    assert measured_order(embedded, field, x, exact, (32, 64)) == pytest.approx(order, abs=0.1)


Tree = tuple["Tree", ...]


@cache
def rooted_trees(order: int) -> frozenset[Tree]:
    """Rooted trees with `order` vertices: one condition each (Butcher)."""
    return frozenset({()}) if order == 1 else frozenset(big for tree in rooted_trees(order - 1) for big in grown(tree))


def grown(tree: Tree) -> Iterator[Tree]:
    """The tree with one leaf more, at each place."""
    yield tuple(sorted((*tree, ())))
    for i, child in enumerate(tree):
        for bigger in grown(child):
            yield tuple(sorted((*tree[:i], bigger, *tree[i + 1 :])))


def vertices(tree: Tree) -> int:
    return 1 + sum(map(vertices, tree))


def density(tree: Tree) -> int:
    return vertices(tree) * math.prod(map(density, tree))


def violation(tableau: Tableau, tree: Tree) -> float:
    """|Σ b_i Φ_i(tree) − 1/γ(tree)|."""
    size = len(tableau.b)
    a = torch.tensor([[*row, *[0.0] * (size - len(row))] for row in tableau.a])

    def inner(tree: Tree) -> Tensor:
        out = torch.ones(size)
        for child in tree:
            out = out * (a @ inner(child))
        return out

    return abs(float(torch.tensor(tableau.b) @ inner(tree)) - 1 / density(tree))


def test_the_number_of_order_conditions_is_the_known_one() -> None:
    assert [len(rooted_trees(order)) for order in range(1, 7)] == [1, 1, 2, 4, 9, 20]


@pytest.mark.parametrize("tableau", tableaux().values(), ids=tableaux())
def test_tableaux_satisfy_the_order_conditions_and_no_more(tableau: Tableau) -> None:
    for order in range(1, tableau.order + 1):
        for tree in rooted_trees(order):
            assert violation(tableau, tree) < 1e-14, f"{tableau.name}: {tree}"
    assert max(violation(tableau, tree) for tree in rooted_trees(tableau.order + 1)) > 1e-4


@pytest.mark.parametrize("tableau", tableaux().values(), ids=tableaux())
def test_tableaux_are_consistent(tableau: Tableau) -> None:
    """Rows sum to their nodes, weights to one, the error to zero; the embedded pairs end where the next step begins."""
    assert sum(tableau.b) == pytest.approx(1, abs=1e-15)
    for i, (c, row) in enumerate(zip(tableau.c, tableau.a, strict=True)):
        assert len(row) == i
        assert sum(row) == pytest.approx(c, abs=1e-14)
    if tableau.error is not None:
        assert sum(tableau.error) == pytest.approx(0, abs=1e-15)
        assert tableau.a[-1] == tableau.b[:-1]
        assert tableau.c[-1] == 1.0
