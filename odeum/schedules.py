"""Which weights act when: a schedule is the row of indices of the layer that acts at each depth."""

from __future__ import annotations

from odeum.errors import OdeumError


def sequence(depth: int, independent: int) -> tuple[int, ...]:
    """Neighbours share: sequence(6, 3) = 0 0 1 1 2 2. Each ODE is integrated over depth / independent."""
    _check(depth, independent)
    return tuple(i * independent // depth for i in range(depth))


def cycle(depth: int, independent: int) -> tuple[int, ...]:
    """The whole stack repeats: cycle(6, 3) = 0 1 2 0 1 2."""
    _check(depth, independent)
    return tuple(i % independent for i in range(depth))


SCHEDULES = {"sequence": sequence, "cycle": cycle}


def _check(depth: int, independent: int) -> None:
    if independent < 1 or depth % independent:
        divisors = ", ".join(str(k) for k in range(1, depth + 1) if depth % k == 0)
        raise OdeumError(f"independent={independent} does not divide the depth of {depth} layers; it may be {divisors}")
