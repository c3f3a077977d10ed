"""TransEvolve: blocks of layers; attention is measured at the start of each and evolved over its depth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from odeum import register
from odeum.architectures.stepped import Stepped
from odeum.errors import OdeumError
from odeum.registry.options import COUNT, Range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from odeum.fields.base import Field
    from odeum.fields.transevolve.block import Anchored
    from odeum.flow import Flow
    from odeum.models.settings import Shape


@register.architecture("transevolve", reference="Dutta et al. 2021, arXiv 2109.15142", group="continuous depth")
@dataclass(frozen=True)
class Evolved(Stepped):
    """Attention scores computed once per block and evolved over its layers."""

    blocks: Annotated[int, COUNT] = 1
    """number of blocks; attention scores are computed once per block"""
    depth: Annotated[int | None, COUNT] = None
    """layers per block (default: the model's depth divided by blocks)"""
    feedforward: Literal["full", "random"] = "full"
    """dense feed-forward, or random rotations with learned singular values"""
    rotation: Literal["orthogonal", "published"] = "orthogonal"
    """which random matrices: true rotations, or the formula of the released code"""
    attention: Literal["auto", "shared", "fused", "flex", "linear"] = "auto"
    """shared exponential, fused and flex are exact; linear is a random-feature approximation"""
    features: Annotated[int, Range(1, 1_000_000)] = 128
    """random features per head of the linear form"""
    time_width: Annotated[int | None, Range(1, 1_000_000)] = None
    """width of the depth vector per head (default: width / heads)"""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """seed of the random matrices"""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        f"{kind}-{blocks}": {"feedforward": kind, "blocks": blocks} for kind in ("full", "random") for blocks in (1, 2)
    }

    def stack(self, shape: Shape, cross: bool = False) -> nn.Module:
        """Builds the blocks: `-1` of the paper is 1 block × 6 layers, `-2` is 2 × 3."""
        from odeum.architectures.parts import depth_rates
        from odeum.flow import Stack

        layers = self.depth or shape.depth // self.blocks
        if self.depth is None and shape.depth % self.blocks:
            raise OdeumError(
                f"blocks={self.blocks} does not divide the depth of {shape.depth} layers; give depth, layers per block"
            )
        independent = self.independent or layers * self.blocks
        if independent % self.blocks:
            raise OdeumError(f"independent={independent} layers cannot be divided evenly among {self.blocks} blocks")
        order = self._layer_order(layers, independent // self.blocks)
        rates = iter(depth_rates(shape, len(set(order)) * self.blocks))
        seeds = itertools.count(10_000 * self.seed + 5_000 * cross)  # each random matrix its own
        return Stack([self._block(shape, cross, order, rates, seeds) for _ in range(self.blocks)])

    def _block(
        self, shape: Shape, cross: bool, order: tuple[int, ...], rates: Iterator[float], seeds: Iterator[int]
    ) -> Anchored:
        from odeum.architectures.parts import make_norm
        from odeum.fields.transevolve.block import Anchored
        from odeum.fields.transevolve.measure import Measure
        from odeum.flow import Stack

        def measure() -> Measure:
            return Measure(
                shape.width, shape.heads, self.time_width,
                form=self.attention, features=self.features, seed=next(seeds), dropout=shape.dropout,
            )  # fmt: skip

        self_attention, cross_attention = measure(), measure() if cross else None
        flows = [self._layer(shape, cross, next(rates), seeds) for _ in range(len(set(order)))]
        return Anchored(Stack(flows, order), make_norm(shape), self_attention, cross_attention)

    def _layer(self, shape: Shape, cross: bool, rate: float, seeds: Iterator[int]) -> Flow:
        from odeum.architectures.parts import feed_forward, fixed_solver, make_method, make_norm
        from odeum.fields import PreNorm, StochasticDepth, Sum
        from odeum.fields.transevolve.evolved_attention import EvolvedAttention, EvolvedCrossAttention
        from odeum.fields.transevolve.rotation import RotationFeedForward
        from odeum.flow import Flow

        sizes = (shape.width, shape.heads, self.time_width)
        middle: list[Field] = [PreNorm(make_norm(shape), EvolvedAttention(*sizes, dropout=shape.dropout))]
        if cross:
            middle.append(EvolvedCrossAttention(*sizes, norm=make_norm(shape), dropout=shape.dropout))
        if self.feedforward == "full":
            feed = feed_forward(shape)
        else:
            feed = RotationFeedForward(
                shape.width, shape.hidden, kind=self.rotation, activation=shape.activation, bias=shape.bias,
                dropout=shape.dropout, seed=next(seeds),
            )  # fmt: skip
        last: list[Field] = [PreNorm(make_norm(shape), feed)]
        method = make_method(self.method)
        fields = [*last, *middle] if getattr(method, "begins_alone", False) else [*middle, *last]
        return Flow(Sum(*(StochasticDepth(f, rate) if rate else f for f in fields)), fixed_solver(self, method))
