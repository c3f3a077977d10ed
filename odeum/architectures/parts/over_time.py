"""Weights that depend on time: one field for all layers, by knots, by a network of the time, or through norms alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torch import nn

from odeum.architectures.parts.norms import depth_rates, make_norm, place_norms
from odeum.architectures.stepped import OverTime
from odeum.errors import OdeumError
from odeum.fields import Field, PreNorm, StochasticDepth, Sum
from odeum.fields.bases import Basis, HyperNetwork, Knots, Legendre
from odeum.fields.hypernetwork import AdaptiveNorm, TimedField
from odeum.models.settings import Shape

DEFAULT_KNOTS = 4
DEFAULT_DEGREE = 3
DEFAULT_RANK = 4
OPTIONS = {"knots": "knots", "between": "knots", "degree": "legendre", "rank": "hyper"}
"""which kind of weights an option belongs to"""


def field_over_time(settings: OverTime, branches: Callable[[], Mapping[str, Field]], norm: str, shape: Shape) -> Field:
    """The field of all layers; each call of `branches` makes new terms."""
    check_options(settings)
    if settings.weights == "constant":
        return place_norms(branches(), norm, shape, shape.stochastic_depth)
    if norm in ("post", "post-sum"):
        raise OdeumError(
            f"weights={settings.weights} depends on time, but a norm after the step (norm={norm}) has no time; "
            "use norm=pre"
        )
    if settings.weights == "adaln":
        return _adapted(branches(), norm, shape)
    basis: Callable[[int], Basis]
    end = float(shape.depth)
    if settings.weights == "knots":
        count = settings.knots or min(DEFAULT_KNOTS, shape.depth)
        if count > shape.depth:
            raise OdeumError(f"knots={count} exceeds the {shape.depth} layers that use them; use at most {shape.depth}")
        between = settings.between or "linear"
        basis = lambda weights: Knots(count, between, 0.0, end)  # noqa: E731
        jumps = between == "constant" and count > 1
    elif settings.weights == "legendre":
        degree = min(DEFAULT_DEGREE, shape.depth - 1) if settings.degree is None else settings.degree
        count, jumps = degree + 1, False
        if count > shape.depth:
            raise OdeumError(
                f"degree={degree} has {count} coefficients, more than the {shape.depth} layers that would use them; "
                f"give {shape.depth - 1} at most"
            )
        basis = lambda weights: Legendre(count, 0.0, end)  # noqa: E731
    else:
        rank, jumps = settings.rank or DEFAULT_RANK, False
        count = rank + 1
        basis = lambda weights: HyperNetwork(rank, weights, 0.0, end)  # noqa: E731
    # A rate of its own for each piece; between knots there is one field, with one rate.
    rates = depth_rates(shape, count) if jumps else [shape.stochastic_depth] * count
    versions = [place_norms(branches(), norm, shape, rate) for rate in rates]
    if settings.weights == "hyper":
        for version in versions[1:]:
            _shrink(version, 1.0 / math.sqrt(count - 1))
    elif settings.weights == "legendre":  # the start is one layer that acts at all times
        for weight in (weight for version in versions[1:] for weight in version.parameters()):
            nn.init.zeros_(weight)

    def timed(fields: list[Field]) -> Field:
        return TimedField(fields, basis(sum(1 for _ in fields[0].parameters())))

    first = versions[0]
    if not isinstance(first, Sum):  # a norm that all terms share
        return timed(versions)
    return Sum(**{name: timed([version.fields[name] for version in versions]) for name in first.fields})  # ty: ignore


def check_options(settings: OverTime) -> None:
    """Refuse options of another kind of weights, which would do nothing."""
    for option, kind in OPTIONS.items():
        value = getattr(settings, option)
        if value is not None and settings.weights != kind:
            raise OdeumError(f"{option}={value} applies to weights={kind} only, but weights={settings.weights} is set")


def _shrink(version: nn.Module, factor: float) -> None:
    """Scale initial changes over time: matrices by `factor`, vectors to nearly zero."""
    for weight in version.parameters():
        if weight.dim() > 1:
            weight.data.mul_(factor)
        else:
            nn.init.normal_(weight, std=1e-4)


def _adapted(branches: Mapping[str, Field], norm: str, shape: Shape) -> Field:
    """PreNorm's places, with norms that know the time."""
    if norm not in ("pre", "shared"):
        raise OdeumError(f"weights=adaln adapts the norms before the field: norm=pre or shared, not {norm}")
    placed = place_norms(branches, norm, shape, shape.stochastic_depth)

    def adapted(field: Field) -> Field:
        if isinstance(field, StochasticDepth):
            return StochasticDepth(adapted(field.field), field.rate)
        assert isinstance(field, PreNorm)
        return AdaptiveNorm(make_norm(shape), field.field, shape.width, 0.0, float(shape.depth))

    if isinstance(placed, Sum):
        return Sum(**{name: adapted(field) for name, field in placed.fields.items()})  # ty: ignore
    return adapted(placed)
