"""A fixed number of steps per unit of time."""

from __future__ import annotations

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field, Step
from odeum.integrators.base import Method, Solver, energy_of_step


class FixedSteps(Solver):
    """`steps` equal steps per unit of time; change `steps` on a trained model to refine or coarsen it."""

    fixed = True

    def __init__(self, method: Method, steps: float = 1) -> None:
        super().__init__()
        if not steps > 0:
            raise OdeumError(f"steps per unit of time must be positive, got {steps}")
        self.method = method
        self.steps = steps

    @property
    def stateful_method(self) -> Method | None:
        return self.method if self.method.history else None

    def check(self, field: Field) -> None:
        self.method.check(field)

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        for step in self.divided(t0, t1):
            before, x = x, self.method.step(field, *step, x, context._replace(step=step))
            if self.moved is not None:
                self.moved.append(energy_of_step(before, x, step.length, context))
        return x

    def divided(self, t0: float, t1: float) -> list[Step]:
        """Returns the steps of an interval."""
        count = max(1, round((t1 - t0 if t1 > t0 else t0 - t1) * self.steps))
        dt = (t1 - t0) / count
        return [Step(t0 + i * dt, dt) for i in range(count)]

    def extra_repr(self) -> str:
        return f"steps={self.steps}"
