"""The stepping loop of every explicit Runge–Kutta method, written once."""

from __future__ import annotations

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, refuse_projecting_terms, with_noise
from odeum.integrators.mixes import Learned, Mix, combine
from odeum.integrators.tableaux import Tableau


class RungeKutta(Method):
    """A step of the method that the tableau says; Euler is the parallel layer."""

    def __init__(self, tableau: Tableau, mix: Mix | None = None) -> None:
        super().__init__()
        if isinstance(mix, Learned) and len(mix.gamma) != len(tableau.b):
            raise OdeumError(f"{tableau.name} has {len(tableau.b)} stages, but the mix has {len(mix.gamma)} weights")
        self.tableau = tableau
        self.mix = mix or Mix(tableau)
        self.order = tableau.order

    def check(self, field: Field) -> None:
        refuse_projecting_terms(field, self.tableau.name)

    def stages(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> list[Tensor]:
        """k_1 … k_s; the last one is left out where neither the step nor the error needs it."""
        # A method whose last weight is zero uses that stage for its error estimate alone.
        used = len(self.tableau.b)
        while self.tableau.b[used - 1] == 0.0 and type(self.mix) is Mix:
            used -= 1
        if used > 1:
            context = with_noise(field, context)
        return evaluate_stages(self.tableau, used, field, t, dt, x, context)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        stages = self.stages(field, t, dt, x, context)
        change = stages[0] if len(stages) == 1 and type(self.mix) is Mix else self.mix(stages)
        return field.project(x + change if dt == 1.0 else x + dt * change)

    def scheme(self, field: Field) -> list[str]:
        lines = []
        for i, row in enumerate(self.tableau.a):
            if i and not self.tableau.b[i] and type(self.mix) is Mix and i == len(self.tableau.b) - 1:
                continue
            inner = " + ".join(f"{a:.4g} k{j + 1}".replace("1 k", "k") if a != 1 else f"k{j + 1}" for j, a in enumerate(row) if a)
            lines.append(f"k{i + 1} = {field.formula(f'x + dt ({inner})' if inner else 'x')}")
        if len(lines) == 1:
            return [landing(field, f"x + {field.formula('x')}")]
        return [*lines, landing(field, f"x + dt ({' + '.join(self.mix.terms())})")]


def evaluate_stages(
    tableau: Tableau, used: int, field: Field, t: float, dt: float, x: Tensor, context: Context, first: Tensor | None = None
) -> list[Tensor]:
    """The stages one after the other, all under the same dropout masks; `first` saves the first evaluation."""
    noise = context.noise
    start = noise.cursor if noise is not None else 0
    stages = [] if first is None else [first]
    for c, row in list(zip(tableau.c, tableau.a, strict=True))[len(stages) : used]:
        if noise is not None:
            noise.cursor = start
        change = combine(row, stages)
        stages.append(field(t + c * dt, x if change is None else x + dt * change, context))
    return stages


def landing(field: Field, step: str) -> str:
    """x ← step, with the norm of a post-norm field around it."""
    return f"x ← N({step})" if field.projects else f"x ← {step}"
