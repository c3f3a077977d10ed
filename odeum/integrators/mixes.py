"""Combination of Runge–Kutta stages: by the tableau's weights, learned weights, or gates."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from odeum.draws import Keyed
from odeum.errors import OdeumError
from odeum.tableaux import Tableau


def combine(weights: tuple[float, ...], stages: list[Tensor]) -> Tensor | None:
    """Returns Σ w_i k_i without zero terms; None if all weights are zero."""
    total: Tensor | None = None
    for weight, stage in zip(weights, stages, strict=False):
        if weight and total is not None:
            total = torch.add(total, stage, alpha=weight)
        elif weight:
            total = stage if weight == 1.0 else weight * stage
    return total


def advance(x: Tensor, dt: Any, weights: tuple[float, ...], stages: list[Tensor]) -> Tensor:
    """Returns x + dt Σ w_i k_i, one pass over memory per stage; dt may be a tensor with one value per sample."""
    counting = [(weight, stage) for weight, stage in zip(weights, stages, strict=False) if weight]
    if len(counting) == 1 and not isinstance(dt, Tensor):
        ((weight, stage),) = counting
        return torch.add(x, stage, alpha=dt * weight)
    change = combine(weights, stages)
    if change is None:
        return x
    return x + dt * change if isinstance(dt, Tensor) else torch.add(x, change, alpha=dt)


def combination(weights: tuple[float, ...]) -> str:
    """Returns Σ w_i k_i as text, 1/3 k1 − k2; empty if all weights are zero."""
    text = ""
    for i, weight in enumerate(weights, 1):
        if weight:
            size = Fraction(abs(weight)).limit_denominator(20_000)
            sign = ("−" if weight < 0 else "") if not text else (" − " if weight < 0 else " + ")
            text += f"{sign}{'' if size == 1 else f'{size} '}k{i}"
    return text


class Mix(Keyed, nn.Module):
    """Σ w_i k_i with the tableau's weights."""

    def __init__(self, tableau: Tableau) -> None:
        super().__init__()
        self.weights = tableau.b

    def forward(self, stages: list[Tensor]) -> Tensor:
        total = combine(self.weights, stages)
        assert total is not None
        return total

    @property
    def used(self) -> int:
        """Number of stages used: a last one of weight zero serves the error estimate alone."""
        return max(i for i, weight in enumerate(self.weights, 1) if weight)

    def formula(self) -> str:
        """Returns the combination as text."""
        return combination(self.weights)


class Learned(Mix):
    """Σ γ_i k_i with learned γ, from the tableau's weights or one given start (Li et al. 2022 start at 1)."""

    def __init__(self, tableau: Tableau, start: float | None = None) -> None:
        super().__init__(tableau)
        self.gamma = nn.Parameter(torch.tensor([b if start is None else start for b in tableau.b]))

    def forward(self, stages: list[Tensor]) -> Tensor:
        return torch.stack([g * k for g, k in zip(self.gamma.unbind(), stages, strict=True)]).sum(0)

    @property
    def used(self) -> int:
        return len(self.weights)

    def formula(self) -> str:
        return " + ".join(f"γ{i} k{i}" for i in range(1, self.used + 1))


class Gated(Mix):
    """Σ g_i(x) k_i, gates that sum to one and are read off the stages; for two stages g and 1 − g (Li et al. 2022)."""

    def __init__(self, tableau: Tableau, width: int) -> None:
        super().__init__(tableau)
        stages = len(tableau.b)
        if stages < 2:
            raise OdeumError(f"gates need a method of several stages, but {tableau.name} has one; use heun or rk4")
        self.gate = nn.Linear(stages * width, stages - 1)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, stages: list[Tensor]) -> Tensor:
        logits = nn.functional.pad(self.gate(torch.cat(stages, dim=-1)), (0, 1))
        gates = logits.softmax(dim=-1).unbind(-1)
        return torch.stack([g.unsqueeze(-1) * k for g, k in zip(gates, stages, strict=True)]).sum(0)

    @property
    def used(self) -> int:
        return len(self.weights)

    def formula(self) -> str:
        return " + ".join(f"g{i}(k) k{i}" for i in range(1, self.used + 1))
