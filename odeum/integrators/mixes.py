"""How the stages of a Runge–Kutta step are mixed: by the tableau's weights, learned weights, or gates."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from odeum.integrators.tableaux import Tableau


def combine(weights: tuple[float, ...], stages: list[Tensor]) -> Tensor | None:
    """Σ w_i k_i without the zeros; None if nothing is left."""
    total: Tensor | None = None
    for weight, stage in zip(weights, stages, strict=False):
        if weight:
            part = stage if weight == 1.0 else weight * stage
            total = part if total is None else total + part
    return total


class Mix(nn.Module):
    """Σ w_i k_i with the tableau's weights."""

    def __init__(self, tableau: Tableau) -> None:
        super().__init__()
        self.weights = tableau.b

    def forward(self, stages: list[Tensor]) -> Tensor:
        total = combine(self.weights, stages)
        assert total is not None
        return total

    def terms(self) -> list[str]:
        """The mix as people write it, a term a stage."""
        return [f"{_fraction(w)}k{i + 1}" for i, w in enumerate(self.weights) if w]


class Learned(Mix):
    """Σ γ_i k_i with learned γ, from the tableau's weights or one given start (Li et al. 2022 start at 1)."""

    def __init__(self, tableau: Tableau, start: float | None = None) -> None:
        super().__init__(tableau)
        self.gamma = nn.Parameter(torch.tensor([b if start is None else start for b in tableau.b]))

    def forward(self, stages: list[Tensor]) -> Tensor:
        return torch.stack([g * k for g, k in zip(self.gamma.unbind(), stages, strict=True)]).sum(0)

    def terms(self) -> list[str]:
        return [f"γ{i + 1} k{i + 1}" for i in range(len(self.weights))]


class Gated(Mix):
    """Σ g_i(x) k_i, gates that sum to one and are read off the stages; for two stages g and 1 − g (Li et al. 2022)."""

    def __init__(self, tableau: Tableau, width: int) -> None:
        super().__init__(tableau)
        stages = len(tableau.b)
        self.gate = nn.Linear(stages * width, stages - 1)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, stages: list[Tensor]) -> Tensor:
        logits = nn.functional.pad(self.gate(torch.cat(stages, dim=-1)), (0, 1))
        gates = logits.softmax(dim=-1).unbind(-1)
        return torch.stack([g.unsqueeze(-1) * k for g, k in zip(gates, stages, strict=True)]).sum(0)

    def terms(self) -> list[str]:
        return [f"g{i + 1}(k) k{i + 1}" for i in range(len(self.weights))]


def _fraction(weight: float) -> str:
    from fractions import Fraction

    fraction = Fraction(weight).limit_denominator(20_000)
    return "" if fraction == 1 else f"{fraction} "
