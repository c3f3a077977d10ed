"""The kinetic energy of a pass, ∫ |dx/dt|² dt, a regulariser of training (optimal transport).

A penalty on it straightens the paths of the particles and equalises their speed, so that fewer and larger steps
suffice (Finlay et al. 2020; Kan et al. 2025 for transformers).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from odeum.integrators import capabilities
from odeum.integrators.adaptive import Adaptive
from odeum.integrators.fixed import FixedSteps
from odeum.integrators.gradients import GradientSolver


class Energy:
    """|x₁ − x₀|² / dt of each step of a pass, a mean over all entries of the state."""

    def __init__(self) -> None:
        self.moved: list[Tensor] = []

    @property
    def total(self) -> Tensor:
        """∫ |dx/dt|² dt over all layers, in single precision at least."""
        return torch.stack(self.moved).sum() if self.moved else torch.zeros(())


@contextmanager
def kinetic_energy(model: nn.Module) -> Generator[Energy]:
    """Measure the passes of a model, with gradients; adjoint and reversible gradients are refused."""
    for part in model.modules():
        if isinstance(part, GradientSolver):
            capabilities.check("the kinetic energy", part, f"gradient={type(part).__name__.lower()}")
    solvers = [part for part in model.modules() if isinstance(part, FixedSteps | Adaptive)]
    energy = Energy()
    for solver in solvers:
        solver.moved = energy.moved
    try:
        yield energy
    finally:
        for solver in solvers:
            solver.moved = None
