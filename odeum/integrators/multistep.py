"""Linear multistep methods: a step uses the field, or the state, at earlier steps or layers.

The leapfrog's own formula for uneven steps loses an order when lengths alternate (measured), so a step of another
length is an Adams–Bashforth step. A cached pass keeps history for new positions only: past positions act through the
cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.algebra import refuse_new_draws
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, get_carry, within_evaluation, within_step
from odeum.integrators.mixes import Mix, combination, combine
from odeum.integrators.runge_kutta import RungeKutta, evaluate_stages, projected_step
from odeum.tableaux import BOSH3, HEUN, RK4, Tableau

STARTS: dict[int, Tableau] = {2: HEUN, 3: BOSH3, 4: RK4}
"""the Runge–Kutta method that makes the first steps of each order"""


class Past(NamedTuple):
    """An earlier step: the field at its start, under its own dropout masks, and its length."""

    value: Tensor
    dt: float


class AdamsBashforth(Method):
    """x + dt Σ wᵢ fᵢ over the field of this step and of the k − 1 before: order k for one evaluation per step.

    The weights integrate the polynomial through these values, so steps may differ in length. A Runge–Kutta method of
    the same order makes the first k − 1 steps, which cost more. Between layers that do not share weights, the earlier
    values are those of the earlier layers.
    """

    splits = False

    def __init__(self, order: int = 2) -> None:
        super().__init__()
        if order not in STARTS:
            raise OdeumError(f"adams-bashforth has order 2, 3 or 4, not {order}")
        self.order = order
        self.start = STARTS[order]
        self.used = Mix(self.start).used
        self.history = "adams-bashforth" if order == 2 else f"adams-bashforth-{order}"

    def check(self, field: Field) -> None:
        super().check(field)
        refuse_new_draws(field)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        assert self.order is not None
        carry = get_carry(context, "adams-bashforth")
        past: tuple[Past, ...] = carry.state or ()
        starts = len(past) < self.order - 1
        context = within_step(field, context, repeats=starts)
        stages = evaluate_stages(self.start, self.used if starts else 1, field, t, dt, x, context)
        values = stages if starts else [stages[0], *(step.value for step in past)]
        change = combine(self.start.b if starts else weights([dt, *(step.dt for step in past)]), values)
        assert change is not None
        carry.state = (Past(stages[0], dt), *past)[: self.order - 1]
        return field.project(x + change if dt == 1.0 else x + dt * change)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        assert self.order is not None
        first = "; ".join(RungeKutta(self.start).scheme(field, share))
        marks = ("k", "k′", "k″", "k‴")[: self.order]
        change = renamed_stages(combination(weights([1.0] * self.order)), marks)
        count = "step" if self.order == 2 else f"{self.order - 1} steps"
        many = "step" if self.order == 2 else "steps"
        return [
            f"k = {field.formula('x')}",
            projected_step(field, f"x + dt ({change})") + f", {', '.join(marks[1:])} = k of the {many} before",
            f"the first {count} by {self.start.name}: {first}",
        ]


def renamed_stages(combination: str, marks: Sequence[str]) -> str:
    """Replaces k1, k2, … by these names."""
    for i, mark in enumerate(marks, 1):
        combination = combination.replace(f"k{i}", mark)
    return combination


def weights(lengths: Sequence[float]) -> tuple[float, ...]:
    """Returns the weights of the field now and at the starts of earlier steps, newest first, in x + dt Σ wᵢ fᵢ.

    `lengths` are those of this step and of the earlier ones.
    """
    return mean_weights(nodes(lengths))


def nodes(lengths: Sequence[float]) -> list[float]:
    """Returns the start of this step and of those before, in units of this step's length."""
    out, now = [0.0], 0.0
    for length in lengths[1:]:
        now -= length / lengths[0]
        out.append(now)
    return out


def mean_weights(points: Sequence[float]) -> tuple[float, ...]:
    """Returns the weights of values at these points in the mean of their interpolating polynomial over [0, 1]."""
    out = []
    for node in points:
        poly = [1.0]  # coefficients of s⁰, s¹, …
        for other in points:
            if other != node:
                raised, unraised = [0.0, *poly], [*poly, 0.0]
                poly = [(a - other * b) / (node - other) for a, b in zip(raised, unraised, strict=True)]
        out.append(sum(c / (power + 1) for power, c in enumerate(poly)))
    return tuple(out)


def adams_bashforth_3() -> AdamsBashforth:
    """Adams–Bashforth of order 3."""
    return AdamsBashforth(3)


def adams_bashforth_4() -> AdamsBashforth:
    """Adams–Bashforth of order 4."""
    return AdamsBashforth(4)


class Leap(NamedTuple):
    """The step before: the state at its start and, if steps may differ, the field there and its length."""

    x: Tensor
    f: Tensor | None = None
    dt: float | None = None


class Leapfrog(Method):
    """From the state before over the state now: x′ + 2 dt f(x), the two-step midpoint; Euler makes the first step.

    Order 2 for one evaluation a step. It is stable for purely imaginary eigenvalues alone: where the field contracts,
    a part of the solution that alternates from step to step grows. A step of another length than the one before has no
    midpoint, and is Adams and Bashforth's.
    """

    order = 2
    history = "leapfrog"
    splits = False
    stability = "stable for imaginary eigenvalues of size to 1 alone: what the field contracts grows, alternating"

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "leapfrog")
        past: Leap | None = carry.state
        context = within_step(field, context, repeats=False)
        f = field(t, x, within_evaluation(field, context))
        carry.state = Leap(x, f, dt)
        if past is None:
            return field.project(x + dt * f)
        if past.f is None or past.dt is None or past.dt == dt:
            return field.project(past.x + 2.0 * dt * f)
        now, before = weights([dt, past.dt])
        return field.project(x + dt * (now * f + before * past.f))

    @property
    def reversible(self) -> bool:
        return True

    def step_back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        """x′ = x₊ − 2 dt f(x), of steps of one length; the first, Euler's, leads back to what is remembered."""
        carry = get_carry(context, "leapfrog")
        here = carry.state.x
        context = within_step(field, context, repeats=False)
        carry.state = Leap(x - 2.0 * dt * field(t, here, within_evaluation(field, context)))
        return here

    def history_tensor(self, state: Any) -> Tensor | None:
        return None if state is None else state.x

    def history_from_tensor(self, tensor: Tensor | None) -> Any:
        return None if tensor is None else Leap(tensor)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        return [
            projected_step(field, f"x′ + 2 dt ({field.formula('x')})") + ", x′ = x of the step before",
            "the first step by euler",
        ]
