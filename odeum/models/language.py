"""A causal language model around any architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.errors import choose
from odeum.fields.base import Context, Source
from odeum.fields.cache import Cache
from odeum.models.base import OdeumModel, Output, check_ids, key_mask, masked_mean, zero_ids
from odeum.models.causality import check_causal
from odeum.models.embedding import AdaptiveEmbedding, OutputMatrix, TiedEmbedding, make_positions
from odeum.models.pretrained import details
from odeum.models.settings import Language
from odeum.registry.names import Architecture


def token_positions(ids: Tensor, attention_mask: Tensor | None, past: int = 0) -> Tensor:
    """0, 1, 2 … over the unmasked tokens, so that padding on the left does not shift a sentence."""
    if attention_mask is None:
        return torch.arange(past, past + ids.shape[1], device=ids.device).unsqueeze(0)
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]


class LanguageModel(OdeumModel):
    """`labels[i]` is the token that follows `input_ids[i]`; the caller shifts, −100 is ignored."""

    hf_class: ClassVar[str | type | None] = "odeum.hf.causal:OdeumForCausalLM"
    settings: Language
    in_training: ClassVar[dict[str, Any]] = {"only_loss": True}

    def __init__(self, settings: Language, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        choose(settings.embedding, ("tied", "adaptive"), "embedding")
        extra = details(settings)
        if settings.embedding == "tied":
            size = (settings.vocabulary, settings.width)
            self.embedding: TiedEmbedding | AdaptiveEmbedding = TiedEmbedding(*size, scaled=extra.embedding.scaled)
        else:
            self.embedding = AdaptiveEmbedding(settings.vocabulary, settings.width, settings.cutoffs)
        self.positions = make_positions(settings, settings.width)
        tied, bias = extra.embedding.tied, extra.embedding.bias
        self.output = None if tied else OutputMatrix(settings.width, settings.vocabulary, bias=bias)
        self.stack = make_stack(architecture, settings)
        check_causal(self.stack, settings.width, settings.length)

    @property
    def particles(self) -> int:
        return self.settings.length

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        return {"input_ids": zero_ids(batch, self.settings.length, device)}

    def embed(self, tokens: Tensor, where: Tensor, past: int = 0) -> Tensor:
        """Embedded tokens with their positions: the input of the first layer."""
        x = self.positions(tokens, where, past)
        return nn.functional.dropout(x, self.settings.dropout) if self.training else x

    def hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        run: Callable[[Tensor, Context], Tensor] | None = None,
    ) -> Tensor:
        """The last state of each position; with a cache, of the new ones. `run` replaces the stack."""
        check_ids(input_ids)
        batch, length = input_ids.shape
        past = cache.length if cache is not None else 0
        mask = key_mask(attention_mask, batch, past + length)
        where = token_positions(input_ids, attention_mask, past)
        x = self.embed(self.embedding(input_ids), where, past)
        own = Source(mask=mask, causal=True, cache=cache, rotary=self.positions.rotary(where))
        if cache is not None:
            cache.begin()
        x = (run or self.stack)(x, Context(own=own))
        if cache is not None:
            cache.advance(length)
        return x

    def pooled(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The mean of the last states of the kept positions: [batch, width]."""
        return masked_mean(self.hidden(input_ids, attention_mask), attention_mask)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        cache: Cache | None = None,
        only_loss: bool = False,
    ) -> Output:
        """With `only_loss` the logits are not computed, which is all that training needs."""
        x = self.hidden(input_ids, attention_mask, cache)
        smoothing = self.label_smoothing if self.training else 0.0
        loss = None if labels is None else (self.output or self.embedding).loss(x, labels, smoothing)
        return Output(None if only_loss else self.logits(x), loss)

    def logits(self, x: Tensor) -> Tensor:
        """Logits of the next token, from the last states."""
        return self.embedding.logits(x) if self.output is None else self.output(x)
