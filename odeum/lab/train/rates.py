"""Default learning rates by a measured rule instead of one constant per kind of task; no torch.

The best rate falls with the width of the model. In the sweeps of `benchmarks/rates.py` batch sizes that differ by a
factor of 4 and lengths that differ by a factor of 16 moved it by at most the factor of 2 between two rates, so they are
not part of the rule. docs/rates.md has the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 64
"""width at which a rule states its rate; narrower models were not swept and get the same rate"""


@dataclass(frozen=True)
class RateRule:
    """A learning rate in proportion to width^−exponent."""

    rate: float
    """at width 64"""
    exponent: float
    exceptions: tuple[str, ...] = ()
    """named sets whose recipe has a rate of its own"""

    def at(self, width: int) -> float:
        """The rate at this width, rounded to two digits so that it can be typed again."""
        return float(f"{self.rate * (WIDTH / max(width, WIDTH)) ** self.exponent:.2g}")

    def __str__(self) -> str:
        return f"{self.rate:g} × ({WIDTH} / width)^{self.exponent:g}"
