"""Reversible methods: two copies of the state move alternately and can be run backwards, so no state is stored.

`Momentum` and `Leapfrog` are of this kind too. What they do at dt = 1 differs: `stability` says it, and
`benchmarks/memory.py` measures it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.algebra import randomness
from odeum.fields.base import Context, Field
from odeum.integrators import capabilities
from odeum.integrators.base import Method, get_carry, refuse_projections, share_of_step, within_evaluation, within_step
from odeum.integrators.runge_kutta import RungeKutta
from odeum.tableaux import EULER


class StoredValue(NamedTuple):
    """The field at the twin at the end of a step, which the next step reuses if it has the same field."""

    field: Field
    t: float
    dt: float
    value: Tensor


class Twin(NamedTuple):
    """ŷ of the reversible Heun method, and the field there if it is known."""

    x: Tensor
    known: StoredValue | None = None


class TwoStates(Method):
    """Base of methods with a state and a twin state, which can be inverted."""

    def check(self, field: Field) -> None:
        refuse_projections(field, f"{self.history} has no place for a norm after the step")

    @property
    def reversible(self) -> bool:
        return True


class ReversibleHeun(TwoStates):
    """ŷ′ = 2 y − ŷ + dt f(ŷ), y′ = y + dt/2 (f(ŷ) + f(ŷ′)): order 2 (Kidger et al. 2021).

    One evaluation per step where the field does not change between steps (shared weights, weights smooth in time, no
    dropout), else two.
    """

    order = 2
    history = "reversible-heun"
    splits = False
    stability = "stable for imaginary eigenvalues of size to 1 alone: what the field contracts grows, alternating"

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "reversible-heun").state = Twin(x)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "reversible-heun")
        twin: Twin = carry.state
        inner = within_step(field, context, repeats=True)
        first = self._at(field, t, dt, twin, inner)
        moved = 2.0 * x - twin.x + dt * first
        last = field(t + dt, moved, within_evaluation(field, inner))
        carry.state = self._twin(field, t + dt, dt, moved, last)
        return x + 0.5 * dt * (first + last)

    def step_back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "reversible-heun")
        twin: Twin = carry.state
        inner = within_step(field, context, repeats=True)
        last = self._at(field, t + dt, dt, twin, inner)
        before = 2.0 * x - twin.x - dt * last
        first = field(t, before, within_evaluation(field, inner))
        carry.state = self._twin(field, t, dt, before, first)
        return x - 0.5 * dt * (first + last)

    def _at(self, field: Field, t: float, dt: float, twin: Twin, context: Context) -> Tensor:
        known = twin.known
        if known is not None and known.field is field and known.dt == dt and abs(known.t - t) < 1e-9 * max(1.0, abs(t)):
            return known.value
        return field(t, twin.x, within_evaluation(field, context))

    def _twin(self, field: Field, t: float, dt: float, x: Tensor, value: Tensor) -> Twin:
        jumps = any(getattr(part, "stepwise", False) for _, part in field.named_modules())
        return Twin(x, None if jumps or randomness(field) else StoredValue(field, t, dt, value))

    def history_tensor(self, state: Any) -> Tensor | None:
        return state.x

    def history_from_tensor(self, tensor: Tensor | None) -> Any:
        assert tensor is not None
        return Twin(tensor)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        return [
            f"y′ = 2 x − y + dt ({field.formula('y')}), y begins as x",
            f"x ← x + dt/2 ({field.formula('y')} + {field.formula('y′')})",
        ]


class Coupled(TwoStates):
    """y′ = λ y + (1 − λ) z + Ψ(dt, z), z′ = z − Ψ(−dt, y′): any one-step method Ψ, reversible (McCallum & Foster 2024).

    Of the order of Ψ, for two of its steps. Undoing multiplies rounding errors by 1/λ each step.
    """

    splits = False
    history = "coupled"
    stability = "on the negative axis stable only to 1 − λ: at dt = 1 what the field contracts grows"

    def __init__(self, part: Method | None = None, keep: float = 0.99) -> None:
        super().__init__()
        self.part = part or RungeKutta(EULER)
        capabilities.check("coupling", self.part)
        if not 0.0 < keep <= 1.0:
            raise OdeumError(f"keep of the coupling must be above 0 and at most 1, got {keep}")
        self.keep = keep
        self.order = self.part.order

    def check(self, field: Field) -> None:
        super().check(field)
        self.part.check(field)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "coupled").state = x
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry, inner = get_carry(context, "coupled"), within_step(field, context, repeats=True)
        twin = carry.state
        y = self.keep * x + (1.0 - self.keep) * twin + self._change(field, t, dt, twin, inner)
        carry.state = twin - self._change(field, t + dt, -dt, y, inner)
        return y

    def step_back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry, inner = get_carry(context, "coupled"), within_step(field, context, repeats=True)
        twin = carry.state + self._change(field, t + dt, -dt, x, inner)
        carry.state = twin
        return (x - (1.0 - self.keep) * twin - self._change(field, t, dt, twin, inner)) / self.keep

    def _change(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        """Returns Ψ, under the same dropout masks each time."""
        return self.part.step(field, t, dt, x, within_evaluation(field, context)) - x

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        base = "; ".join(self.part.scheme(field, share))
        return [
            f"x′ = {self.keep:g} x + {1 - self.keep:.3g} z + Ψ(dt, z), z begins as x",
            "z ← z − Ψ(−dt, x′)",
            f"Ψ(dt, x) = what a step adds: {base}",
        ]


class RevNet(TwoStates):
    """q ← q + dt G(p), p ← p + dt F(q): attention moves one half by the other, the feed-forward back (Gomez 2017).

    Both halves start as x, and their mean is the output. The method has order 1 for dq/dt = G(p), dp/dt = F(q), which
    is not dx/dt = G(x) + F(x).

    With a `grid`, the start and all updates are rounded to multiples of 2^−grid. Sums of such numbers are exact below
    2^(24 − grid) in single precision, so the backward steps are exact to the bit. The gradient ignores the rounding.
    """

    history = "revnet"
    splits = False
    stability = "conserves volume: nothing contracts unless something else grows; follows no equation of x alone"

    def __init__(self, grid: int | None = None) -> None:
        super().__init__()
        self.grid = grid

    def check(self, field: Field) -> None:
        super().check(field)
        if len(field.terms) < 2:
            raise OdeumError(f"revnet needs two terms, but {field.formula('x')} is one; use norm=pre, not shared")

    def begin(self, x: Tensor, context: Context) -> Tensor:
        x = self._rounded(x)
        get_carry(context, "revnet").state = x
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry, inner = get_carry(context, "revnet"), within_step(field, context, repeats=False)
        *others, last = field.terms
        carry.state = carry.state + self._change(others, t, dt, x, inner)
        return x + self._change([last], t, dt, carry.state, inner)

    def step_back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry, inner = get_carry(context, "revnet"), within_step(field, context, repeats=False)
        *others, last = field.terms
        before = x - self._change([last], t, dt, carry.state, inner)
        carry.state = carry.state - self._change(others, t, dt, before, inner)
        return before

    def _change(self, terms: list[Field], t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        first, *rest = (term(t, x, within_evaluation(term, context)) for term in terms)
        for part in rest:
            first = first + part
        return self._rounded((dt * first).to(x.dtype))

    def _rounded(self, x: Tensor) -> Tensor:
        """Exact on the grid: both numbers are multiples of its step, so their difference has no rounding error."""
        if self.grid is None:
            return x
        return x - (x - (x * 2.0**self.grid).round() * 2.0**-self.grid).detach()

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return 0.5 * (x + get_carry(context, "revnet").state)

    def equation(self, field: Field, turns: int = 1) -> str:
        *others, last = field.terms
        return f"dx/dt = {last.formula('y')}, dy/dt = {' + '.join(term.formula('x') for term in others)}"

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        *others, last = field.terms
        part, read = share_of_step(share), " + ".join(term.formula("x") for term in others)
        lines = [
            f"y ← y + {f'{part}({read})' if part and ' + ' in read else part + read}",
            f"x ← x + {part}{last.formula('y')}, y begins as x",
            "at the end (x + y)/2",
        ]
        return lines if self.grid is None else [*lines, f"all that is added is rounded to multiples of 2^−{self.grid}"]
