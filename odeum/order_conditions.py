"""Butcher's order conditions: a Runge–Kutta method is of order p if Σ b_i Φ_i(tree) = 1/γ(tree) for all trees of ≤ p.

A rooted tree is the tuple of its branches; () is a single vertex.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

Tree = tuple["Tree", ...]

TOLERANCE = 1e-8
"""by how much a condition may be missed: coefficients are rounded, some are published as decimals"""
HIGHEST = 8
"""the highest order that is checked; its conditions are 200"""


@cache
def rooted_trees(vertices: int) -> frozenset[Tree]:
    """All rooted trees with so many vertices: one condition each."""
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
    """The order up to which every condition holds, `most` at most."""
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
        found = sum(x * y for x, y in zip(b, elementary(tree), strict=True))
        return abs(found - 1.0 / _density(tree)) <= TOLERANCE

    for order in range(1, most + 1):
        if not all(map(holds, rooted_trees(order))):
            return order - 1
    return most
