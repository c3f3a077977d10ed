"""Models that read a whole text, around any architecture, and the classifier."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.architectures.parts import make_norm
from odeum.draws import drawing
from odeum.fields.attention import reset
from odeum.fields.base import Context, Source
from odeum.models.base import OdeumModel, Output, check_ids, key_mask, masked_mean, zero_ids
from odeum.models.embedding import Positions, lookup
from odeum.models.language import token_positions
from odeum.models.settings import Classification, TextInput
from odeum.registry.names import Architecture


class TextModel(OdeumModel):
    """Tokens in, a few numbers out: a linear head on the mean over unpadded positions, or on a class token."""

    hf_class: ClassVar[str | type | None] = "odeum.hf.classifiers:OdeumForSequenceClassification"
    settings: TextInput

    def __init__(self, settings: TextInput, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        token = settings.pooling == "token"
        self.token = nn.Parameter(torch.zeros(1, 1, settings.width)) if token else None
        self.positions = Positions(settings.positions, settings.width, settings.length + token)
        self.stack = make_stack(architecture, settings)
        # Of the mean over positions, as in the published TransEvolve classifier; a class token was normed by the stack.
        self.norm = nn.Identity() if token else make_norm(settings)
        with drawing("embedding"):
            nn.init.normal_(self.embedding.weight, std=settings.width**-0.5)
        with drawing("head"):
            self.head = nn.Linear(settings.width, self.outputs)
            reset(self.head)

    @property
    def outputs(self) -> int:
        """Number of outputs of the head."""
        raise NotImplementedError(f"{type(self).__name__} does not define `outputs`")

    @property
    def particles(self) -> int:
        return self.settings.length

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        return {"input_ids": zero_ids(batch, self.settings.length, device)}

    def embed(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Context]:
        """The input of the first layer, and the context with its mask."""
        check_ids(input_ids)
        mask = key_mask(attention_mask, *input_ids.shape)
        x = lookup(input_ids, self.embedding.weight) * self.settings.width**0.5
        if self.token is not None:
            x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1)
            mask = None if mask is None else nn.functional.pad(mask, (1, 0), value=True)
        where = token_positions(x, None if mask is None else mask[:, 0, 0])
        x = nn.functional.dropout(self.positions(x, where), self.settings.dropout, self.training)
        return x, Context(own=Source(mask=mask, rotary=self.positions.rotary(where)))

    def pool(self, x: Tensor, context: Context) -> Tensor:
        """The pooled last states that the head reads: [batch, width]."""
        mask = context.own.mask
        if self.token is not None:
            return self.norm(x[:, 0])
        return self.norm(masked_mean(x, None if mask is None else mask[:, 0, 0]))

    def apply_head(self, x: Tensor, context: Context) -> Tensor:
        """The logits of the last states."""
        return self.head(self.pool(x, context))

    def pooled(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The pooled state that the head reads: [batch, width]."""
        x, context = self.embed(input_ids, attention_mask)
        return self.pool(self.stack(x, context), context)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Output:
        x, context = self.embed(input_ids, attention_mask)
        logits = self.apply_head(self.stack(x, context), context)
        return Output(logits, None if labels is None else self.criterion(logits, labels))


class ClassificationModel(TextModel):
    """Tokens in, one class out."""

    settings: Classification  # ty: ignore[incompatible-mutable-override]

    @property
    def outputs(self) -> int:
        return self.settings.classes
