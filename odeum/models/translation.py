"""Translation: an encoder and a decoder around any two architectures, with one tied embedding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.draws import drawing
from odeum.errors import OdeumError
from odeum.fields.base import Context, Source
from odeum.fields.cache import Cache
from odeum.models.base import OdeumModel, Output, check_ids, key_mask, masked_mean, zero_ids
from odeum.models.causality import check_causal
from odeum.models.embedding import Positions, TiedEmbedding
from odeum.models.language import token_positions
from odeum.models.pretrained import details
from odeum.models.settings import Translation
from odeum.registry.names import Architecture
from odeum.registry.spelling import parse


class TranslationModel(OdeumModel):
    """The decoder's field is self-attention + cross-attention + feed-forward, split or not by the architecture."""

    hf_class: ClassVar[str | type | None] = "odeum.hf.seq2seq:OdeumForSeq2SeqLM"
    settings: Translation
    in_training: ClassVar[dict[str, Any]] = {"only_loss": True}

    def __init__(self, settings: Translation, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        decoder_shape = replace(settings, depth=settings.decoder_depth or settings.depth)
        extra = details(settings).embedding
        self.embedding = TiedEmbedding(settings.vocabulary, settings.width, scaled=extra.scaled, bias=extra.bias)
        self.positions = Positions(settings.positions, settings.width, settings.length)
        with drawing("encoder"):
            self.encoder = make_stack(architecture, settings)
        decoder = architecture if settings.decoder is None else parse(settings.decoder)
        with drawing("decoder"):
            self.decoder = make_stack(decoder, decoder_shape, cross=True)
        check_causal(self.decoder, settings.width, settings.length, cross=True)

    @property
    def particles(self) -> int:
        return self.settings.length

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        ids = zero_ids(batch, self.settings.length, device)
        return {"input_ids": ids, "decoder_input_ids": ids}

    def embed(self, tokens: Tensor, where: Tensor, past: int = 0) -> Tensor:
        """Embedded tokens with their positions: the input of the first layer."""
        x = self.positions(tokens, where, past)
        return nn.functional.dropout(x, self.settings.dropout) if self.training else x

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The memory of the source: [batch, source length, width]."""
        check_ids(input_ids)
        mask = key_mask(attention_mask, *input_ids.shape)
        where = token_positions(input_ids, attention_mask)
        own = Source(mask=mask, rotary=self.positions.rotary(where))
        return self.encoder(self.embed(self.embedding(input_ids), where), Context(own=own))

    def decode(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor,
        attention_mask: Tensor | None = None,
        caches: tuple[Cache, Cache] | None = None,
        run: Callable[[Tensor, Context], Tensor] | None = None,
    ) -> Tensor:
        """The last state of each target position; `caches` are those of self- and cross-attention.

        `run` replaces the decoder.
        """
        check_ids(decoder_input_ids, "decoder_input_ids")
        own_cache, other_cache = caches if caches is not None else (None, None)
        past = own_cache.length if own_cache is not None else 0
        where = token_positions(decoder_input_ids, None, past)
        own = Source(causal=True, cache=own_cache, rotary=self.positions.rotary(where))
        other = Source(mask=key_mask(attention_mask, *memory.shape[:2]), memory=memory, cache=other_cache)
        for cache in caches or ():
            cache.begin()
        x = (run or self.decoder)(
            self.embed(self.embedding(decoder_input_ids), where, past), Context(own=own, other=other)
        )
        for cache in caches or ():
            cache.advance(decoder_input_ids.shape[1])
        return x

    def pooled(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The mean of the source's memory over its kept positions: [batch, width]."""
        return masked_mean(self.encode(input_ids, attention_mask), attention_mask)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        only_loss: bool = False,
    ) -> Output:
        """With `only_loss` the logits are not computed, which is all that training needs."""
        if decoder_input_ids is None:
            raise OdeumError("a translation model needs decoder_input_ids: the start token and the target")
        x = self.decode(decoder_input_ids, self.encode(input_ids, attention_mask), attention_mask)
        smoothing = self.label_smoothing if self.training else 0.0
        loss = None if labels is None else self.embedding.loss(x, labels, smoothing)
        return Output(None if only_loss else self.embedding.logits(x), loss)
