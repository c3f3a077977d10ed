"""Lagged attention: from one layer on, attention reads the state at the start of that layer (marin, modded-nanogpt)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, get_carry, move_terms, refuse_projections, share_of_step, within_step


class LaggedAttention(Method):
    """Euler's step of each term in turn, or of their sum; terms that lag read the state x* of time `since`.

    Before that time, counted from the first layer, this is the plain layer. Afterwards the equation is
    dx/dt = G(x*) + F(x): attention has its own weights in each layer, but the same input.
    """

    history = "lagged-attention"
    splitting = True

    def __init__(self, since: float, lags: Sequence[bool], *, together: bool = False) -> None:
        super().__init__()
        self.since = since
        self.lags = tuple(lags)
        """for each term, whether it reads the earlier state"""
        self.together = together
        """whether all terms move in one sum, as in Euler's method"""

    def check(self, field: Field) -> None:
        refuse_projections(field, "lagged-attention evaluates a term at one state and adds it to another")

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "lagged-attention").state = (None, None)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "lagged-attention")
        start, early = carry.state
        start = t if start is None else start
        if early is None and t - start > self.since - 1e-6:
            early = x
        carry.state = (start, early)
        context = within_step(field, context, repeats=False)
        reads = {} if early is None else {index: early for index, lags in enumerate(self.lags) if lags}
        return move_terms(field, t, dt, x, context, reads, together=self.together)

    def equation(self, field: Field, turns: int = 1) -> str:
        return f"dx/dt = {field.formula('x')}, attention at x(min(t, {self.since:g}))"

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        part = share_of_step(share)
        changes = [
            f"{part}{term.formula('x*' if lags else 'x')}" for term, lags in zip(field.terms, self.lags, strict=True)
        ]
        steps = [f"x + {' + '.join(changes)}"] if self.together else [f"x + {change}" for change in changes]
        return [*(f"x ← {step}" for step in steps), f"x* is x, from t = {self.since:g} on x({self.since:g})"]
