"""Rows of unequal length in one flat tensor, and batches of rows of similar length."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

POOL = 50
"""batches within which rows are sorted by length"""


class Ragged:
    """Many rows of ids, stored end to end."""

    def __init__(self, rows: Iterable[list[int]]) -> None:
        flat, lengths = array("i"), array("q")
        for row in rows:
            flat.extend(row)
            lengths.append(len(row))
        self.lengths = torch.from_numpy(np.array(lengths, dtype=np.int64))
        self.flat = torch.from_numpy(np.array(flat, dtype=np.int32))
        self.begins = self.lengths.cumsum(0) - self.lengths

    @classmethod
    def join(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, one after the other."""
        return cls(row.tolist() for part in parts for row in part.flat.split(part.lengths.tolist()))

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, rows: Tensor) -> Ragged:
        """These rows alone, in this order."""
        every = self.flat.split(self.lengths.tolist())
        return Ragged(every[i].tolist() for i in rows.tolist())

    def padded(self, rows: Tensor, pad: int = 0) -> tuple[Tensor, Tensor]:
        """Rows padded to ids [rows, longest], and a mask that is 1 for tokens and 0 for padding."""
        lengths = self.lengths[rows]
        places = torch.arange(max(1, int(lengths.max())))
        mask = places[None, :] < lengths[:, None]
        at = (self.begins[rows][:, None] + places).clamp_(max=max(0, len(self.flat) - 1))
        return torch.where(mask, self.flat[at].long(), pad), mask.long()


def by_count(lengths: Tensor, batch_size: int, random: torch.Generator) -> list[Tensor]:
    """Full batches of `batch_size` rows: shuffled, sorted by length within pools, the batches shuffled again."""
    order = torch.randperm(len(lengths), generator=random)
    full = max(1, len(order) // batch_size)
    sorted_pools = [rows[lengths[rows].argsort(stable=True)] for rows in order.split(POOL * batch_size)]
    batches = [rows for part in sorted_pools for rows in part.split(batch_size)]
    whole = [rows for rows in batches if len(rows) == batch_size][:full] or batches
    return [whole[i] for i in torch.randperm(len(whole), generator=random).tolist()]


def by_tokens(first: Tensor, second: Tensor, tokens: int, random: torch.Generator) -> list[Tensor]:
    """Batches with at most `tokens` padded tokens of `first`, of similar length in both, in random order.

    The number of batches depends on the lengths only, so it is the same in every epoch.
    """
    noise = torch.rand(len(first), generator=random) * 4
    order = (second + noise).argsort(stable=True)
    order = order[first[order].argsort(stable=True)]
    batches = list(cut_by_tokens(first, order, tokens))
    return [batches[i] for i in torch.randperm(len(batches), generator=random).tolist()]


def cut_by_tokens(lengths: Tensor, order: Tensor, tokens: int) -> Iterator[Tensor]:
    """Split rows, sorted by length, into batches of at most `tokens` padded tokens (and at least one row)."""
    begin = 0
    for end, length in enumerate(lengths[order].tolist()):
        if end > begin and (end - begin + 1) * length > tokens:
            yield order[begin:end]
            begin = end
    if begin < len(order):
        yield order[begin:]
