"""A translation model under the interface of transformers: an encoder that runs once, and a decoder that is cached."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils.generic import can_return_tuple

from odeum.errors import OdeumError
from odeum.fields.base import Context, Source
from odeum.hf.base import OdeumPreTrainedModel, refuse_attentions
from odeum.hf.cache_slots import CacheSlots
from odeum.hf.causal import OdeumGenerationMixin, embedded, positions, prepare_cache, self_attention_source
from odeum.models.base import IGNORE, key_mask


class EncoderView(nn.Module):
    """The encoder alone, as `generate` calls it; made on first use, so that no weight is registered twice."""

    main_input_name = "input_ids"

    def __init__(self, model: OdeumPreTrainedModel) -> None:
        super().__init__()
        self._model = (model,)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        (model,) = self._model
        refuse_attentions(model.config, output_attentions)
        ours = model.odeum
        tokens = embedded(model, input_ids, inputs_embeds)
        where = positions(tokens, attention_mask, None, 0)
        source = Source(mask=key_mask(attention_mask, *tokens.shape[:2]), rotary=ours.positions.rotary(where))
        return model._states(ours.encoder, ours.embed(tokens, where), Context(own=source), output_hidden_states)


class OdeumForSeq2SeqLM(OdeumPreTrainedModel, OdeumGenerationMixin):
    """Translation."""

    auto_model: ClassVar[str] = "AutoModelForSeq2SeqLM"
    pipeline: ClassVar[str] = "translation"

    def get_encoder(self, *_: Any, **__: Any) -> nn.Module:
        return EncoderView(self).to(self.device)

    def features(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Any, None]:
        """The last states of the decoder and of the encoder, and the cache that the next tokens are decoded with."""
        refuse_attentions(self.config, output_attentions)
        if encoder_outputs is None:
            asked = {"inputs_embeds": inputs_embeds, "output_hidden_states": output_hidden_states}
            encoder_outputs = EncoderView(self)(input_ids, attention_mask, **asked)
        memory = encoder_outputs[0]
        tokens = embedded(self, decoder_input_ids, decoder_inputs_embeds)
        past_key_values = with_cross_cache(self, prepare_cache(self, past_key_values, use_cache, tokens, memory))
        past = 0 if past_key_values is None else int(past_key_values.get_seq_length())
        where = positions(tokens, decoder_attention_mask, None, past)
        source = self_attention_source(tokens, decoder_attention_mask, past_key_values, past)
        other = Source(mask=key_mask(attention_mask, *memory.shape[:2]), memory=memory)
        if past_key_values is not None:
            crossed = CacheSlots(past_key_values.cross_attention_cache, past, past_key_values.is_updated)
            other = other._replace(cache=crossed)
        ours = self.odeum
        context = Context(own=source._replace(rotary=ours.positions.rotary(where)), other=other)
        states = self._states(ours.decoder, ours.embed(tokens, where, past), context, output_hidden_states)
        output: dict[str, Any] = {
            "last_hidden_state": states.last_hidden_state,
            "past_key_values": past_key_values,
            "decoder_hidden_states": states.hidden_states,
            "encoder_last_hidden_state": memory,
            "encoder_hidden_states": getattr(encoder_outputs, "hidden_states", None),
        }
        return Seq2SeqModelOutput(**output), None

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """`labels` are the target and its end; they are shifted to the right for the decoder, −100 is ignored."""
        if decoder_input_ids is None and decoder_inputs_embeds is None and labels is not None:
            decoder_input_ids = self.shifted(labels)
        source = (input_ids, attention_mask, decoder_input_ids, decoder_attention_mask, encoder_outputs)
        rest = (past_key_values, inputs_embeds, decoder_inputs_embeds, use_cache)
        features, _ = self.features(*source, *rest, output_hidden_states, output_attentions)
        logits = self.odeum.embedding.logits(features.last_hidden_state)
        loss = None if labels is None else self._criterion(logits, labels, num_items_in_batch)
        output: dict[str, Any] = {**features, "loss": loss, "logits": logits}
        del output["last_hidden_state"]
        return Seq2SeqLMOutput(**output)

    def shifted(self, labels: Tensor) -> Tensor:
        """The start token and all labels but the last."""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            raise OdeumError("to shift labels, the configuration must have decoder_start_token_id and pad_token_id")
        ids = labels.masked_fill(labels == IGNORE, pad)
        return torch.cat((torch.full_like(ids[:, :1], start), ids[:, :-1]), dim=1)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The decoder inputs of labels, as data collators of transformers request them."""
        return self.shifted(labels)


def with_cross_cache(model: OdeumPreTrainedModel, cache: Any) -> Any:
    """The cache with one for cross-attention beside it."""
    if cache is None or isinstance(cache, EncoderDecoderCache):
        return cache
    return EncoderDecoderCache(cache, DynamicCache(config=model.config))
