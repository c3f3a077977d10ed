"""Held-out parts by fixed splits, for data that comes without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.lab.data.split_names import SPLITS

T = TypeVar("T")
GOLDEN = (5**0.5 - 1) / 2
LARGEST_PART = 5000
"""examples of a held-out part of classes or numbers, at most"""
TEXT_ENDS = (0.9, 0.95)
"""shares of a text at which its training and its validation part end"""


def hold_out(parts: dict[str, T], cut: Callable[[T, int], Sequence[T]], fold: int = 0) -> dict[str, T]:
    """The parts, with missing ones held out of the training part.

    `cut(train, n)` returns the rest of the training part and then n parts, which depend on the fold.
    """
    if "test" in parts:
        refuse_fold(fold)
    missing = [part for part in SPLITS[1:] if part not in parts]
    if not missing:
        return parts
    return parts | dict(zip(("train", *missing), cut(parts["train"], len(missing)), strict=True))


def refuse_fold(fold: int) -> None:
    """Raise `OdeumError` for another fold than 0 of data that has a test part."""
    if fold:
        raise OdeumError(
            f"fold={fold} is not possible, because the data has its own test part; omit --vary split (--data.fold)"
        )


def shuffled(count: int, seed: int = 0) -> Tensor:
    """A fixed permutation, the same on every machine."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def mixed(count: int, limit: int | None) -> Tensor:
    """All rows, or a fixed random subset of `limit` rows, in order."""
    return torch.arange(count) if limit is None or limit >= count else shuffled(count)[:limit].sort().values


def stratified(labels: Tensor, shares: tuple[float, ...], where: str, fold: int = 0) -> list[Tensor]:
    """Stratified split: indices of the training part, then of one part per share.

    Every class keeps a training example; a class with enough examples has at least one in each part.
    """
    parts: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    scale = min(1.0, LARGEST_PART / max(1.0, max(shares) * len(labels)))
    order = shuffled(len(labels), fold)
    by_label = order[labels[order].argsort(stable=True)]
    for members in by_label.split(labels.unique(sorted=True, return_counts=True)[1].tolist()):
        rows = members
        for part, share in enumerate(shares, start=1):
            wanted = round(share * scale * len(members))
            if wanted == 0 and len(rows) > len(shares) - part + 1:
                wanted = 1
            parts[part].append(rows[:wanted])
            rows = rows[wanted:]
        parts[0].append(rows)
    out = [torch.cat(part).sort().values for part in parts]
    if any(len(part) == 0 for part in out):
        raise OdeumError(
            f"'{where}' has {len(labels)} examples of {len(labels.unique())} classes, too few to hold out some for "
            f"validation and test; at least {len(shares) + 1} in one class are needed"
        )
    return out


def random_rows(
    count: int, parts: int, where: str, fold: int, *, what: str, fewest: int, largest: int
) -> list[list[int]]:
    """Indices of the training part, then of each held-out part: 1/`fewest` of the rows, at most `largest`."""
    share = min(largest, count // fewest)
    if not share:
        raise OdeumError(f"'{where}' has {count} {what}, too few to hold out some for validation and test ({fewest})")
    order = shuffled(count, fold).tolist()
    held = [sorted(order[i * share : (i + 1) * share]) for i in range(parts)]
    return [sorted(order[parts * share :]), *held]


def consecutive(text: str, fold: int = 0) -> tuple[str, str, str]:
    """Split a text into three consecutive pieces, at line ends if there are any near.

    For another fold the text is rotated by a multiple of the golden ratio, so that folds lie far apart.
    """
    start = int(len(text) * (fold * GOLDEN % 1.0))
    start = text.find("\n", start) + 1 if start else 0
    text = text[start:] + text[:start]
    places = []
    for share in TEXT_ENDS:
        place = int(len(text) * share)
        end = text.find("\n", place, place + max(200, len(text) // 100))
        places.append(end + 1 if end >= 0 else place)
    first, second = places[0], max(places)
    return text[:first], text[first:second], text[second:]
