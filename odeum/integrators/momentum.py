"""Momentum: a velocity passes from layer to layer, and each layer updates it by its field (Sander et al. 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, get_carry, within_evaluation, within_step
from odeum.integrators.runge_kutta import projected_step


class Momentum(Method):
    """v ← γ v + (1 − γ) f(x), x ← x + dt v; γ = 0 is Euler's step.

    A step of length dt forgets as dt whole ones do, by γ^dt, so that finer steps go to the limit of one equation,
    v̇ = ln(1/γ) (f − v), ẋ = v: another one than ẋ = f, and the order is meant for it.
    """

    history = "momentum"
    stability = "contracts where the field does, to −2 (1 + γ)/(1 − γ); run back, rounding errors grow by 1/γ each step"

    def __init__(self, gamma: float) -> None:
        super().__init__()
        if not 0.0 <= gamma < 1.0:
            raise OdeumError(f"gamma of momentum must be from 0 to below 1, not {gamma}")
        self.gamma = gamma

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "momentum").state = torch.zeros_like(x)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "momentum")
        context = within_step(field, context, repeats=False)
        decay = self.gamma**dt
        velocity = decay * carry.state + (1.0 - decay) * field(t, x, within_evaluation(field, context))
        carry.state = velocity
        return field.project(x + velocity if dt == 1.0 else x + dt * velocity)

    @property
    def reversible(self) -> bool:
        return self.gamma > 0.0

    def step_back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "momentum")
        context = within_step(field, context, repeats=False)
        decay = self.gamma**dt
        before = x - carry.state if dt == 1.0 else x - dt * carry.state
        carry.state = (carry.state - (1.0 - decay) * field(t, before, within_evaluation(field, context))) / decay
        return before

    def equation(self, field: Field, turns: int = 1) -> str:
        """Returns the equation; `turns` is how often per step a splitting updates the velocity."""
        if not self.gamma:
            return super().equation(field)
        return f"dx/dt = v, dv/dt = {turns * math.log(1.0 / self.gamma):.3g} ({field.formula('x')} − v)"

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        decay = self.gamma**share
        step = "x + v" if share == 1.0 else f"x + {share:g} v"
        return [f"v ← {decay:.4g} v + {1 - decay:.4g} ({field.formula('x')})", projected_step(field, step)]
