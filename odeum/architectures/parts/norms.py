"""Placement of norms, and rates of stochastic depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from odeum.errors import choose
from odeum.fields import Field, PeriNorm, PostNorm, PreNorm, Scaled, StochasticDepth, Sum
from odeum.fields.algebra import by_name
from odeum.models.settings import Segment, Shape


def make_norm(shape: Shape) -> nn.Module:
    """Returns a norm of the kind in the shape."""
    choose(shape.norm_kind, ("layer", "rms"), "norm_kind")
    kind = nn.LayerNorm if shape.norm_kind == "layer" else nn.RMSNorm
    return kind(shape.width, eps=shape.norm_eps)


def place_norms(
    fields: Sequence[Field] | Mapping[str, Field], placement: str, shape: Shape, rate: float = 0.0
) -> Field:
    """Returns the branches with norms and stochastic depth: out(x + res(f(in(x)))).

    Branches without names are named by their roles.
    """
    branches = fields if isinstance(fields, Mapping) else by_name(*fields)

    def alive(field: Field) -> Field:
        return StochasticDepth(field, rate) if rate else field

    def each(place: Callable[[Field], Field]) -> Sum:
        return Sum(**{name: place(field) for name, field in branches.items()})

    def norm() -> nn.Module:
        return make_norm(shape)

    def ended(field: Field) -> Field:
        if isinstance(field, Scaled):  # inside, the norm would undo the factor
            return Scaled(field.factor, ended(field.field))
        return PeriNorm(norm() if placement == "peri" else nn.Identity(), field, norm())

    match placement:
        case "pre":
            return each(lambda field: alive(PreNorm(norm(), field)))
        case "peri" | "branch":
            return each(lambda field: alive(ended(field)))
        case "post":
            return each(lambda field: PostNorm(alive(field), norm()))
        case "shared":
            return PreNorm(norm(), each(alive))
        case "post-sum":
            return PostNorm(each(alive), norm())
    choose(placement, ("pre", "shared", "post", "post-sum", "peri", "branch"), "norm placement")
    raise AssertionError(placement)


def depth_rates(shape: Shape, count: int) -> list[float]:
    """Returns rates of stochastic depth that grow linearly from 0, as in DeiT; a single layer gets the whole rate."""
    rate = shape.stochastic_depth
    if isinstance(shape, Segment):
        low, span = shape.begin, shape.end - shape.begin
        return [rate * (low + span * (i / (count - 1) if count > 1 else 1.0)) for i in range(count)]
    return [rate] if count == 1 else [rate * i / (count - 1) for i in range(count)]
