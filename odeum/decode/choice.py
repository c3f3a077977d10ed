"""Which token comes next."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from odeum.errors import OdeumError


class Choice(NamedTuple):
    """How a token is drawn from the logits: the temperature first, then the `top_k` likeliest, then of these the
    likeliest that hold `top_p` of the probability. Temperature 0 takes the likeliest; None or 0 (1 for `top_p`)
    leaves a restriction out.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    generator: torch.Generator | None = None

    def check(self) -> Choice:
        """Itself, or a sentence that says what is wrong."""
        if not 0.0 <= self.temperature < math.inf:
            raise OdeumError(f"temperature must be 0 (greedy) or a positive number, not {self.temperature}")
        if self.top_k is not None and self.top_k < 0:
            raise OdeumError(f"top_k must be a number of tokens, or 0 for all, not {self.top_k}")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise OdeumError(f"top_p must be a probability above 0 and up to 1, not {self.top_p}")
        return self

    def pick(self, logits: Tensor) -> Tensor:
        """[batch, vocabulary] -> [batch]."""
        if self.temperature == 0.0 or self.top_k == 1:
            return logits.argmax(dim=-1)
        # Relative to the likeliest, so that a tiny temperature overflows for none that counts.
        logits, tokens = (logits.float() - logits.amax(dim=-1, keepdim=True)) / max(self.temperature, 1e-30), None
        if self.top_k and self.top_k < logits.shape[-1]:
            logits, tokens = logits.topk(self.top_k, dim=-1)
        probabilities = logits.softmax(dim=-1)
        if self.top_p is not None and self.top_p < 1.0:
            if tokens is None:
                probabilities, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
            before = probabilities.cumsum(dim=-1) - probabilities
            probabilities = probabilities.masked_fill(before >= self.top_p, 0.0)
        drawn = torch.multinomial(probabilities, 1, generator=self.generator)
        return (drawn if tokens is None else tokens.gather(-1, drawn)).squeeze(-1)
