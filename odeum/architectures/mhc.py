"""Manifold-constrained hyper-connections: streams are mixed by doubly stochastic matrices.

Initial values, not all of which the paper gives: c = 1/n (bias −ln(n−1)), b = 1, A near the identity (off-diagonal
logits −5), α = 0.01, φ with standard deviation 1e-4. With φ = 0 all streams would stay equal. Sinkhorn ends with the
columns, so the mean of the new streams is exact; rows deviate from one by more the larger the logits are
(`iterations`). `mixing=permutations` is exact: a softmax over all orders of at most five streams (mHC-lite, arXiv
2601.05732). Steps longer than 1 are refused, because I + dt (A − I) is then not doubly stochastic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.errors import OdeumError
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture("mhc", reference="Xie et al. 2025, arXiv 2512.24880", group="multistep and multi-stream methods")
@dataclass(frozen=True)
class Mhc(Layered):
    """Hyper-connections, mixed by doubly stochastic matrices."""

    streams: Annotated[int, Range(2, 64)] = 4
    """number of residual streams"""
    mixing: Literal["sinkhorn", "permutations"] = "sinkhorn"
    """sinkhorn: approximately doubly stochastic, by normalising rows and columns in turn; permutations: exactly, as
    a mean of permutations"""
    iterations: Annotated[int | None, Range(1, 1000)] = None
    """for mixing=sinkhorn: number of normalisations of rows and columns (default: 20)"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import per_term
        from odeum.integrators.streams import MAX_PERMUTED_STREAMS, ManifoldHyperConnections

        permuted = self.mixing == "permutations"
        if permuted and self.streams > MAX_PERMUTED_STREAMS:
            raise OdeumError(
                f"mixing=permutations has a weight for each order of the streams, and {self.streams} have "
                f"{math.factorial(self.streams):,}; give streams={MAX_PERMUTED_STREAMS} at most, or mixing=sinkhorn"
            )
        if permuted and self.iterations is not None:
            raise OdeumError(
                f"iterations={self.iterations} apply to mixing=sinkhorn only, but mixing=permutations is set"
            )
        ManifoldHyperConnections.check_length(self.interval / self.steps)
        iterations = None if permuted else self.iterations or 20

        def sublayer(index: int) -> Method:
            return ManifoldHyperConnections(place.shape.width, self.streams, iterations, eps=place.shape.norm_eps)

        return per_term("mhc", self.method, sublayer, place)
