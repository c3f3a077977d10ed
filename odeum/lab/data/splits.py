"""Hold-out: fixed parts of a data set that comes without them, the same rows each time; one place for every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.lab.data.split_names import SPLITS

T = TypeVar("T")
GOLDEN = (5**0.5 - 1) / 2


def hold_out(parts: dict[str, T], cut: Callable[[T, int], Sequence[T]], fold: int = 0) -> dict[str, T]:
    """The parts, those that are not given cut off the training part.

    `cut(train, n)` gives what is left to train on and then n parts; of another `fold` it gives other ones.
    """
    if "test" in parts:
        refuse_fold(fold)
    missing = [part for part in SPLITS[1:] if part not in parts]
    if not missing:
        return parts
    return parts | dict(zip(("train", *missing), cut(parts["train"], len(missing)), strict=True))


def refuse_fold(fold: int) -> None:
    """Data that comes with its own test part is cut in one way."""
    if fold:
        raise OdeumError(
            f"the data has a test part of its own, so there is no fold {fold} of it; leave --vary split (--data.fold) "
            "out"
        )


def shuffled(count: int, seed: int = 0) -> Tensor:
    """A fixed order, the same on every machine."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def mixed(count: int, limit: int | None) -> Tensor:
    """All rows, or a fixed choice from everywhere: the first ones of a sorted file may be of one class."""
    return torch.arange(count) if limit is None or limit >= count else shuffled(count)[:limit].sort().values


def stratified(
    labels: Tensor, shares: tuple[float, ...], where: str, largest: int = 5000, fold: int = 0
) -> list[Tensor]:
    """Indices of one part a share and, first, of the rest (the training part), with the classes mixed alike.

    Every class keeps an example for the training; a class with enough examples has at least one in each part.
    """
    parts: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    scale = min(1.0, largest / max(1.0, max(shares) * len(labels)))
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
            f"'{where}' has {len(labels)} examples of {len(labels.unique())} classes, too few to set some aside for "
            f"validation and test; at least {len(shares) + 1} in one class are needed"
        )
    return out


def random_rows(count: int, parts: int, where: str, largest: int = 1000, fold: int = 0) -> list[list[int]]:
    """Indices of the training part and then of each other: a twentieth of the rows, at most `largest`."""
    share = min(largest, count // 20)
    if not share:
        raise OdeumError(f"'{where}' has {count} pairs, too few to set some aside for validation and test (20)")
    order = shuffled(count, fold).tolist()
    held = [sorted(order[i * share : (i + 1) * share]) for i in range(parts)]
    return [sorted(order[parts * share :]), *held]


def consecutive(text: str, shares: tuple[float, float] = (0.9, 0.95), fold: int = 0) -> tuple[str, str, str]:
    """Three pieces of a text, one after the other, cut at line ends where there are any near.

    Another fold begins elsewhere: the text is turned, by the golden ratio, so that a few folds lie far apart.
    """
    start = int(len(text) * (fold * GOLDEN % 1.0))
    start = text.find("\n", start) + 1 if start else 0
    text = text[start:] + text[:start]
    places = []
    for share in shares:
        place = int(len(text) * share)
        end = text.find("\n", place, place + max(200, len(text) // 100))
        places.append(end + 1 if end >= 0 else place)
    first, second = places[0], max(places)
    return text[:first], text[first:second], text[second:]
