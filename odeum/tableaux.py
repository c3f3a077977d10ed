"""Runge–Kutta methods as numbers: stage i is k_i = f(t + c_i dt, x + dt Σ_j a_ij k_j), the step x + dt Σ_i b_i k_i.

`error` is b minus the weights of the embedded method of lower order; its sum with the stages estimates the error.

A method has order p if Butcher's conditions Σ b_i Φ_i(tree) = 1/γ(tree) hold for all rooted trees of up to p vertices.
A rooted tree is the tuple of its branches; () is a single vertex.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from odeum.errors import OdeumError

Tree = tuple["Tree", ...]

TOLERANCE = 1e-8
"""tolerance of the conditions: coefficients are rounded, some are published as decimals"""
HIGHEST = 8
"""the highest order that is checked, by 200 conditions"""


@cache
def rooted_trees(vertices: int) -> frozenset[Tree]:
    """Returns all rooted trees with this number of vertices; each is one order condition."""
    if vertices == 1:
        return frozenset({()})
    return frozenset(bigger for tree in rooted_trees(vertices - 1) for bigger in _with_a_leaf(tree))


def _with_a_leaf(tree: Tree) -> Iterator[Tree]:
    yield tuple(sorted((*tree, ())))
    for i, branch in enumerate(tree):
        for bigger in _with_a_leaf(branch):
            yield tuple(sorted((*tree[:i], bigger, *tree[i + 1 :])))


@cache
def _size(tree: Tree) -> int:
    return 1 + sum(map(_size, tree))


@cache
def _density(tree: Tree) -> int:
    return _size(tree) * math.prod(map(_density, tree))


def order_of(a: Sequence[Sequence[float]], b: Sequence[float], most: int = HIGHEST) -> int:
    """Returns the order up to which every condition holds, at most `most`."""
    weights: dict[Tree, list[float]] = {}

    def elementary(tree: Tree) -> list[float]:
        """Φ_i(tree) for each stage i."""
        if tree not in weights:
            branches = [elementary(branch) for branch in tree]
            weights[tree] = [
                math.prod(sum(x * y for x, y in zip(row, branch, strict=False)) for branch in branches) for row in a
            ]
        return weights[tree]

    def holds(tree: Tree) -> bool:
        weight = sum(x * y for x, y in zip(b, elementary(tree), strict=True))
        return abs(weight - 1.0 / _density(tree)) <= TOLERANCE

    for order in range(1, most + 1):
        if not all(map(holds, rooted_trees(order))):
            return order - 1
    return most


class _Numbers(NamedTuple):
    name: str
    order: int
    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] | None = None


class Tableau(_Numbers):
    """The coefficients of an explicit method; lengths, sums and the order (Butcher's conditions) are checked.

    Arguments: its name; the order that it claims (conditions up to order 8 are checked); nodes c; a row of a for each
    stage, as long as the stages before it; weights b; for an embedded pair `error`, b minus the other weights.
    """

    __slots__ = ()

    def __new__(
        cls,
        name: str,
        order: int,
        c: Iterable[float],
        a: Iterable[Iterable[float]],
        b: Iterable[float],
        error: Iterable[float] | None = None,
    ) -> Tableau:
        if not isinstance(name, str) or not name.strip():
            raise OdeumError(f"a tableau needs a name, not {name!r}")
        try:
            rows = tuple(_floats(row) for row in a)
            made = super().__new__(
                cls, name, order, _floats(c), rows, _floats(b), None if error is None else _floats(error)
            )
        except (TypeError, ValueError):
            raise OdeumError(f"the tableau {name} must contain numbers: c, b, error in a row, a in rows") from None
        made._check()
        return made

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Tableau:
        """Checks in `_replace` too."""
        return cls(*iterable)

    def _check(self) -> None:
        name, order, c, a, b, error = self
        stages = len(b)
        if not stages:
            raise OdeumError(f"the tableau {name} has no stages: b is empty")
        for what, row in (("c", c), ("a", a), ("error", error)):
            if row is not None and len(row) != stages:
                raise OdeumError(f"the tableau {name} has {stages} weights b, but {len(row)} entries in {what}")
        if bad := [x for row in (c, b, error or (), *a) for x in row if not math.isfinite(x)]:
            raise OdeumError(f"the tableau {name} holds {bad[0]}, which is not a finite number")
        for i, (node, row) in enumerate(zip(c, a, strict=True), 1):
            if len(row) != i - 1:
                raise OdeumError(
                    f"row {i} of a in the tableau {name} has {len(row)} entries, but must have {i - 1}, one for each "
                    "stage before it: only explicit methods can be stepped"
                )
            if abs(sum(row) - node) > TOLERANCE:
                raise OdeumError(
                    f"row {i} of a in the tableau {name} sums to {sum(row):.10g}, but c there is {node:.10g}"
                )
        if abs(sum(b) - 1.0) > TOLERANCE:
            raise OdeumError(f"the weights b of the tableau {name} sum to {sum(b):.10g}, but should sum to 1")
        if error is not None and (abs(sum(error)) > TOLERANCE or not any(error)):
            raise OdeumError(
                f"the error weights of the tableau {name} sum to {sum(error):.10g}, but should sum to 0 and not all be "
                "0: they are b minus the weights of another method"
            )
        if not isinstance(order, int) or isinstance(order, bool) or order < 1:
            raise OdeumError(f"the order of the tableau {name} must be a positive integer, not {order!r}")
        if (actual := order_of(a, b, min(order, HIGHEST))) < min(order, HIGHEST):
            raise OdeumError(f"the tableau {name} claims order {order}, but its coefficients have order {actual}")

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is the field at the end of the step, which the next step can reuse (FSAL)."""
        return self.c[-1] == 1.0 and self.b[-1] == 0.0 and self.a[-1] == self.b[:-1]

    @property
    def error_order(self) -> int:
        """The power of dt with which the estimated error of a step shrinks."""
        return _error_order(self)


def _floats(numbers: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(x) for x in numbers)


@cache
def _error_order(tableau: Tableau) -> int:
    """One more than the lower of the two orders: the higher one leaves less."""
    assert tableau.error is not None
    other = [b - e for b, e in zip(tableau.b, tableau.error, strict=True)]
    return 1 + min(tableau.order, order_of(tableau.a, other, min(tableau.order, HIGHEST)))


EULER = Tableau("euler", 1, c=(0.0,), a=((),), b=(1.0,))
MIDPOINT = Tableau("midpoint", 2, c=(0.0, 1 / 2), a=((), (1 / 2,)), b=(0.0, 1.0))
HEUN = Tableau("heun", 2, c=(0.0, 1.0), a=((), (1.0,)), b=(1 / 2, 1 / 2))
RK4 = Tableau(
    "rk4",
    4,
    c=(0.0, 1 / 2, 1 / 2, 1.0),
    a=((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
)
RK4_38 = Tableau(  # what torchdiffeq calls rk4
    "rk4-38",
    4,
    c=(0.0, 1 / 3, 2 / 3, 1.0),
    a=((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
)
BOSH3 = Tableau(  # Bogacki & Shampine 1989
    "bosh3",
    3,
    c=(0.0, 1 / 2, 3 / 4, 1.0),
    a=((), (1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    b=(2 / 9, 1 / 3, 4 / 9, 0.0),
    error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
)
DOPRI5 = Tableau(  # Dormand & Prince 1980
    "dopri5",
    5,
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    b=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    error=(
        35 / 384 - 5179 / 57600,
        0.0,
        500 / 1113 - 7571 / 16695,
        125 / 192 - 393 / 640,
        -2187 / 6784 + 92097 / 339200,
        11 / 84 - 187 / 2100,
        -1 / 40,
    ),
)
