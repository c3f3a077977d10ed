"""AdamW with torch's fused kernel, to the bit that of `torch.optim.AdamW(fused=True)`.

Not torch's class: its methods load torch's compiler at their first call, which takes as long as torch itself. What it
computes is called by its public function; a run's state has the same tensors under the same names.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

EPSILON = 1e-8


def reference(
    groups: list[dict[str, Any]], learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.AdamW:
    """Return torch's optimizer with the same arithmetic."""
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, eps=EPSILON, fused=True)


class AdamW:
    """Weights in groups of settings; `state` holds step, exp_avg and exp_avg_sq of each weight that had a gradient."""

    def __init__(
        self, groups: list[dict[str, Any]], learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        self.betas = betas
        self.param_groups: list[dict[str, Any]] = [{"lr": learning_rate, **group} for group in groups]
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights that have a gradient."""
        beta1, beta2 = self.betas
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            states = [self._state(weight) for weight in weights]
            adamw(
                weights,
                [weight.grad for weight in weights],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group.get("eps", EPSILON),
                maximize=False,
            )

    def _state(self, weight: nn.Parameter) -> dict[str, Tensor]:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        return state

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None
