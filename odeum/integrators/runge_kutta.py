"""The stepping loop of every explicit Runge–Kutta method, written once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.algebra import refuse_new_draws
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, refuse_projecting_terms, share_of_step, within_evaluation, within_step
from odeum.integrators.mixes import Gated, Mix, advance, combination
from odeum.tableaux import Tableau


class RungeKutta(Method):
    """A step of the method with this tableau; Euler is the parallel layer."""

    def __init__(self, tableau: Tableau, mix: Mix | None = None) -> None:
        super().__init__()
        self.tableau = tableau
        self.mix = mix or Mix(tableau)
        self.order = tableau.order if mix is None else 1 if isinstance(mix, Gated) else None
        if len(self.mix.weights) != len(tableau.b):
            raise OdeumError(
                f"{tableau.name} has {len(tableau.b)} stages, but the mix was made for {len(self.mix.weights)}"
            )
        self.used = self.mix.used
        self.single = type(self.mix) is Mix and self.used == 1 and tableau.b[0] == 1.0
        """whether the step is one evaluation at its start: Euler's"""

    def extra_repr(self) -> str:
        return f"{self.tableau.name}, order {self.order or 'not fixed'}"

    def check(self, field: Field) -> None:
        refuse_projecting_terms(field, self.tableau.name)
        if self.used > 1:
            refuse_new_draws(field)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        context = within_step(field, context, repeats=self.used > 1)
        if self.single:
            change = field(t, x, within_evaluation(field, context))
        else:
            change = self.mix(evaluate_stages(self.tableau, self.used, field, t, dt, x, context))
        return field.project(x + change if dt == 1.0 else x + dt * change)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        half = share_of_step(share)
        if type(self.mix) is Mix and self.used == 1:
            change = field.formula("x")
            return [
                projected_step(field, f"x + {f'{half}({change})' if half and ' + ' in change else f'{half}{change}'}")
            ]

        def moved(change: str) -> str:
            return f"x + {half}dt {f'({change})' if ' ' in change else change}" if change else "x"

        rows = enumerate(self.tableau.a[: self.used], 1)
        lines = [f"k{i} = {field.formula(moved(combination(row)))}" for i, row in rows]
        return [*lines, projected_step(field, moved(self.mix.formula()))]


def evaluate_stages(
    tableau: Tableau,
    used: int,
    field: Field,
    t: Any,
    dt: Any,
    x: Tensor,
    context: Context,
    first: Tensor | None = None,
) -> list[Tensor]:
    """The stages one after the other, all under the same dropout masks; `first` saves the first evaluation.

    Time and step are numbers, or tensors with one for each sample.
    """
    stages = [] if first is None else [first]
    for c, row in list(zip(tableau.c, tableau.a, strict=True))[len(stages) : used]:
        here = advance(x, dt, row, stages)
        stages.append(field(t + c * dt, here, within_evaluation(field, context)))
    return stages


def projected_step(field: Field, step: str) -> str:
    """x ← step, with the norm of a post-norm field around it."""
    return f"x ← N({step})" if field.projects else f"x ← {step}"
