"""Residual scalars: before each layer x ← λ x + μ x₀, with x₀ the input of the stack (nanochat, modded-nanogpt)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from odeum.fields.base import Context, Field
from odeum.integrators import capabilities
from odeum.integrators.base import Method, get_carry, share_of_step


class ResidualScalars(Method):
    """x ← λ x + μ x₀, then a step of any method without history; λ = 1 and μ = 0 at the start: the plain layer.

    A step of length dt moves by dt ((λ − 1) x + μ x₀), so that finer steps have a limit. λ is 1 + `rate` · s with s
    learned: under Adam, whose updates have a fixed size, λ then learns `rate` times as fast as the other weights.
    `fixed` gives λ and μ as numbers that do not learn.
    """

    order = None
    history = "residual-scalars"

    def __init__(self, inner: Method, rate: float, fixed: tuple[float, float] | None = None) -> None:
        super().__init__()
        capabilities.check("residual scalars", inner)
        self.inner = inner
        self.rate = rate
        self.fixed = fixed
        self.order = 1 if fixed and inner.order else None
        self.stream = None if fixed else nn.Parameter(torch.zeros(()))
        """s in λ = 1 + rate · s"""
        self.input = None if fixed else nn.Parameter(torch.zeros(()))
        """μ"""

    def coefficients(self) -> tuple[Tensor | float, Tensor | float]:
        """λ − 1 and μ."""
        if self.stream is None or self.input is None:
            assert self.fixed is not None
            return self.fixed[0] - 1.0, self.fixed[1]
        return self.rate * self.stream, self.input

    def check(self, field: Field) -> None:
        self.inner.check(field)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "residual-scalars").state = x
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        start = get_carry(context, "residual-scalars").state
        stream, given = (dt * c.to(x.dtype) if isinstance(c, Tensor) else dt * c for c in self.coefficients())
        x = (1.0 + stream) * x + given * start
        return self.inner.step(field, t, dt, x, context)

    def equation(self, field: Field, turns: int = 1) -> str:
        return f"dx/dt = (λ − 1) x + μ x₀ + {field.formula('x')}"

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        part = share_of_step(share)
        scaled = f"x + {part}((λ − 1) x + μ x₀)" if part else "λ x + μ x₀"
        if self.fixed:
            scaled += f", λ = {self.fixed[0]:g}, μ = {self.fixed[1]:g}"
        return [f"x ← {scaled}", *self.inner.scheme(field, share)]
