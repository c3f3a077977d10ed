"""Splits a batch across processes and gradient-accumulation parts; seeds the generators of a step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from odeum.fields.base import foreign_modules


def divide(
    batch: dict[str, Tensor], parts: int, counted: Callable[[Tensor], int]
) -> list[tuple[dict[str, Tensor], float]]:
    """Split a batch into equal parts, each with its share of the labels that count in the loss."""
    if parts == 1:
        return [(batch, float(counted(batch["labels"]) > 0))]
    rows = next(iter(batch.values())).shape[0]
    pieces, counts = [], []
    for i in range(parts):
        low, high = rows * i // parts, rows * (i + 1) // parts
        empty = low == high  # fewer rows than parts: this part runs the same computation with weight 0
        piece = {key: value[0:1] if empty else value[low:high] for key, value in batch.items()}
        pieces.append(piece)
        counts.append(0 if empty else counted(piece["labels"]))
    total = max(1, sum(counts))
    return [(piece, count / total) for piece, count in zip(pieces, counts, strict=True)]


def step_seed(seed: int, step: int, rank: int) -> int:
    """Returns the seed of one step, so that random numbers do not depend on where a run was interrupted."""
    return int.from_bytes(hashlib.blake2b(repr((seed, step, rank)).encode(), digest_size=7).digest(), "big")


def seed_generators(seed: int, device: torch.device) -> None:
    """Like `torch.manual_seed`, for this device only.

    `torch.manual_seed` also queues the seed, with a stack trace, for device types that are not initialised. For a small
    model this takes a tenth of the step, and the queue grows with every step.
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
    """Raises `OdeumError` if a third-party module draws random numbers that Odeum cannot replay.

    Runs one forward pass before the model is compiled, and restores generators and buffers afterwards.
    """
    if not foreign_modules(model):
        return
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        model(**batch)
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])
