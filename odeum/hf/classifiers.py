"""Classifiers of texts and of images under the interface of transformers; a regression has one label."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers.modeling_outputs import ImageClassifierOutput, MaskedLMOutput, SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from odeum.hf.base import OdeumPreTrainedModel, refuse_attentions


class OdeumForSequenceClassification(OdeumPreTrainedModel):
    """A text in, a class (or a number) out."""

    auto_model: ClassVar[str] = "AutoModelForSequenceClassification"
    pipeline: ClassVar[str] = "text-classification"

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """`labels` are numbers of classes; −100 is ignored."""
        refuse_attentions(output_attentions)
        types = {} if self.config.settings.get("pretrained") is None else {"token_type_ids": token_type_ids}
        x, context = self.odeum.embed(input_ids, attention_mask, **types)
        x, states = self._states(self.odeum.stack, x, context, output_hidden_states)
        logits = self.odeum.read_off(x, context)
        loss = None if labels is None else self._criterion(logits, labels, num_items_in_batch)
        found: dict[str, Any] = {"loss": loss, "logits": logits, "hidden_states": states}
        return SequenceClassifierOutput(**found)


class OdeumForMaskedLM(OdeumPreTrainedModel):
    """A text with hidden tokens in, the tokens out."""

    auto_model: ClassVar[str] = "AutoModelForMaskedLM"
    pipeline: ClassVar[str] = "fill-mask"

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """`labels` are the tokens where one is hidden, −100 elsewhere."""
        refuse_attentions(output_attentions)
        x, context = self.odeum.embed(input_ids, attention_mask, token_type_ids)
        x, states = self._states(self.odeum.stack, x, context, output_hidden_states)
        logits = self.odeum.read_off(x, context)
        loss = None if labels is None else self._criterion(logits, labels, num_items_in_batch)
        found: dict[str, Any] = {"loss": loss, "logits": logits, "hidden_states": states}
        return MaskedLMOutput(**found)

    def get_output_embeddings(self) -> nn.Module | None:
        return self.odeum.output

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> Any:
        """As for every model of transformers; new tokens begin without a bias."""
        out = super().resize_token_embeddings(*args, **kwargs)
        more = self.odeum.settings.vocabulary - self.odeum.bias.shape[0]
        self.odeum.bias = nn.Parameter(nn.functional.pad(self.odeum.bias.data, (0, more)))
        return out


class OdeumForImageClassification(OdeumPreTrainedModel):
    """An image in, a class (or a number) out."""

    auto_model: ClassVar[str] = "AutoModelForImageClassification"
    pipeline: ClassVar[str] = "image-classification"
    main_input_name = "pixel_values"
    input_modalities = "image"

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> ImageClassifierOutput:
        """`pixel_values` are [batch, channels, height, width], normalised as by the image processor."""
        refuse_attentions(output_attentions)
        x = self.odeum.embed(pixel_values)
        x, states = self._states(self.odeum.stack, x, None, output_hidden_states)
        logits = self.odeum.read_off(x)
        loss = None if labels is None else self._criterion(logits, labels, num_items_in_batch)
        found: dict[str, Any] = {"loss": loss, "logits": logits, "hidden_states": states}
        return ImageClassifierOutput(**found)
