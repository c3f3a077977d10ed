"""Classifiers of texts and of images under the interface of transformers; a regression has one label."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor
from transformers.modeling_outputs import ImageClassifierOutput, SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from odeum.hf.base import OdeumPreTrainedModel, refuse_attentions


class OdeumForSequenceClassification(OdeumPreTrainedModel):
    """A text in, a class (or a number) out."""

    kinds: ClassVar[tuple[str, ...]] = ("Classification", "Regression")

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """`labels` are numbers of classes; −100 is ignored."""
        refuse_attentions(output_attentions)
        x, context = self.odeum.embed(input_ids, attention_mask)
        x, states = self._states(self.odeum.stack, x, context, output_hidden_states)
        logits = self.odeum.read_off(x, context)
        loss = None if labels is None else self.odeum.criterion(logits, labels)
        found: dict[str, Any] = {"loss": loss, "logits": logits, "hidden_states": states}
        return SequenceClassifierOutput(**found)


class OdeumForImageClassification(OdeumPreTrainedModel):
    """An image in, a class (or a number) out."""

    kinds: ClassVar[tuple[str, ...]] = ("Vision", "ImageRegression")
    main_input_name = "pixel_values"
    input_modalities = "image"

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> ImageClassifierOutput:
        """`pixel_values` are [batch, channels, height, width], normalised as by the image processor."""
        refuse_attentions(output_attentions)
        x = self.odeum.embed(pixel_values)
        x, states = self._states(self.odeum.stack, x, None, output_hidden_states)
        logits = self.odeum.read_off(x)
        loss = None if labels is None else self.odeum.criterion(logits, labels)
        found: dict[str, Any] = {"loss": loss, "logits": logits, "hidden_states": states}
        return ImageClassifierOutput(**found)
