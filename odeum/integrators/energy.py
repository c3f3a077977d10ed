"""The kinetic energy of a pass, ∫ |dx/dt|² dt: what a training may be asked to keep small (optimal transport).

A penalty on it straightens the ways of the particles and evens out their speed (Finlay et al. 2020; Kan et al. 2025 for
transformers), so that fewer and larger steps follow them.
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
    """What the steps of a pass moved: for each |x₁ − x₀|² / dt, a mean over all numbers of the state."""

    def __init__(self) -> None:
        self.moved: list[Tensor] = []

    @property
    def total(self) -> Tensor:
        """∫ |dx/dt|² dt over all layers, in single precision at least."""
        return torch.stack(self.moved).sum() if self.moved else torch.zeros(())


@contextmanager
def kinetic_energy(model: nn.Module) -> Generator[Energy]:
    """Measure the passes of a model, with gradients, which an adjoint or reversible one has nothing to pass through."""
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
