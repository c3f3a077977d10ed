"""How to train: one recipe for every architecture that is compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from odeum.errors import OdeumError
from odeum.registry.options import COUNT, FRACTION, NOT_NEGATIVE, check_options

MAY_CHANGE = ("device", "strategy", "tensorboard", "track", "checkpoint_every", "keep", "limit")
"""settings that say how, not what: a run may be continued with others"""


def seconds_of(budget: str, what: str = "budget") -> float:
    """`90s`, `10m`, `1.5h` or plain seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(budget))
    if not match or float(match[1]) <= 0:
        raise OdeumError(f"the {what} '{budget}' should be a positive time such as 90s, 10m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


@dataclass(frozen=True)
class Training:
    """One recipe."""

    epochs: Annotated[float, COUNT] = 10.0
    """passes over the training data (a fraction is allowed)"""
    steps: Annotated[int | None, COUNT] = None
    """optimizer steps, instead of epochs"""
    budget: str | None = None
    """training time, instead of epochs: 90s, 10m, 2h"""
    macs: Annotated[float | None, COUNT] = None
    """multiply–adds of the whole training, instead of epochs"""
    limit: str | None = None
    """the most training time by the clock, whatever the length; what it cuts off is saved, and no result"""
    batch_size: Annotated[int, COUNT] = 64
    """examples a step over all processes (translation: tokens)"""
    accumulate: Annotated[int, COUNT] = 1
    """parts in which a batch is computed, to save memory"""
    learning_rate: Annotated[float, COUNT] = 1e-3
    """at its peak"""
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"
    """of the learning rate after the warm-up"""
    warmup: Annotated[float, NOT_NEGATIVE] = 0.05
    """share of the run (below 1) or number of steps (1 and above)"""
    weight_decay: Annotated[float, NOT_NEGATIVE] = 0.05
    """of the matrices; vectors are not decayed"""
    beta2: Annotated[float, FRACTION] = 0.98
    """of AdamW"""
    clip: Annotated[float, NOT_NEGATIVE] = 1.0
    """largest norm of the gradient (0: none)"""
    ema: Annotated[float, FRACTION] = 0.0
    """decay of the average of the weights (0: none)"""
    average: Annotated[int, NOT_NEGATIVE] = 0
    """end with the mean of this many snapshots of the weights from the last fifth of the run (0: none)"""
    label_smoothing: Annotated[float, FRACTION] = 0.0
    """of the training loss"""
    kinetic: Annotated[float, NOT_NEGATIVE] = 0.0
    """how much of the kinetic energy ∫ |dx/dt|² dt is added to the training loss (0: none)"""
    parametrization: Literal["standard", "completep"] = "standard"
    """completep: learning rates of the base width and depth apply to all others"""
    base_width: Annotated[int, COUNT] = 64
    """of completep: the width at which the learning rate was tuned"""
    base_depth: Annotated[int, COUNT] = 6
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
    evaluate_every: Annotated[int, NOT_NEGATIVE] = 0
    """steps between evaluations (0: ten times a run)"""
    checkpoint_every: Annotated[int, NOT_NEGATIVE] = 0
    """steps between checkpoints (0: every few seconds, for at most 2 % of the time)"""
    keep: Annotated[int, COUNT] = 2
    """checkpoints to keep; with more than 2 they stay when the run is done"""
    patience: Annotated[int, NOT_NEGATIVE] = 0
    """evaluations without progress before stopping early (0: never)"""
    tensorboard: bool = False
    """also write TensorBoard events"""
    track: Literal["tensorboard", "trackio", "wandb", "mlflow"] | None = None
    """also tell a tracker"""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained before a run is begun."""
        check_options(self, " of the training")
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
