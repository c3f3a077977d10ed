"""Adams's predictor–corrector: a step predicted from the past, then repeated with the field at its end.

The predictor is Adams–Bashforth of one order less: order 3 or 4 for two evaluations. Order 2 would be Heun.
"""

from __future__ import annotations

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.algebra import refuse_new_draws
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, get_carry, within_evaluation, within_step
from odeum.integrators.mixes import Mix, combination, combine
from odeum.integrators.multistep import STARTS, Past, mean_weights, nodes, renamed_stages, weights
from odeum.integrators.runge_kutta import RungeKutta, evaluate_stages, projected_step


class AdamsMoulton(Method):
    """Adams–Bashforth of order k − 1 predicts, Adams–Moulton of order k corrects: order k for two evaluations per step.

    Both use the field of this step and of the k − 2 before, the corrector the field at the prediction too. A
    Runge–Kutta method of the same order makes the first k − 2 steps. For k = 2 nothing would be remembered: it is Heun.
    """

    splits = False

    def __init__(self, order: int = 3) -> None:
        super().__init__()
        if order not in (3, 4):
            raise OdeumError(f"adams-moulton has order 3 or 4, not {order}")
        self.order = order
        self.start = STARTS[order]
        self.used = Mix(self.start).used
        self.history = "adams-moulton" if order == 3 else f"adams-moulton-{order}"

    def check(self, field: Field) -> None:
        super().check(field)
        refuse_new_draws(field)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        assert self.order is not None
        carry = get_carry(context, "adams-moulton")
        past: tuple[Past, ...] = carry.state or ()
        context = within_step(field, context, repeats=True)
        if len(past) < self.order - 2:
            stages = evaluate_stages(self.start, self.used, field, t, dt, x, context)
            first, change = stages[0], combine(self.start.b, stages)
        else:
            lengths = [dt, *(step.dt for step in past)]
            first = field(t, x, within_evaluation(field, context))
            values = [first, *(step.value for step in past)]
            predicted = combine(weights(lengths), values)
            assert predicted is not None
            end = field(t + dt, x + dt * predicted, within_evaluation(field, context))
            change = combine(mean_weights([1.0, *nodes(lengths)]), [end, *values])
        assert change is not None
        carry.state = (Past(first, dt), *past)[: self.order - 2]
        return field.project(x + change if dt == 1.0 else x + dt * change)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        assert self.order is not None
        marks = ("k", "k′", "k″")[: self.order - 1]
        even = [1.0] * (self.order - 1)
        first = "; ".join(RungeKutta(self.start).scheme(field, share))
        many = "step" if self.order == 3 else "steps"
        predicted = renamed_stages(combination(weights(even)), marks)
        corrected = renamed_stages(combination(mean_weights([1.0, *nodes(even)])), ("k*", *marks))
        return [
            f"k = {field.formula('x')}",
            f"k* = {field.formula(f'x + dt ({predicted})')}",
            projected_step(field, f"x + dt ({corrected})") + f", {', '.join(marks[1:])} = k of the {many} before",
            f"the first {'step' if self.order == 3 else '2 steps'} by {self.start.name}: {first}",
        ]


def adams_moulton_4() -> AdamsMoulton:
    """Adams–Moulton of order 4."""
    return AdamsMoulton(4)
