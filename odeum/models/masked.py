"""Bidirectional text models (BERT): masked tokens, or a class from the first position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.architectures.parts import make_norm
from odeum.draws import drawing
from odeum.errors import OdeumError
from odeum.fields.attention import reset
from odeum.fields.base import Context, Source
from odeum.fields.feedforward import ACTIVATIONS
from odeum.kernels.autograd import readable
from odeum.models.base import OdeumModel, Output, check_ids, key_mask, zero_ids
from odeum.models.embedding import OutputMatrix, lookup, make_positions
from odeum.models.pretrained import details
from odeum.models.settings import Classification, MaskedLanguage
from odeum.registry.names import Architecture


class BidirectionalModel(OdeumModel):
    """Tokens, positions and types, normed and brought to the model's width; then the stack.

    Positions count from the first column, padding included, as the models that are imported do (RoBERTa: without it).
    """

    settings: MaskedLanguage | Classification

    def __init__(self, settings: MaskedLanguage | Classification, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        extra = details(settings).embedding
        width = extra.width or settings.width
        self.embedding = nn.Embedding(settings.vocabulary, width)
        with drawing("embedding"):
            nn.init.normal_(self.embedding.weight, std=0.02)
        self.padding = extra.padding
        rows = settings.length if extra.padding is None else settings.length + extra.padding + 1
        self.positions = make_positions(replace(settings, length=rows), width)
        self.positions.length = settings.length
        with drawing("types"):
            self.types = nn.Embedding(extra.types, width) if extra.types else None
        self.embedding_norm = make_norm(replace(settings, width=width)) if extra.norm else None
        with drawing("projection"):
            self.projection = None if extra.width is None else nn.Linear(width, settings.width)
        self.stack = make_stack(architecture, settings)

    @property
    def particles(self) -> int:
        return self.settings.length

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        return {"input_ids": zero_ids(batch, self.settings.length, device)}

    def embed(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Context]:
        """The input of the first layer, and the context with its mask."""
        check_ids(input_ids)
        if self.padding is None:
            where = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        else:
            keep = input_ids != self.padding
            where = keep.cumsum(1) * keep + self.padding
        x = lookup(input_ids, self.embedding.weight)
        # Types before positions: rounded as in the models that are imported. A layer that acts twelve times makes a
        # last bit that differs here large.
        if self.types is not None:
            x = x + self.types(torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids)
        elif token_type_ids is not None:
            _refuse_types(token_type_ids)
        x = self.positions(x, where)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        x = nn.functional.dropout(x, self.settings.dropout, self.training)
        x = x if self.projection is None else self.projection(x)
        mask = key_mask(attention_mask, *input_ids.shape)
        return x, Context(own=Source(mask=mask, rotary=self.positions.rotary(where)))

    def hidden(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: Any) -> Tensor:
        """The last state of each position."""
        return self.stack(*self.embed(input_ids, attention_mask, **more))

    def apply_head(self, x: Tensor, context: Context | None = None) -> Tensor:
        """The logits of the last states."""
        raise NotImplementedError(f"{type(self).__name__} has no head")

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Output:
        logits = self.apply_head(self.hidden(input_ids, attention_mask, token_type_ids=token_type_ids))
        return Output(logits, None if labels is None else self.criterion(logits, labels))


def _refuse_types(token_type_ids: Tensor) -> None:
    """Refuse types other than 0 of a model that has none; a device checks by itself, so that it is not waited for."""
    message = "this model has no token types, but token_type_ids is not zero; leave it out"
    if not readable(token_type_ids):
        torch._assert_async(token_type_ids.eq(0).all(), message)
    elif bool(token_type_ids.any()):
        raise OdeumError(message)


class MaskedLanguageModel(BidirectionalModel):
    """`labels` are the tokens where one was hidden, −100 elsewhere."""

    hf_class: ClassVar[str | type | None] = "odeum.hf.classifiers:OdeumForMaskedLM"
    settings: MaskedLanguage  # ty: ignore[incompatible-mutable-override]

    def __init__(self, settings: MaskedLanguage, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        extra = details(settings)
        width = self.embedding.embedding_dim
        self.transform = nn.Linear(settings.width, width)
        self.transform_norm = make_norm(replace(settings, width=width))
        self.activation = ACTIVATIONS[extra.activation or settings.activation]
        self.bias = nn.Parameter(torch.zeros(settings.vocabulary))
        self.output = None if extra.embedding.tied else OutputMatrix(width, settings.vocabulary, bias=False)
        with drawing("transform"):
            reset(self.transform)

    def apply_head(self, x: Tensor, context: Context | None = None) -> Tensor:
        """The logits of the last states."""
        h = self.transform_norm(self.activation(self.transform(x)))
        table = self.embedding.weight if self.output is None else self.output.weight
        return nn.functional.linear(h, table, self.bias)


class PretrainedClassifier(BidirectionalModel):
    """One class from the first position, through the pooler that BERT was pretrained with."""

    hf_class: ClassVar[str | type | None] = "odeum.hf.classifiers:OdeumForSequenceClassification"
    settings: Classification  # ty: ignore[incompatible-mutable-override]

    def __init__(self, settings: Classification, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        self.pooler = nn.Linear(settings.width, settings.width)
        self.pooler_activation = torch.tanh if details(settings).pooler == "tanh" else torch.relu
        self.head = nn.Linear(settings.width, settings.classes)
        with drawing("pooler"):
            reset(self.pooler)
        with drawing("head"):
            reset(self.head)

    def apply_head(self, x: Tensor, context: Context | None = None) -> Tensor:
        """The logits of the last states."""
        pooled = self.pooler_activation(self.pooler(x[:, 0]))
        return self.head(nn.functional.dropout(pooled, self.settings.dropout, self.training))
