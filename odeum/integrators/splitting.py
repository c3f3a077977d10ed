"""Splitting: step through the terms of a sum one by one. The ordinary transformer layer is Lie–Trotter with Euler."""

from __future__ import annotations

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, within_evaluation, within_step
from odeum.integrators.runge_kutta import RungeKutta
from odeum.tableaux import EULER, MIDPOINT


class Splitting(Method):
    """What the splittings share: a method for each term, and a field with terms to split."""

    def __init__(self, part: Method | None = None) -> None:
        super().__init__()
        self.part = part or RungeKutta(EULER)
        self.history = self.part.history
        self.splits = self.part.splits

    def check(self, field: Field) -> None:
        if not self.splits:
            raise OdeumError(
                f"a splitting moves one term at a time, but {self.history} remembers values of the whole field; "
                f"use method={self.history} unsplit"
            )
        if len(field.terms) < 2:
            raise OdeumError(
                f"a splitting needs a sum of at least two terms, not {field.formula('x')}; "
                "a norm shared by all terms (norm=shared, post-sum) needs an unsplit method such as euler"
            )
        for term in field.terms:
            self.part.check(term)

    def stages(self, field: Field) -> list[tuple[Field, float, float]]:
        """Which term moves from which share of the step on and by how much, in order."""
        raise TypeError(f"{type(self).__name__} must define stages(field)")

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        stages = self.stages(field)
        context = within_step(field, context, repeats=len(stages) > len(field.terms))
        for term, start, share in stages:
            # A term that moves twice is one term: it finds its dropout masks again.
            x = self.part.step(term, t + start * dt, share * dt, x, within_evaluation(term, context))
        return x

    def begin(self, x: Tensor, context: Context) -> Tensor:
        return self.part.begin(x, context)

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return self.part.finish(x, context)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        return [line for term, _, part in self.stages(field) for line in self.part.scheme(term, share * part)]


class LieTrotter(Splitting):
    """Each term in turn for the whole step: order 1."""

    def stages(self, field: Field) -> list[tuple[Field, float, float]]:
        return [(term, 0.0, 1.0) for term in field.terms]


class Strang(Splitting):
    """Half a step of each term but the last, a whole one of the last, and back.

    The order is two if the part is of order two; with Euler parts (tied Macaron) it is one, with a smaller error.
    """

    def __init__(self, part: Method | None = None) -> None:
        super().__init__(part)
        self.order = min(2, self.part.order or 0) or None

    def stages(self, field: Field) -> list[tuple[Field, float, float]]:
        *halves, whole = field.terms
        there = [(term, 0.0, 0.5) for term in halves]
        back = [(term, 0.5, 0.5) for term in reversed(halves)]
        return [*there, (whole, 0.0, 1.0), *back]


def strang_midpoint() -> Strang:
    """Strang over midpoint steps: of true second order."""
    return Strang(RungeKutta(MIDPOINT))
