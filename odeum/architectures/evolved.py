"""TransEvolve (Dutta et al. 2021): blocks of layers; attention is measured at the start of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from odeum.architectures.builders import build_stack
from odeum.architectures.norms import depth_rates, make_norm
from odeum.architectures.solvers import fixed_solver, make_method, schedule
from odeum.architectures.terms import feed_forward
from odeum.errors import OdeumError, choose
from odeum.fields import Field, PreNorm, StochasticDepth, Sum
from odeum.fields.transevolve.block import Anchored
from odeum.fields.transevolve.evolved_attention import EvolvedAttention, EvolvedCrossAttention
from odeum.fields.transevolve.measure import Measure
from odeum.fields.transevolve.rotation import RotationFeedForward
from odeum.flow import Flow, Stack
from odeum.integrators import Strang
from odeum.models.settings import Shape
from odeum.settings.architecture import Evolved


@build_stack.register(Evolved)
def evolved(settings: Evolved, shape: Shape, cross: bool) -> Stack:
    """`-1` of the paper is 1 block × 6 layers, `-2` is 2 × 3."""
    layers = settings.depth or shape.depth // settings.blocks
    if settings.depth is None and shape.depth % settings.blocks:
        raise OdeumError(
            f"blocks={settings.blocks} does not divide the depth of {shape.depth} layers; give depth, layers a block"
        )
    independent = settings.independent or layers * settings.blocks
    if independent % settings.blocks:
        raise OdeumError(f"independent={independent} layers cannot be dealt out evenly to {settings.blocks} blocks")
    order = schedule(settings, layers, independent // settings.blocks)
    rates = iter(depth_rates(shape, len(set(order)) * settings.blocks))
    seeds = itertools.count(10_000 * settings.seed + 5_000 * cross)  # each random matrix its own
    return Stack([_block(settings, shape, cross, order, rates, seeds) for _ in range(settings.blocks)])


def _block(
    settings: Evolved, shape: Shape, cross: bool, order: tuple[int, ...], rates: Iterator[float], seeds: Iterator[int]
) -> Anchored:
    def measure() -> Measure:
        return Measure(
            shape.width, shape.heads, settings.time_width,
            form=settings.attention, features=settings.features, seed=next(seeds), dropout=shape.dropout,
        )  # fmt: skip

    own, other = measure(), measure() if cross else None
    flows = [_layer(settings, shape, cross, next(rates), seeds) for _ in range(len(set(order)))]
    return Anchored(Stack(flows, order), make_norm(shape), own, other)


def _layer(settings: Evolved, shape: Shape, cross: bool, rate: float, seeds: Iterator[int]) -> Flow:
    sizes = (shape.width, shape.heads, settings.time_width)
    middle: list[Field] = [PreNorm(make_norm(shape), EvolvedAttention(*sizes, dropout=shape.dropout))]
    if cross:
        middle.append(EvolvedCrossAttention(*sizes, norm=make_norm(shape), dropout=shape.dropout))
    if choose(settings.feedforward, ("full", "random"), "feedforward") == "full":
        feed = feed_forward(shape)
    else:
        feed = RotationFeedForward(
            shape.width, shape.hidden, kind=settings.rotation, activation=shape.activation, bias=shape.bias,
            dropout=shape.dropout, seed=next(seeds),
        )  # fmt: skip
    last: list[Field] = [PreNorm(make_norm(shape), feed)]
    fields = [*last, *middle] if isinstance(make_method(settings.method), Strang) else [*middle, *last]
    return Flow(Sum(*(StochasticDepth(f, rate) if rate else f for f in fields)), fixed_solver(settings))
