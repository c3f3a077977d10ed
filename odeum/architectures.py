"""From words to objects: the one place where an architecture's name becomes fields, integrators and a schedule."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import get_type_hints

from torch import nn

from odeum.errors import OdeumError, choose
from odeum.fields import (
    CrossAttention,
    FeedForward,
    Field,
    Increment,
    PeriNorm,
    PostNorm,
    PreNorm,
    Scaled,
    SelfAttention,
    StochasticDepth,
    Sum,
)
from odeum.fields.transevolve.evolved import EvolvedAttention, EvolvedCrossAttention, Measure
from odeum.fields.transevolve.rotation import RotationFeedForward
from odeum.flow import Anchored, Flow, Stack
from odeum.integrators import (
    TABLEAUX,
    Adaptive,
    Adjoint,
    Checkpointed,
    FixedSteps,
    Gated,
    Learned,
    LieTrotter,
    Method,
    RungeKutta,
    Solver,
    Strang,
)
from odeum.integrators.tableaux import EULER, MIDPOINT
from odeum.schedules import SCHEDULES
from odeum.settings.architecture import (
    Architecture,
    Continuous,
    Evolved,
    Layered,
    OdeTransformer,
    Sandwich,
    Stepped,
    check_type,
    parse,
)
from odeum.settings.model import Shape

METHODS: dict[str, Callable[[], Method]] = {
    "lie-trotter": LieTrotter,
    "strang": Strang,
    "strang-midpoint": lambda: Strang(RungeKutta(MIDPOINT)),
    **{name: (lambda tableau=tableau: RungeKutta(tableau)) for name, tableau in TABLEAUX.items()},
}
SPLITTINGS = ("lie-trotter", "strang", "strang-midpoint")
GRADIENTS: dict[str, Callable[[Solver], Solver]] = {
    "backprop": lambda solver: solver,
    "checkpointed": Checkpointed,
    "adjoint": Adjoint,
}


def stack(architecture: str | Architecture, shape: Shape, cross: bool = False) -> nn.Module:
    """The stack of layers that the words say; `cross` adds attention to an encoder's memory."""
    words = parse(architecture)
    check_shape(shape)
    match words:
        case Layered():
            return _layered(words, shape, cross)
        case OdeTransformer():
            return _ode_transformer(words, shape, cross)
        case Sandwich():
            return _sandwich(words, shape, cross)
        case Continuous():
            return _continuous(words, shape, cross)
        case Evolved():
            return _evolved(words, shape, cross)


SIZES = (
    *("width", "heads", "depth", "hidden", "decoder_depth"),
    *("image_size", "patch_size", "channels", "classes", "vocabulary", "length"),
)


def check_shape(shape: Shape) -> None:
    """Of a stack, or of a whole model."""
    for name, hint in get_type_hints(type(shape)).items():
        check_type(getattr(shape, name), hint, name)
    for name in SIZES:
        value = getattr(shape, name, None)
        if value is not None and value < 1:
            raise OdeumError(f"{name} must be at least 1, not {value}")
    if shape.width % shape.heads:
        raise OdeumError(f"heads ({shape.heads}) must divide the width ({shape.width})")
    if getattr(shape, "positions", None) == "rotary" and shape.width // shape.heads < 2:
        raise OdeumError(f"rotary positions turn pairs of features, but each of the {shape.heads} heads has one")
    if not 0.0 <= shape.norm_eps < math.inf:
        raise OdeumError(f"norm_eps must be zero or more, not {shape.norm_eps}")
    for name in ("dropout", "stochastic_depth"):
        if not 0.0 <= getattr(shape, name) < 1.0:
            raise OdeumError(f"{name} is a probability from 0 to below 1, not {getattr(shape, name)}")


def make_norm(shape: Shape) -> nn.Module:
    choose(shape.norm_kind, ("layer", "rms"), "norm_kind")
    kind = nn.LayerNorm if shape.norm_kind == "layer" else nn.RMSNorm
    return kind(shape.width, eps=shape.norm_eps)


def method(name: str) -> Method:
    """The method of that name, or a sentence that lists them."""
    return METHODS[choose(name, METHODS, "method")]()


def fixed_solver(words: Stepped) -> Solver:
    return GRADIENTS[choose(words.gradient, GRADIENTS, "gradient")](FixedSteps(method(words.method), words.steps))


