"""Which token comes next."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from odeum.errors import OdeumError


class Choice(NamedTuple):
    """Sampling settings, applied in this order: temperature, `top_k`, `top_p`.

    `top_k` keeps the k most likely tokens, `top_p` the most likely ones with this total probability. Temperature 0
    takes the most likely token; None or 0 (1 for `top_p`) disables a restriction.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    generator: torch.Generator | None = None

    def check(self) -> Choice:
        """Return itself; raises `OdeumError` for invalid values."""
        if not 0.0 <= self.temperature < math.inf:
            raise OdeumError(f"temperature must be 0 (greedy) or a positive number, not {self.temperature}")
        if self.top_k is not None and self.top_k < 0:
            raise OdeumError(f"top_k must be a number of tokens, or 0 for all, not {self.top_k}")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise OdeumError(f"top_p must be a probability above 0 and at most 1, got {self.top_p}")
        return self

    def pick(self, logits: Tensor) -> Tensor:
        """[batch, vocabulary] -> [batch]."""
        if self.temperature == 0.0 or self.top_k == 1:
            return likeliest(logits)
        # Relative to the likeliest, so that a tiny temperature overflows for none that counts.
        logits, tokens = (logits.float() - logits.amax(dim=-1, keepdim=True)) / max(self.temperature, 1e-30), None
        if self.top_k and self.top_k < logits.shape[-1]:
            logits, tokens = logits.topk(self.top_k, dim=-1)
        probabilities = logits.softmax(dim=-1)
        if self.top_p is not None and self.top_p < 1.0:
            if tokens is None:
                probabilities, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
            before = probabilities.cumsum(dim=-1) - probabilities
            probabilities = probabilities.masked_fill(before >= max(self.top_p, 1e-30), 0.0)
        drawn = torch.multinomial(probabilities, 1, generator=self.generator)
        return (drawn if tokens is None else tokens.gather(-1, drawn)).squeeze(-1)


BLOCK = 64
"""tokens whose largest logit is found at once"""


def likeliest(logits: Tensor) -> Tensor:
    """The first of the largest, as `logits.argmax(dim=-1)`: [batch, vocabulary] -> [batch].

    A CPU finds what the largest is ten times faster than where it is: so where is asked of one block of each row only.
    """
    if not _in_blocks(logits, 1):
        return logits.argmax(dim=-1)
    block = _largest_of_blocks(logits).argmax(dim=-1, keepdim=True)
    places, _ = _places(block, logits.shape[-1])  # the last one again and again is never the first
    return places.gather(1, logits.gather(1, places).argmax(dim=-1, keepdim=True)).squeeze(-1)


def largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and their places, as `logits.topk(count)`: they lie in as many blocks."""
    if not _in_blocks(logits, count):
        values, tokens = logits.topk(count)
        return values, tokens
    blocks = _largest_of_blocks(logits).topk(count).indices
    places, beyond = _places(blocks, logits.shape[-1])
    values, where = logits.gather(1, places).masked_fill_(beyond, -torch.inf).topk(count)
    return values, places.gather(1, where)


def _in_blocks(logits: Tensor, count: int) -> bool:
    """Whether it is worth while."""
    return logits.device.type == "cpu" and logits.numel() >= 1 << 16 and logits.shape[-1] >= 8 * count * BLOCK


def _largest_of_blocks(logits: Tensor) -> Tensor:
    vocabulary = logits.shape[-1]
    end = vocabulary - vocabulary % BLOCK
    tops = logits[:, :end].unflatten(-1, (-1, BLOCK)).amax(dim=-1)
    if end == vocabulary:
        return tops
    return torch.cat((tops, logits[:, end:].amax(dim=-1, keepdim=True)), dim=-1)


def _places(blocks: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Tokens of these blocks, [batch, blocks] -> [batch, blocks · BLOCK], and a mask of those beyond the last token,
    which are replaced by it."""
    places = (blocks.unsqueeze(-1) * BLOCK + torch.arange(BLOCK)).flatten(1)
    return places.clamp(max=vocabulary - 1), places >= vocabulary
