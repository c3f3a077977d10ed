"""Parts of a training step: end of training, learning rate, optimizer, determinism, averaged weights."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from odeum.kernels.adamw import AdamW
from odeum.lab.train.settings import Training, seconds_of


class TrainingEnd:
    """When training ends: after a number of steps, or when the time budget is used up."""

    def __init__(self, training: Training, steps_per_epoch: int, macs_per_step: float) -> None:
        self.seconds = seconds_of(training.budget) if training.budget is not None else None
        self.steps: int | None = None
        if training.steps is not None:
            self.steps = training.steps
        elif training.macs is not None:
            self.steps = max(1, round(training.macs / macs_per_step))
        elif self.seconds is None:
            self.steps = max(1, round(training.epochs * steps_per_epoch))

    def fraction(self, step: int, seconds: float) -> float:
        """The completed fraction of the run; 1 is the end."""
        if self.steps is not None:
            return step / self.steps
        assert self.seconds is not None
        return min(1.0, seconds / self.seconds)


def learning_rate(training: Training, step: int, fraction: float) -> float:
    """Linear warm-up, then the schedule. `warmup` below 1 is a fraction of the run, otherwise a number of steps."""
    warm = training.warmup
    ramp = (step + 1) / max(warm, 1) if warm >= 1 or warm == 0 else fraction / warm
    if warm < 1 and step == 0:
        ramp = min(1.0, 1e-2 + ramp)
    if ramp < 1.0:
        return training.learning_rate * max(ramp, 1e-3)
    match training.schedule:
        case "constant":
            return training.learning_rate
        case "inverse-sqrt":
            return training.learning_rate / math.sqrt(ramp)
        case _:
            start = warm if warm < 1 else fraction * warm / (step + 1)
            along = min(1.0, max(0.0, (fraction - start) / max(1e-9, 1 - start)))
            return training.learning_rate * max(0.5 * (1 + math.cos(math.pi * along)), 1e-2)


UNDECAYED = ("token", "position", "positions.table.weight")
"""matrices whose rows are vectors, not decayed: the class token and learned positions"""


def make_optimizer(model: nn.Module, training: Training) -> AdamW:
    """AdamW; matrices decay, vectors (norms, biases, gates, class token, positions) do not."""
    weights = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    undecayed = {name for name, p in weights if p.dim() < 2 or name.endswith(UNDECAYED)}
    if training.parametrization != "standard":
        from odeum.lab.train.transfer import grouped

        return AdamW(grouped(model, training, undecayed), training.learning_rate, (0.9, training.beta2))
    groups = [
        {"params": [p for name, p in weights if name not in undecayed], "weight_decay": training.weight_decay},
        {"params": [p for name, p in weights if name in undecayed], "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], training.learning_rate, (0.9, training.beta2))


def set_deterministic(wanted: bool) -> None:
    """Turn torch's deterministic mode on or off."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
    if wanted != torch.are_deterministic_algorithms_enabled():  # the call imports torch's compiler
        torch.use_deterministic_algorithms(wanted)


class Average:
    """Averaged weights: exponential with `decay`, or the mean of snapshots if `decay` is None."""

    def __init__(self, weights: Iterable[Tensor], decay: float | None) -> None:
        self.decay = decay
        self.count = 0
        self.values = [w.detach().clone() for w in weights]

    @torch.no_grad()
    def update(self, weights: Iterable[Tensor]) -> None:
        self.count += 1
        # At first the exponential average uses a smaller decay, so that it forgets the initial weights.
        share = 1 / self.count if self.decay is None else 1 - min(self.decay, self.count / (self.count + 9))
        torch._foreach_lerp_(self.values, [w.detach() for w in weights], share)