def attention(shape: Shape) -> Field:
    return SelfAttention(shape.width, shape.heads, bias=shape.bias, dropout=shape.dropout)


def cross_attention(shape: Shape) -> Field:
    return CrossAttention(shape.width, shape.heads, bias=shape.bias, dropout=shape.dropout)


def feed_forward(shape: Shape, share: int = 1) -> Field:
    hidden = (shape.hidden or 4 * shape.width) // share
    if not hidden:
        raise OdeumError(f"hidden must be at least {share}, one for each of {share} feed-forwards, not {shape.hidden}")
    return FeedForward(shape.width, hidden, activation=shape.activation, bias=shape.bias, dropout=shape.dropout)


def place_norms(fields: list[Field], placement: str, shape: Shape, rate: float = 0.0) -> Field:
    """Put norms (and stochastic depth) around the branches: out(x + res(f(in(x)))), and nothing else."""

    def alive(field: Field) -> Field:
        return StochasticDepth(field, rate) if rate else field

    def norm() -> nn.Module:
        return make_norm(shape)

    def ended(field: Field) -> Field:
        if isinstance(field, Scaled):  # inside, the norm would undo the factor
            return Scaled(field.factor, ended(field.field))
        return PeriNorm(norm() if placement == "peri" else nn.Identity(), field, norm())

    match placement:
        case "pre":
            return Sum(*(alive(PreNorm(norm(), field)) for field in fields))
        case "peri" | "branch":
            return Sum(*(alive(ended(field)) for field in fields))
        case "post":
            return Sum(*(PostNorm(alive(field), norm()) for field in fields))
        case "shared":
            return PreNorm(norm(), Sum(*map(alive, fields)))
        case "post-sum":
            return PostNorm(Sum(*map(alive, fields)), norm())
    choose(placement, ("pre", "shared", "post", "post-sum", "peri", "branch"), "norm placement")
    raise AssertionError(placement)


def depth_rates(shape: Shape, count: int) -> list[float]:
    """Stochastic depth grows linearly from 0 at the first layer, as in DeiT; one shared layer gets the whole rate."""
    if count == 1:
        return [shape.stochastic_depth]
    return [shape.stochastic_depth * i / (count - 1) for i in range(count)]


def _final_norm(placement: str, shape: Shape) -> nn.Module | None:
    return None if placement in ("post", "post-sum") else make_norm(shape)


def _layered(words: Layered, shape: Shape, cross: bool) -> Stack:
    schedule = SCHEDULES[choose(words.sharing, SCHEDULES, "sharing")](shape.depth, words.independent or shape.depth)
    flows = []
    for rate in depth_rates(shape, len(set(schedule))):
        middle = [attention(shape), *([cross_attention(shape)] if cross else [])]
        if words.form == "macaron":
            # The published Macaron halves each feed-forward, so that parameters and work stay the same.
            fields: list[Field] = [Scaled(0.5, feed_forward(shape, 2)), *middle, Scaled(0.5, feed_forward(shape, 2))]
        elif words.method.startswith("strang"):
            # The feed-forward takes the two half steps, attention the whole one: tied Macaron.
            fields = [feed_forward(shape), *middle]
        else:
            fields = [*middle, feed_forward(shape)]
        flows.append(Flow(place_norms(fields, words.norm, shape, rate), fixed_solver(words)))
    return Stack(flows, schedule, _final_norm(words.norm, shape))


def _ode_transformer(words: OdeTransformer, shape: Shape, cross: bool) -> Stack:
    if words.method not in TABLEAUX:
        raise OdeumError(f"ode-transformer needs a Runge–Kutta method, not '{words.method}'; use {', '.join(TABLEAUX)}")
    tableau = TABLEAUX[words.method]
    schedule = SCHEDULES[words.sharing](shape.depth, words.independent or shape.depth)
    flows = []
    for rate in depth_rates(shape, len(set(schedule))):
        fields = [attention(shape), *([cross_attention(shape)] if cross else []), feed_forward(shape)]
        layer = Increment(LieTrotter(), place_norms(fields, "pre", shape, rate))
        mix = {
            "fixed": lambda: None,
            "learned": lambda: Learned(tableau, start=1.0),
            "gated": lambda: Gated(tableau, shape.width),
        }[choose(words.coefficients, ("fixed", "learned", "gated"), "coefficients")]()
        solver = GRADIENTS[words.gradient](FixedSteps(RungeKutta(tableau, mix), words.steps))
        flows.append(Flow(layer, solver))
    return Stack(flows, schedule, make_norm(shape))


