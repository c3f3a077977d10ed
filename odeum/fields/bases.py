"""Weights over time as a combination of a few: θ(t) = Σ φₖ(t) θₖ, the functions φ by numbers or by a small network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from odeum.draws import Keyed
from odeum.errors import OdeumError, choose
from odeum.fields.time_features import COUNT_OF_FEATURES, time_features

BETWEEN = ("constant", "linear", "cubic")


class Basis(Keyed, nn.Module):
    """The functions φ. `versions` are, for each weight, its θ₀, θ₁, …; a basis gives each weight as it is at time t."""

    stepwise = False
    """whether the weights jump from step to step and are constant within one"""

    def __init__(self, count: int, t0: float, t1: float) -> None:
        super().__init__()
        if count < 1:
            raise OdeumError(f"weights over time need at least one version, not {count}")
        self.count = count
        self.t0 = t0
        self.t1 = t1

    def share(self, t: float) -> float:
        """Returns the fraction of the interval that has passed, from 0 to 1."""
        return min(1.0, max(0.0, (t - self.t0) / (self.t1 - self.t0)))

    def forward(self, t: float, versions: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        raise TypeError(f"{type(self).__name__} must define forward(t, versions)")

    def nearest(self, t: float) -> int:
        """Returns the version with the largest weight at time t."""
        return 0

    def layers(self, version: int, count: int) -> list[int]:
        """The layer, of `count` layers of equal length over the interval, that a version corresponds to."""
        return list(range(count)) if version == 0 else []

    def formula(self) -> str:
        """θ(t) in words."""
        raise TypeError(f"{type(self).__name__} must define formula()")


class NumberBasis(Basis):
    """Functions φ that are numbers of the time alone."""

    def numbers(self, t: float) -> dict[int, float]:
        """φₖ(t) where it is not zero."""
        raise TypeError(f"{type(self).__name__} must define numbers(t)")

    def forward(self, t: float, versions: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        numbers = self.numbers(t)
        return [_combined(numbers, row) for row in versions]


class Knots(NumberBasis):
    """θ at `count` knots, interpolated by constant pieces, straight lines or cubics (C¹, through the knots).

    Constant pieces divide the interval evenly. Lines and cubics have a knot at either end; two knots are joined by a
    line in any case, and one knot is a constant.
    """

    def __init__(self, count: int, between: str, t0: float, t1: float) -> None:
        super().__init__(count, t0, t1)
        self.between = choose(between, BETWEEN, "between")
        self.stepwise = between == "constant" and count > 1

    def piece(self, t: float) -> int:
        """The constant piece at a time within it."""
        return min(self.count - 1, math.floor(self.share(t) * self.count))

    def time(self, knot: int) -> float:
        """The time of a knot: its position, or the middle of its piece."""
        pieces = self.between == "constant" or self.count == 1
        share = (knot + 0.5) / self.count if pieces else knot / (self.count - 1)
        return self.t0 + share * (self.t1 - self.t0)

    def layers(self, version: int, count: int) -> list[int]:
        """The layers inside a piece, or the one that contains the knot."""
        length = (self.t1 - self.t0) / count
        if self.between == "constant" or self.count == 1:
            return [n for n in range(count) if self.piece(self.t0 + (n + 0.5) * length) == version]
        return [min(count - 1, version * count // (self.count - 1))]

    def numbers(self, t: float) -> dict[int, float]:
        """φₖ(t) where it is not zero; they sum to one."""
        if self.between == "constant" or self.count == 1:
            return {self.piece(t): 1.0}
        place = self.share(t) * (self.count - 1)
        place = round(place) if abs(place - round(place)) < 1e-9 else place  # a knot is met
        left = min(self.count - 2, math.floor(place))
        s = place - left
        out = {left: 1.0 - s, left + 1: s}
        if self.between == "cubic":
            # Catmull and Rom: the slope at a knot is that between its neighbours; at an end that of the first piece.
            a, b = s * (1.0 - s) ** 2, s**2 * (1.0 - s)  # how much the two slopes add to the cubic without slopes
            out = {left: (1.0 + 2.0 * s) * (1.0 - s) ** 2, left + 1: s * s * (3.0 - 2.0 * s)}
            for knot, share in ((left, a), (left + 1, -b)):
                before, after = max(0, knot - 1), min(self.count - 1, knot + 1)
                slope = share / (after - before)
                out[after] = out.get(after, 0.0) + slope
                out[before] = out.get(before, 0.0) - slope
        return {knot: number for knot, number in out.items() if number}

    def nearest(self, t: float) -> int:
        numbers = self.numbers(t)
        return max(numbers, key=lambda knot: numbers[knot])

    def formula(self) -> str:
        if self.count == 1:
            return "θ(t) constant"
        middle = {
            "constant": "pieces constant in time",
            "linear": "knots, linear between",
            "cubic": "knots, cubics between",
        }
        return f"θ(t): {self.count} {middle[self.between]}"

    def extra_repr(self) -> str:
        return f"{self.count}, {self.between}"


class Legendre(NumberBasis):
    """θ(t) = Σ C_k P_k(s), Legendre's polynomials of s, which goes from −1 to 1 over the interval."""

    def numbers(self, t: float) -> dict[int, float]:
        s = 2.0 * self.share(t) - 1.0
        values = [1.0, s]
        for k in range(1, self.count - 1):
            values.append(((2 * k + 1) * s * values[k] - k * values[k - 1]) / (k + 1))
        return {k: value for k, value in enumerate(values[: self.count]) if value}

    def formula(self) -> str:
        return f"θ(t) = Σ C_k P_k(t), Legendre's polynomials to degree {self.count - 1}"


