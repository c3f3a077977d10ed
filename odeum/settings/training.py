"""How to train: one recipe for every architecture that is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    """steps between checkpoints (0: every ten seconds or so)"""
    patience: int = 0
    """evaluations without progress before stopping early (0: never)"""
    tensorboard: bool = False
    """also write TensorBoard events"""
