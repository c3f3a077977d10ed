"""Classifiers of texts and of images under the interface of transformers; a regression has one label."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers.modeling_outputs import (
    ImageClassifierOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from odeum.fields.base import Context
from odeum.hf.base import OdeumPreTrainedModel
from odeum.models.classification import TextModel


class OdeumClassifier(OdeumPreTrainedModel):
    """A model whose head reads the last states."""

    def _outputs(self, features: tuple[Any, Any], labels: Tensor | None, count: Tensor | int | None) -> dict[str, Any]:
        """The fields of an output of transformers; `count` is the number of targets that the loss is divided by."""
        states, context = features
        logits = self.odeum.apply_head(states.last_hidden_state, context)
        return {
            "loss": None if labels is None else self._criterion(logits, labels, count),
            "logits": logits,
            "hidden_states": states.hidden_states,
            "attentions": states.attentions,
        }


class OdeumForSequenceClassification(OdeumClassifier):
    """Sequence classification; a regression has one label."""

    auto_model: ClassVar[str] = "AutoModelForSequenceClassification"
    pipeline: ClassVar[str] = "text-classification"

    def features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Context]:
        """The last states, and the context that the head reads."""
        types = {} if isinstance(self.odeum, TextModel) else {"token_type_ids": token_type_ids}
        x, context = self.odeum.embed(input_ids, attention_mask, **types)
        return self._states(self.odeum.stack, x, context, output_hidden_states, output_attentions), context

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
        features = self.features(input_ids, attention_mask, token_type_ids, output_hidden_states, output_attentions)
        return SequenceClassifierOutput(**self._outputs(features, labels, num_items_in_batch))


class OdeumForMaskedLM(OdeumClassifier):
    """Masked language modelling."""

    auto_model: ClassVar[str] = "AutoModelForMaskedLM"
    pipeline: ClassVar[str] = "fill-mask"

    features = OdeumForSequenceClassification.features

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
        features = self.features(input_ids, attention_mask, token_type_ids, output_hidden_states, output_attentions)
        return MaskedLMOutput(**self._outputs(features, labels, num_items_in_batch))

    def get_output_embeddings(self) -> nn.Module | None:
        return self.odeum.output

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; new tokens start with a bias of zero."""
        out = super().resize_token_embeddings(*args, **kwargs)
        more = self.odeum.settings.vocabulary - self.odeum.bias.shape[0]
        self.odeum.bias = nn.Parameter(nn.functional.pad(self.odeum.bias.data, (0, more)))
        return out


class OdeumForImageClassification(OdeumClassifier):
    """Image classification; a regression has one label."""

    auto_model: ClassVar[str] = "AutoModelForImageClassification"
    pipeline: ClassVar[str] = "image-classification"
    main_input_name = "pixel_values"
    input_modalities = "image"

    def features(
        self,
        pixel_values: Tensor,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Any, None]:
        """The last states."""
        x = self.odeum.embed(pixel_values)
        return self._states(self.odeum.stack, x, None, output_hidden_states, output_attentions), None

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
        features = self.features(pixel_values, output_hidden_states, output_attentions)
        return ImageClassifierOutput(**self._outputs(features, labels, num_items_in_batch))