class HyperNetwork(Basis):
    """θ(t) = θ₀ + Σ eₖ(t) θₖ, where a network of two layers makes e from time features, other ones for each weight.

    Tong et al. 2025 (DiffEqFormer) give each weight a network; here they share the first layer. Without biases, so that
    time features of zero leave θ₀.
    """

    def __init__(self, rank: int, weights: int, t0: float, t1: float, hidden: int = 64) -> None:
        super().__init__(rank + 1, t0, t1)
        self.rank = rank
        self.inner = nn.Linear(COUNT_OF_FEATURES, hidden, bias=False)
        self.outer = nn.Linear(hidden, rank * weights, bias=False)

    def features(self, t: float) -> Tensor:
        """Returns the time features that the network reads."""
        return time_features(self.share(t), self.inner.weight)

    def forward(self, t: float, versions: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        coefficients = self.outer(nn.functional.silu(self.inner(self.features(t))))
        if len(coefficients) != len(versions) * self.rank:
            raise OdeumError(
                f"weights=hyper was made for {len(coefficients) // self.rank} weights, got {len(versions)}: adapters "
                "cannot be put on maps whose weights depend on time by a network"
            )
        coefficients = coefficients.unflatten(0, (len(versions), self.rank))
        out = []
        for (first, *rest), numbers in zip(versions, coefficients.to(versions[0][0].dtype), strict=True):
            for number, other in zip(numbers, rest, strict=True):
                first = first + number * other
            out.append(first)
        return out

    def formula(self) -> str:
        many = "matrices" if self.rank > 1 else "matrix"
        return f"θ(t) = θ₀ + Σ eₖ(t) θₖ, k to {self.rank}: {self.rank} {many} more for each, e by a network of t"


def _combined(numbers: dict[int, float], row: Sequence[Tensor]) -> Tensor:
    terms = [row[knot] if number == 1.0 else number * row[knot] for knot, number in numbers.items()]
    return terms[0] if len(terms) == 1 else torch.stack(terms).sum(0) if len(terms) > 2 else terms[0] + terms[1]
