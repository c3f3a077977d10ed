"""Nesterov's accelerated steps, one for each term of the field (YuriiFormer: Zimin, Polyanskiy & Rigollet 2026)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, get_carry, within_evaluation, within_step
from odeum.integrators.runge_kutta import projected_step


class Nesterov(Method):
    """v ← N(β v + γ f(x + μ v)), x ← x + v: the field is looked at where the velocity leads.

    0 < μ, β < 1 and γ > 0 are learned. With the norm N each step moves by one unit, whatever γ: no step is small. The
    velocity begins at zero, so the `first` sublayer of a stack has no use for μ and β, nor, under a norm, for γ.
    """

    order = None
    history = "yurii"
    divides = False

    def __init__(self, norm: nn.Module | None = None, *, first: bool = False) -> None:
        super().__init__()
        self.norm = norm
        self.first = first
        count = 3 if not first else 1 if norm is None else 0
        self.numbers = nn.Parameter(torch.zeros(count)) if count else None

    def coefficients(self) -> tuple[Tensor | float, Tensor | float, Tensor | float]:
        """μ, β and γ."""
        if self.numbers is None:
            return 0.0, 0.0, 1.0
        gamma = nn.functional.softplus(self.numbers[-1])
        return (0.0, 0.0, gamma) if self.first else (self.numbers[0].sigmoid(), self.numbers[1].sigmoid(), gamma)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "yurii").state = torch.zeros_like(x)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        if dt != 1.0:
            raise OdeumError(f"yurii makes one step per layer, of length 1, not {dt:g}; its steps cannot be changed")
        carry = get_carry(context, "yurii")
        context = within_step(field, context, repeats=False)
        mu, beta, gamma = self.coefficients()
        v: Tensor = carry.state
        moved = beta * v + gamma * field(t, x + mu * v, within_evaluation(field, context))
        carry.state = moved if self.norm is None else self.norm(moved)
        return field.project(x + carry.state)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        move = f"β v + γ {field.formula('x + μ v')}"
        return [f"v ← {move if self.norm is None else f'N({move})'}", projected_step(field, "x + v")]
