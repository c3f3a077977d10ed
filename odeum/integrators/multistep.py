"""Methods that remember: a step that uses what the field was at the steps, or layers, before."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, remembered, within_step
from odeum.integrators.mixes import combine
from odeum.integrators.runge_kutta import RungeKutta, evaluate_stages, landing
from odeum.tableaux import HEUN


class Past(NamedTuple):
    """The step before: its field, under the dropout masks that it was computed with, and how long it was."""

    f: Tensor
    dt: float


class AdamsBashforth(Method):
    """x + dt (3/2 f − 1/2 f of the step before): order 2 for one evaluation a step.

    Where steps differ by r = dt / dt before, x + dt ((1 + r/2) f − r/2 f before). Heun makes the first step, so the
    first layer costs two evaluations. Between layers that do not share weights, f before is the previous layer's.
    """

    order = 2
    history = "adams-bashforth"
    splits = False

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = remembered(context, "adams-bashforth")
        past: Past | None = carry.state
        context = within_step(field, context, repeats=past is None)
        f, *more = evaluate_stages(HEUN, 2 if past is None else 1, field, t, dt, x, context)
        half = 0.0 if past is None else 0.5 * dt / past.dt
        change = combine(HEUN.b, [f, *more]) if past is None else combine((1.0 + half, -half), [f, past.f])
        assert change is not None
        carry.state = Past(f, dt)
        return field.project(x + change if dt == 1.0 else x + dt * change)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        first = "; ".join(RungeKutta(HEUN).scheme(field, share))
        return [
            f"k = {field.formula('x')}",
            landing(field, "x + dt (3/2 k − 1/2 k′)") + ", k′ = k of the step before",
            f"the first step by heun: {first}",
        ]
