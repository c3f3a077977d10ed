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
from odeum.models.base import OdeumModel, Output, check_ids, key_mask, mean_of_kept, no_tokens
from odeum.models.causality import refuse_looking_ahead
from odeum.models.embedding import Positions, TiedEmbedding
from odeum.models.language import token_positions
from odeum.models.settings import Translation
from odeum.registry.names import Architecture
from odeum.registry.spelling import parse


class TranslationModel(OdeumModel):
    """The decoder's field is self-attention + cross-attention + feed-forward, split or not as the words say."""

    hf_class: ClassVar[str | type | None] = "odeum.hf.seq2seq:OdeumForSeq2SeqLM"
    settings: Translation
    in_training: ClassVar[dict[str, Any]] = {"only_loss": True}

    def __init__(self, settings: Translation, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        decoder_shape = replace(settings, depth=settings.decoder_depth or settings.depth)
        self.embedding = TiedEmbedding(settings.vocabulary, settings.width)
        self.positions = Positions(settings.positions, settings.width, settings.length)
        with drawing("encoder"):
            self.encoder = make_stack(architecture, settings)
        decoder = architecture if settings.decoder is None else parse(settings.decoder)
        with drawing("decoder"):
            self.decoder = make_stack(decoder, decoder_shape, cross=True)
        refuse_looking_ahead(self.decoder, settings.width, settings.length, cross=True)

    @property
    def particles(self) -> int:
        return self.settings.length

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        ids = no_tokens(batch, self.settings.length, device)
        return {"input_ids": ids, "decoder_input_ids": ids}

    def embed(self, tokens: Tensor, where: Tensor, past: int = 0) -> Tensor:
        """Embedded tokens at their positions: what the first layer takes."""
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

        `run` runs the decoder in another way.
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
        return mean_of_kept(self.encode(input_ids, attention_mask), attention_mask)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        only_loss: bool = False,
    ) -> Output:
        """`only_loss` spares the matrix of all logits: what training needs."""
        if decoder_input_ids is None:
            raise OdeumError("a translation model needs decoder_input_ids: the start token and the target")
        x = self.decode(decoder_input_ids, self.encode(input_ids, attention_mask), attention_mask)
        smoothing = self.label_smoothing if self.training else 0.0
        loss = None if labels is None else self.embedding.loss(x, labels, smoothing)
        return Output(None if only_loss else self.embedding.logits(x), loss)
