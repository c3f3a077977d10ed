"""A language model under the interface of transformers: logits, labels that it shifts itself, and `generate`."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

from odeum.decode.common import cacheable
from odeum.errors import OdeumError
from odeum.fields.base import Context, Source
from odeum.hf.base import OdeumPreTrainedModel
from odeum.hf.cache_slots import CacheSlots
from odeum.models.base import IGNORE, check_ids, key_mask
from odeum.models.language import token_positions


class OdeumGenerationMixin(GenerationMixin):
    """`generate`, which ignores a request for a cache where there is none."""

    def _prepare_generation_config(self, *given: Any, **options: Any) -> Any:
        model: Any = self
        config, rest = GenerationMixin._prepare_generation_config(model, *given, **options)
        if not cacheable(model.odeum):
            config.use_cache, config.cache_implementation = False, None  # reads the prefix again: the same tokens
        return config, rest


class OdeumForCausalLM(OdeumPreTrainedModel, OdeumGenerationMixin):
    """Causal language modelling."""

    auto_model: ClassVar[str] = "AutoModelForCausalLM"
    pipeline: ClassVar[str] = "text-generation"

    def features(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Any, None]:
        """The last states, and the cache that the next tokens are decoded with."""
        tokens = embedded(self, input_ids, inputs_embeds)
        past_key_values = prepare_cache(self, past_key_values, use_cache, tokens)
        past = 0 if past_key_values is None else int(past_key_values.get_seq_length())
        where = positions(tokens, attention_mask, position_ids, past)
        source = self_attention_source(tokens, attention_mask, past_key_values, past)
        x = self.odeum.embed(tokens, where, past)
        context = Context(own=source._replace(rotary=self.odeum.positions.rotary(where)))
        states = self._states(self.odeum.stack, x, context, output_hidden_states, output_attentions)
        return BaseModelOutputWithPast(**states, past_key_values=past_key_values), None

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        shift_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """As in transformers: `labels=input_ids` are shifted inside the model, −100 is ignored.

        `shift_labels` are labels that were shifted by the caller.
        """
        asked = {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        features, _ = self.features(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, **asked
        )
        logits = logits_of(self, features.last_hidden_state, logits_to_keep)
        loss = None
        if labels is not None and shift_labels is None:
            shift_labels = nn.functional.pad(labels, (0, 1), value=IGNORE)[:, 1:]
        if shift_labels is not None:
            loss = self._criterion(logits, shift_labels, num_items_in_batch)
        output: dict[str, Any] = {
            "loss": loss,
            "logits": logits,
            "past_key_values": features.past_key_values,
            "hidden_states": features.hidden_states,
            "attentions": features.attentions,
        }
        return CausalLMOutputWithPast(**output)

    def get_output_embeddings(self) -> nn.Module | None:
        return getattr(self.odeum, "output", None)


def embedded(model: OdeumPreTrainedModel, ids: Tensor | None, embeds: Tensor | None) -> Tensor:
    """Tokens as the first layer's input has them, without positions; given as numbers or as vectors."""
    if (ids is None) == (embeds is None):
        raise OdeumError("give either input_ids or inputs_embeds")
    if embeds is not None:
        return embeds
    assert ids is not None
    check_ids(ids)
    return model.odeum.embedding(ids)


def prepare_cache(model: OdeumPreTrainedModel, given: Any, wanted: bool | None, *inputs: Tensor) -> Any:
    """Return the given cache, a new one, or None.

    A forward pass that records gradients, of weights or of the inputs, makes no cache unless `use_cache=True` is
    passed: the cache would keep every layer's keys and values for backward, whatever `gradient=` saves, and a
    recomputation would read it twice.
    """
    recording = torch.is_grad_enabled() and any(x.requires_grad for x in (*inputs, *model.parameters()))
    default = model.config.use_cache and not recording
    checkpointed = model.training and model.gradient_checkpointing
    if given is None and (checkpointed or not (default if wanted is None else wanted)):
        return None
    if not cacheable(model.odeum):
        if given is None:
            return None
        raise OdeumError(
            "this model has no decoding cache: its solver chooses its steps, or a field of it looks at the whole "
            "sequence; pass use_cache=False"
        )
    return DynamicCache(config=model.config) if given is None else given


def positions(tokens: Tensor, attention_mask: Tensor | None, given: Tensor | None, past: int) -> Tensor:
    """0, 1, 2 … over the kept tokens of each row, or as they are given."""
    if given is not None:
        return given
    flat = attention_mask if attention_mask is not None and attention_mask.dim() == 2 else None
    return token_positions(tokens[..., 0], flat, past)


def self_attention_source(tokens: Tensor, attention_mask: Tensor | None, theirs: Any, past: int) -> Source:
    """The mask, cache and positions of self-attention, from a mask and a cache of transformers."""
    batch, length = tokens.shape[:2]
    cache = None if theirs is None else CacheSlots(getattr(theirs, "self_attention_cache", theirs), past)
    if attention_mask is not None and attention_mask.dim() == 4:
        return Source(mask=attention_mask, cache=cache)
    if theirs is None or not theirs.is_compileable:
        return Source(mask=key_mask(attention_mask, batch, past + length), causal=True, cache=cache)
    # A static cache is as long as it will ever be, so what lies ahead is hidden by a mask.
    room = theirs.get_max_length()
    ahead = torch.arange(room, device=tokens.device)
    mask = (ahead <= past + torch.arange(length, device=tokens.device)[:, None])[None, None]
    if attention_mask is not None:
        mask = mask & nn.functional.pad(attention_mask.bool(), (0, room - attention_mask.shape[1]))[:, None, None]
    return Source(mask=mask, cache=cache)


def logits_of(model: OdeumPreTrainedModel, x: Tensor, keep: int | Tensor) -> Tensor:
    """The logits of the last `keep` positions, or of those named; 0 means all."""
    if isinstance(keep, Tensor):
        x = x[:, keep]
    elif keep:
        x = x[:, -keep:]
    return model.odeum.logits(x)
