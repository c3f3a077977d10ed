"""Which part of a product is tried by default: the rest of it is `slow`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def meeting(*choices: Sequence[Any]) -> list[Any]:
    """The product of choices, of which a part is not slow: each two of three or more meet in it; of two, all occur.

    Rows whose places add up to a multiple of the shortest choice's length: whatever two of them are, some third fits.
    """
    least = min(map(len, choices))
    rows = itertools.product(*map(enumerate, choices))
    return [
        pytest.param(*(value for _, value in row), marks=pytest.mark.slow if sum(i for i, _ in row) % least else ())
        for row in rows
    ]


def every_second(choices: Iterable[Any], turn: int = 0) -> list[Any]:
    """All of them; those between are slow. For what another test tries of each of them."""
    return [pytest.param(c, marks=pytest.mark.slow if (i + turn) % 2 else ()) for i, c in enumerate(choices)]
