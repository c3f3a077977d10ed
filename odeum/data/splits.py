"""Fixed parts of a data set that comes without them."""

from __future__ import annotations

import torch
from torch import Tensor

from odeum.errors import OdeumError


def shuffled(count: int, seed: int = 0) -> Tensor:
    """A fixed order, the same on every machine."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def mixed(count: int, limit: int | None) -> Tensor:
    """All rows, or a fixed choice from everywhere: the first ones of a sorted file may be of one class."""
    return torch.arange(count) if limit is None or limit >= count else shuffled(count)[:limit].sort().values


def stratified(labels: Tensor, shares: tuple[float, ...], where: str, largest: int = 5000) -> list[Tensor]:
    """Indices of one part a share and, first, of the rest (the training part), with the classes mixed alike.

    Every class keeps an example for the training; a class with enough examples has at least one in each part.
    """
    parts: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    scale = min(1.0, largest / max(1.0, max(shares) * len(labels)))
    order = shuffled(len(labels))
    for label in labels.unique(sorted=True):
        rows = order[labels[order] == label]
        for part, share in enumerate(shares, start=1):
            wanted = round(share * scale * len(order[labels[order] == label]))
            if wanted == 0 and len(rows) > len(shares) - part + 1:
                wanted = 1
            parts[part].append(rows[:wanted])
            rows = rows[wanted:]
        parts[0].append(rows)
    out = [torch.cat(part).sort().values for part in parts]
    if any(len(part) == 0 for part in out):
        raise OdeumError(
            f"'{where}' has {len(labels)} examples of {len(labels.unique())} classes, too few to set some aside for "
            f"validation and test; at least {len(shares) + 1} in one class are needed"
        )
    return out
