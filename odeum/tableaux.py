"""Runge–Kutta methods as numbers: stage i is k_i = f(t + c_i dt, x + dt Σ_j a_ij k_j), the step x + dt Σ_i b_i k_i.

`error` is b minus the weights of the embedded method of lower order; its sum with the stages estimates the error.
"""

from __future__ import annotations

from typing import NamedTuple


class Tableau(NamedTuple):
    """The numbers of an explicit method."""

    name: str
    order: int
    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] | None = None


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
