"""Training settings, the same for every architecture of a comparison."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from odeum.errors import OdeumError
from odeum.registry.options import COUNT, FRACTION, NOT_NEGATIVE, check_options

MAY_CHANGE = ("device", "strategy", "tensorboard", "track", "checkpoint_every", "keep", "limit")
"""settings that may differ when a run is continued: they do not change its result"""


def seconds_of(budget: str, what: str = "budget") -> float:
    """Parse a duration: `90s`, `10m`, `1.5h` or plain seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(budget))
    if not match or float(match[1]) <= 0:
        raise OdeumError(f"the {what} '{budget}' must be a positive time such as 90s, 10m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


@dataclass(frozen=True)
class Training:
    """Training options."""

    epochs: Annotated[float, COUNT] = 10.0
    """passes over the training data (a fraction is allowed)"""
    steps: Annotated[int | None, COUNT] = None
    """optimizer steps, instead of epochs"""
    budget: str | None = None
    """training time such as 90s, 10m or 2h, instead of epochs"""
    macs: Annotated[float | None, COUNT] = None
    """training MACs, instead of epochs"""
    limit: str | None = None
    """time limit; a run that reaches it is saved without a result"""
    batch_size: Annotated[int, COUNT] = 64
    """examples per step over all processes (translation: tokens)"""
    accumulate: Annotated[int, COUNT] = 1
    """gradient accumulation: micro-batches per step, to save memory"""
    learning_rate: Annotated[float, COUNT] = 1e-3
    """peak learning rate"""
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"
    """learning-rate schedule after the warm-up"""
    warmup: Annotated[float, NOT_NEGATIVE] = 0.05
    """warm-up: fraction of the run (below 1) or steps (1 and above)"""
    weight_decay: Annotated[float, NOT_NEGATIVE] = 0.05
    """weight decay of matrices (not of biases and norms)"""
    beta2: Annotated[float, FRACTION] = 0.98
    """β₂ of AdamW"""
    clip: Annotated[float, NOT_NEGATIVE] = 1.0
    """largest gradient norm (0: no clipping)"""
    ema: Annotated[float, FRACTION] = 0.0
    """decay of the exponential moving average of weights (0: none)"""
    average: Annotated[int, NOT_NEGATIVE] = 0
    """weight snapshots to average over the last fifth of training (0: none)"""
    label_smoothing: Annotated[float, FRACTION] = 0.0
    """label smoothing of the training loss"""
    kinetic: Annotated[float, NOT_NEGATIVE] = 0.0
    """weight of the kinetic energy ∫ |dx/dt|² dt in the loss (0: none)"""
    parametrization: Literal["standard", "completep"] = "standard"
    """completep: the learning rate transfers from base width and depth"""
    base_width: Annotated[int, COUNT] = 64
    """completep: width at which the learning rate was tuned"""
    base_depth: Annotated[int, COUNT] = 6
    """completep: depth at which the learning rate was tuned"""
    depth_exponent: float = 1.0
    """completep: layer length is (base depth / depth)^exponent; 0.5 is depth-μP"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """numeric precision (auto: bf16 on GPUs that support it)"""
    compile: bool = False
    """compile the model with torch.compile"""
    deterministic: bool = False
    """raise an error for nondeterministic operations"""
    device: str = "auto"
    """device: auto, cpu, cuda or mps"""
    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    """parallel strategy of several processes (torchrun)"""
    evaluate_every: Annotated[int, NOT_NEGATIVE] = 0
    """steps between evaluations (0: ten evaluations per run)"""
    checkpoint_every: Annotated[int, NOT_NEGATIVE] = 0
    """steps between checkpoints (0: every few seconds)"""
    keep: Annotated[int, COUNT] = 2
    """checkpoints to keep; more than 2 also stay after the run"""
    patience: Annotated[int, NOT_NEGATIVE] = 0
    """early stopping after this many evaluations without improvement (0: never)"""
    tensorboard: bool = False
    """also write TensorBoard events"""
    track: Literal["tensorboard", "trackio", "wandb", "mlflow"] | None = None
    """also log to a tracker"""

    def __post_init__(self) -> None:
        """Raises `OdeumError` for invalid settings."""
        check_options(self, " of the training")
        ends = [name for name in ("steps", "budget", "macs") if getattr(self, name) is not None]
        if len(ends) > 1:
            raise OdeumError(f"a run ends by one of steps, budget or macs, not by {' and '.join(ends)}")
        if not 0.5 <= self.depth_exponent <= 1:
            raise OdeumError(f"depth_exponent of the training must be from 0.5 to 1, not {self.depth_exponent}")
        if self.kinetic and self.compile:
            raise OdeumError(f"kinetic={self.kinetic} measures each step, which compile would not see; use one of them")
        if self.budget is not None:
            seconds_of(self.budget)
        if self.limit is not None:
            seconds_of(self.limit, "limit")
