"""Splitting: step through the terms of a sum one by one. The ordinary transformer layer is Lie–Trotter with Euler."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.algebra import Sum, Wrapper, refuse_new_draws
from odeum.fields.base import Context, Field
from odeum.integrators import capabilities
from odeum.integrators.base import Method, within_evaluation, within_step
from odeum.integrators.runge_kutta import RungeKutta
from odeum.tableaux import EULER, MIDPOINT


class Splitting(Method):
    """Base of the splittings: one method steps through the terms of a field."""

    splitting = True
    begins_alone = False
    """whether a layer of this splitting begins with the feed-forward"""

    def __init__(self, part: Method | None = None) -> None:
        super().__init__()
        self.order_of_terms: tuple[int, ...] | None = None
        self.part = part or RungeKutta(EULER)
        self.history = self.part.history
        self.splits = self.part.splits
        self.stability = self.part.stability

    def check(self, field: Field) -> None:
        capabilities.check("a splitting", self.part)
        if len(field.terms) < 2:
            raise OdeumError(
                f"a splitting needs a sum of at least two terms, not {field.formula('x')}; "
                "a norm shared by all terms (norm=shared, post-sum) needs an unsplit method such as euler"
            )
        for term in field.terms:
            self.part.check(term)
        if len(self.stages(field)) > len(field.terms):
            refuse_new_draws(field)

    def arrange(self, field: Field) -> None:
        """Set the order of attention and feed-forward to that of the layer with this splitting's name.

        For a field that was made for another method: its sum may have them the other way round. A sum of other terms
        keeps its order.
        """
        names = list(field.fields) if isinstance(field, Sum) else []
        alone = [place for place, name in enumerate(names) if _is_feed_forward(name, field.terms[place])]
        rest = [place for place in range(len(names)) if place not in alone]
        if len(alone) == 1:
            self.order_of_terms = (*alone, *rest) if self.begins_alone else (*rest, *alone)

    def arranged(self, field: Field) -> tuple[Field, ...]:
        """Returns the terms in the order in which they begin."""
        terms = field.terms
        return terms if self.order_of_terms is None else tuple(terms[place] for place in self.order_of_terms)

    def stages(self, field: Field) -> list[tuple[Field, float, float]]:
        """Returns, in order, which term moves, from which share of the step on, and by how much."""
        raise TypeError(f"{type(self).__name__} must define stages(field)")

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        stages = self.stages(field)
        context = within_step(field, context, repeats=len(stages) > len(field.terms))
        for term, start, share in stages:
            # A term that moves twice is one term: it finds its dropout masks again.
            x = self.part.step(term, t + start * dt, share * dt, x, within_evaluation(term, context))
        return x

    @property
    def reversible(self) -> bool:
        return self.part.reversible

    def step_back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        stages = self.stages(field)
        context = within_step(field, context, repeats=len(stages) > len(field.terms))
        for term, start, share in reversed(stages):
            x = self.part.step_back(term, t + start * dt, share * dt, x, within_evaluation(term, context))
        return x

    def history_tensor(self, state: Any) -> Tensor | None:
        return self.part.history_tensor(state)

    def history_from_tensor(self, tensor: Tensor | None) -> Any:
        return self.part.history_from_tensor(tensor)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        return self.part.begin(x, context)

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return self.part.finish(x, context)

    def equation(self, field: Field, turns: int = 1) -> str:
        return self.part.equation(field, len(field.terms))

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        return [line for term, _, part in self.stages(field) for line in self.part.scheme(term, share * part)]


def _is_feed_forward(name: str, term: Field) -> bool:
    """Whether a term is the feed-forward, by its name in the sum or its symbol in the equation."""
    while isinstance(term, Wrapper):
        term = term.field
    return name.startswith("feedforward") or getattr(term, "symbol", None) == "F"


class LieTrotter(Splitting):
    """Each term in turn for the whole step: order 1."""

    def stages(self, field: Field) -> list[tuple[Field, float, float]]:
        return [(term, 0.0, 1.0) for term in self.arranged(field)]


class Strang(Splitting):
    """Half a step of each term but the last, a whole one of the last, and back.

    The order is two if the part is of order two; with Euler parts (tied Macaron) it is one, with a smaller error.
    """

    begins_alone = True

    def __init__(self, part: Method | None = None) -> None:
        super().__init__(part)
        self.order = min(2, self.part.order or 0) or None

    def stages(self, field: Field) -> list[tuple[Field, float, float]]:
        *halves, last = self.arranged(field)
        forward = [(term, 0.0, 0.5) for term in halves]
        back = [(term, 0.5, 0.5) for term in reversed(halves)]
        return [*forward, (last, 0.0, 1.0), *back]


def strang_midpoint() -> Strang:
    """Strang over midpoint steps: true second order."""
    return Strang(RungeKutta(MIDPOINT))
