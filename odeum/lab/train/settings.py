"""How to train: one recipe for every architecture that is compared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from odeum.errors import OdeumError

_POSITIVE = (
    *("epochs", "steps", "macs", "batch_size", "accumulate", "learning_rate", "keep"),
    *("base_width", "base_depth"),
)
_FROM_ZERO = ("warmup", "weight_decay", "clip", "average", "evaluate_every", "checkpoint_every", "patience", "kinetic")
MAY_CHANGE = ("device", "strategy", "tensorboard", "track", "checkpoint_every", "keep", "limit")
"""settings that say how, not what: a run may be continued with others"""
_SHARES = ("beta2", "ema", "label_smoothing")


def seconds_of(budget: str, what: str = "budget") -> float:
    """`90s`, `10m`, `1.5h` or plain seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(budget))
    if not found or float(found[1]) <= 0:
        raise OdeumError(f"the {what} '{budget}' should be a positive time such as 90s, 10m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


@dataclass(frozen=True)
class Training:
    """One recipe."""

    epochs: float = 10.0
    """passes over the training data (a fraction is allowed)"""
    steps: int | None = None
    """optimizer steps, instead of epochs"""
    budget: str | None = None
    """training time, instead of epochs: 90s, 10m, 2h"""
    macs: float | None = None
    """multiply–adds of the whole training, instead of epochs"""
    limit: str | None = None
    """the most training time by the clock, whatever the length; what it cuts off is saved, and no result"""
    batch_size: int = 64
    """examples a step over all processes (translation: tokens)"""
    accumulate: int = 1
    """parts in which a batch is computed, to save memory"""
    learning_rate: float = 1e-3
    """at its peak"""
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"
    """of the learning rate after the warm-up"""
    warmup: float = 0.05
    """share of the run (below 1) or number of steps (1 and above)"""
    weight_decay: float = 0.05
    """of the matrices; vectors are not decayed"""
    beta2: float = 0.98
    """of AdamW"""
    clip: float = 1.0
    """largest norm of the gradient (0: none)"""
    ema: float = 0.0
    """decay of the average of the weights (0: none)"""
    average: int = 0
    """end with the mean of this many snapshots of the weights from the last fifth of the run (0: none)"""
    label_smoothing: float = 0.0
    """of the training loss"""
    kinetic: float = 0.0
    """how much of the kinetic energy ∫ |dx/dt|² dt is added to the training loss (0: none)"""
    parametrization: Literal["standard", "completep"] = "standard"
    """completep: learning rates of the base width and depth apply to all others"""
    base_width: int = 64
    """of completep: the width at which the learning rate was tuned"""
    base_depth: int = 6
    """of completep: the depth at which the learning rate was tuned"""
    depth_exponent: float = 1.0
    """of completep: layers are (base depth / depth)^this long; 0.5 is depth-μP"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 where the hardware has it"""
    compile: bool = False
    """torch.compile the model"""
    deterministic: bool = False
    """refuse operations that are not deterministic"""
    device: str = "auto"
    """auto, cpu, cuda, mps"""
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    """how several processes (torchrun) divide the work"""
    evaluate_every: int = 0
    """steps between evaluations (0: ten times a run)"""
    checkpoint_every: int = 0
    """steps between checkpoints (0: every few seconds, for at most 2 % of the time)"""
    keep: int = 2
    """checkpoints to keep; with more than 2 they stay when the run is done"""
    patience: int = 0
    """evaluations without progress before stopping early (0: never)"""
    tensorboard: bool = False
    """also write TensorBoard events"""
    track: Literal["tensorboard", "trackio", "wandb", "mlflow"] | None = None
    """also tell a tracker"""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained before a run is begun."""
        self._refuse(_POSITIVE, "positive", lambda value: 0 < value < math.inf)
        self._refuse(_FROM_ZERO, "0 or more", lambda value: 0 <= value < math.inf)
        self._refuse(_SHARES, "from 0 to below 1", lambda value: 0 <= value < 1)
        ends = [name for name in ("steps", "budget", "macs") if getattr(self, name) is not None]
        if len(ends) > 1:
            raise OdeumError(f"a run ends by one of steps, budget or macs, not by {' and '.join(ends)}")
        if not 0.5 <= self.depth_exponent <= 1:
            raise OdeumError(f"depth_exponent of the training should be from 0.5 to 1, not {self.depth_exponent}")
        if self.kinetic and self.compile:
            raise OdeumError(f"kinetic={self.kinetic} measures each step, which compile would not see; use one of them")
        if self.budget is not None:
            seconds_of(self.budget)
        if self.limit is not None:
            seconds_of(self.limit, "limit")

    def _refuse(self, names: Iterable[str], right: str, fits: Callable[[float], bool]) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not fits(value):
                raise OdeumError(f"{name} of the training should be {right}, not {value}")
