"""Schedules: the index of the layer whose weights act at each depth."""

from __future__ import annotations

from odeum.errors import OdeumError


def sequence(depth: int, independent: int) -> tuple[int, ...]:
    """Neighbours share weights: sequence(6, 3) = 0 0 1 1 2 2. Each ODE is integrated over depth / independent."""
    _check(depth, independent)
    return tuple(i * independent // depth for i in range(depth))


def cycle(depth: int, independent: int) -> tuple[int, ...]:
    """The whole stack repeats: cycle(6, 3) = 0 1 2 0 1 2."""
    _check(depth, independent)
    return tuple(i % independent for i in range(depth))


def explicit(text: str, depth: int) -> tuple[int, ...]:
    """Reads a schedule: explicit("0-2/1-2", 5) = 0 1 2 1 2. It must be as long as the depth and use every layer."""
    spans = [_span(item, text) for item in text.split("/")]
    length = sum(last - first + 1 for first, last in spans)
    if length != depth:  # counted before anything so long is made
        raise OdeumError(f"schedule={text} has {length} places, but the depth is {depth} layers; they must be equal")
    order = tuple(index for first, last in spans for index in range(first, last + 1))
    if left := sorted(set(range(max(order))) - set(order)):
        raise OdeumError(f"schedule={text} omits layer {left[0]}; it must use each from 0 to {max(order)}")
    return order


def _span(item: str, text: str) -> tuple[int, int]:
    first, dash, last = item.partition("-")
    if not all(end.isascii() and end.isdigit() for end in ([first, last] if dash else [first])):
        raise OdeumError(f"'{item}' in schedule={text} must be a layer or a row of them, as in 0-5/4-5/6-10")
    low, high = int(first), int(last or first)
    if high < low:
        raise OdeumError(f"'{item}' in schedule={text} must be ascending, as in {high}-{low}")
    return low, high


SCHEDULES = {"sequence": sequence, "cycle": cycle}


def _check(depth: int, independent: int) -> None:
    if independent < 1 or depth % independent:
        divisors = ", ".join(str(k) for k in range(1, depth + 1) if depth % k == 0)
        raise OdeumError(f"independent={independent} does not divide the depth of {depth} layers; it may be {divisors}")