def _sandwich(words: Sandwich, shape: Shape, cross: bool) -> Stack:
    k, n = words.coefficient, shape.depth
    if not 0 <= k <= n:
        raise OdeumError(f"coefficient={k} of sandwich must lie between 0 and the depth of {n} layers")
    rates = depth_rates(shape, n + k)

    def flow(fields: list[Field], rate: float) -> Flow:
        step = RungeKutta(EULER) if len(fields) == 1 else LieTrotter()
        return Flow(place_norms(fields, "pre", shape, rate), GRADIENTS[words.gradient](FixedSteps(step)))

    def look() -> list[Field]:
        return [attention(shape), *([cross_attention(shape)] if cross else [])]

    attentions = [flow(look(), rate) for rate in rates[:k]]
    layers = [flow([*look(), feed_forward(shape)], rate) for rate in rates[k:n]]
    feeds = [flow([feed_forward(shape)], rate) for rate in rates[n:]]
    return Stack([*attentions, *layers, *feeds], norm=make_norm(shape))


def _continuous(words: Continuous, shape: Shape, cross: bool) -> Stack:
    choose(words.method, ("bosh3", "dopri5"), "method of continuous")
    fields = [attention(shape), *([cross_attention(shape)] if cross else []), feed_forward(shape)]
    field = place_norms(fields, "pre", shape, shape.stochastic_depth)
    solver = GRADIENTS[words.gradient](Adaptive(TABLEAUX[words.method], words.rtol, words.atol))
    return Stack([Flow(field, solver, 0.0, float(shape.depth))], norm=make_norm(shape))


def _evolved(words: Evolved, shape: Shape, cross: bool) -> Stack:
    """Blocks of layers; attention is measured at the start of each. `-1` of the paper is 1 block × 6, `-2` is 2 × 3."""
    layers = words.depth or shape.depth // words.blocks
    if words.depth is None and shape.depth % words.blocks:
        raise OdeumError(
            f"blocks={words.blocks} does not divide the depth of {shape.depth} layers; give depth, layers a block"
        )
    independent = words.independent or layers * words.blocks
    if independent % words.blocks:
        raise OdeumError(f"independent={independent} layers cannot be dealt out evenly to {words.blocks} blocks")
    schedule = SCHEDULES[choose(words.sharing, SCHEDULES, "sharing")](layers, independent // words.blocks)
    rates = iter(depth_rates(shape, independent))
    seeds = itertools.count(10_000 * words.seed + 5_000 * cross)  # each random matrix its own
    return Stack([_evolved_block(words, shape, cross, schedule, rates, seeds) for _ in range(words.blocks)])


def _evolved_block(
    words: Evolved, shape: Shape, cross: bool, schedule: tuple[int, ...], rates: Iterator[float], seeds: Iterator[int]
) -> Anchored:
    def measure() -> Measure:
        return Measure(
            shape.width, shape.heads, words.time_width,
            form=words.attention, features=words.features, seed=next(seeds), dropout=shape.dropout,
        )  # fmt: skip

    def layer(rate: float) -> Flow:
        sizes = (shape.width, shape.heads, words.time_width)
        middle: list[Field] = [PreNorm(make_norm(shape), EvolvedAttention(*sizes, dropout=shape.dropout))]
        if cross:
            middle.append(EvolvedCrossAttention(*sizes, norm=make_norm(shape), dropout=shape.dropout))
        if choose(words.feedforward, ("full", "random"), "feedforward") == "full":
            feed = feed_forward(shape)
        else:
            feed = RotationFeedForward(
                shape.width, shape.hidden, kind=words.rotation, activation=shape.activation, bias=shape.bias,
                dropout=shape.dropout, seed=next(seeds),
            )  # fmt: skip
        last: list[Field] = [PreNorm(make_norm(shape), feed)]
        fields = [*last, *middle] if words.method.startswith("strang") else [*middle, *last]
        return Flow(Sum(*(StochasticDepth(f, rate) if rate else f for f in fields)), fixed_solver(words))

    own, other = measure(), measure() if cross else None
    flows = [layer(next(rates)) for _ in range(len(set(schedule)))]
    return Anchored(Stack(flows, schedule), make_norm(shape), own, other)
