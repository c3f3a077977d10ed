"""How a batch is divided among processes and accumulated parts, so that all of it counts once; what seeds a step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from odeum.fields.base import foreign_modules


def divide(
    batch: dict[str, Tensor], parts: int, counted: Callable[[Tensor], int]
) -> list[tuple[dict[str, Tensor], float]]:
    """A batch in equal parts, each with its share of the labels that count in the loss."""
    if parts == 1:
        return [(batch, float(counted(batch["labels"]) > 0))]
    rows = next(iter(batch.values())).shape[0]
    pieces, counts = [], []
    for i in range(parts):
        low, high = rows * i // parts, rows * (i + 1) // parts
        empty = low == high  # fewer rows than parts: a part that computes along and counts for nothing
        piece = {key: value[0:1] if empty else value[low:high] for key, value in batch.items()}
        pieces.append(piece)
        counts.append(0 if empty else counted(piece["labels"]))
    total = max(1, sum(counts))
    return [(piece, count / total) for piece, count in zip(pieces, counts, strict=True)]


def step_seed(seed: int, step: int, rank: int) -> int:
    """A seed of its own for each step: what is random does not depend on where a run was interrupted."""
    return int.from_bytes(hashlib.blake2b(repr((seed, step, rank)).encode(), digest_size=7).digest(), "big")


def seed_generators(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` for this device alone.

    That function also seeds the devices which are not there, by keeping the seed and where it was asked for until they
    come: for a small model a tenth of a step, and memory that grows with every step.
    """
    match device.type:
        case "cpu":
            torch.default_generator.manual_seed(seed)
        case "cuda":
            torch.default_generator.manual_seed(seed)
            torch.cuda.manual_seed_all(seed)
        case _:
            torch.manual_seed(seed)


@torch.no_grad()
def refuse_hidden_draws(model: nn.Module, batch: dict[str, Tensor]) -> None:
    """Before a model with another's modules is compiled: a pass that sees what they draw, and leaves no trace."""
    if not foreign_modules(model):
        return
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        model(**batch)
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])
