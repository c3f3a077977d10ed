"""A translation model's decoder, one position at a time."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from odeum.decode.choice import largest
from odeum.decode.common import boolean_mask, cacheable
from odeum.decode.flat import FlatStack
from odeum.decode.packed import PackedMaps, output_map
from odeum.errors import OdeumError
from odeum.fields.cache import Cache
from odeum.models.base import exact
from odeum.models.translation import TranslationModel

SLACK = 50
"""default number of tokens by which a translation may be longer than its source"""


MAX_RESERVED_POSITIONS = 256
"""positions that a cache of translations reserves at once"""


class Target:
    """The encoded sources and the caches of their decoder; rows may be repeated, reordered and dropped."""

    def __init__(
        self,
        model: TranslationModel,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        never: set[int],
        use_cache: bool,
        most: Tensor,
    ) -> None:
        self.model = model
        self.mask = boolean_mask(input_ids, attention_mask)
        self.memory = model.encode(input_ids, self.mask)
        self.never = never
        cached = use_cache and cacheable(getattr(model, "decoder", model))
        room = min(int(most.max()) + 1, MAX_RESERVED_POSITIONS) if len(most) else 0
        self.caches = (Cache(room), Cache()) if cached else None
        self.exponentials: Tensor | None = None
        self.decode, self.logits = model.decode, model.embedding.logits
        if cached and type(model) is TranslationModel:
            run = FlatStack(model.decoder, model, PackedMaps(input_ids.shape[1]))
            self.decode = partial(model.decode, run=run)
            if run.alone:
                self.logits = output_map(model.embedding, self.logits, input_ids.shape[1])

    def next_logits(self, ids: Tensor) -> Tensor:
        """Logits of the next token per row [rows, vocabulary]; `ids` holds all tokens, the start included."""
        fed = ids if self.caches is None else ids[:, -1:]
        return exact(self.logits(self.decode(fed, self.memory, self.mask, self.caches)[:, -1]))

    def log_of_sum(self, logits: Tensor) -> Tensor:
        """`logits.logsumexp(dim=-1, keepdim=True)`, its exponentials where those of the position before were."""
        if self.exponentials is None or self.exponentials.shape != logits.shape:
            self.exponentials = torch.empty_like(logits)
        finite = torch.finfo(logits.dtype)
        top = logits.amax(dim=-1, keepdim=True).clamp_(finite.min, finite.max)
        return torch.sub(logits, top, out=self.exponentials).exp_().sum(dim=-1, keepdim=True).log_().add_(top)

    def forbid(self, logits: Tensor) -> Tensor:
        """The same logits, in which what never follows has no probability."""
        for token in self.never:
            if 0 <= token < logits.shape[-1]:  # padding may be no token at all
                logits[:, token] = -torch.inf
        return logits

    def candidates(self, ids: Tensor, count: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `count` likeliest next tokens of each row, all if there are fewer: their log-probabilities [rows, count],
        themselves, and the log-probability of the end [rows, 1]."""
        logits = self.next_logits(ids)
        total = self.log_of_sum(logits)  # a probability is one among all, what never follows included
        logits, vocabulary = self.forbid(logits), logits.shape[-1]
        ends = logits[:, end : end + 1] - total if 0 <= end < vocabulary else torch.full_like(total, -torch.inf)
        best, tokens = largest(logits, min(count, vocabulary))
        return best - total, tokens, ends

    def select(self, rows: Tensor, same_sources: bool, beams: int = 1) -> None:
        """Go on with these rows; `same_sources` if each new row has the source of the row in its place. Of each source
        there are as many rows as `beams`, one after the other."""
        if self.caches is not None:
            self.caches[0].reorder(rows)
            self.caches[1].beams = beams
        if same_sources:
            return
        if self.caches is not None:
            self.caches[1].reorder(rows)
        self.memory = self.memory.index_select(0, rows)
        if self.mask is not None:
            self.mask = self.mask.index_select(0, rows)


def limits(model: TranslationModel, input_ids: Tensor, attention_mask: Tensor | None, max_length: int | None) -> Tensor:
    """The most tokens a translation may have, for each source by itself: [batch]."""
    mask = boolean_mask(input_ids, attention_mask)
    batch, length = input_ids.shape
    if max_length is not None and max_length < 0:
        raise OdeumError(f"max_length must be a number of tokens, not {max_length}")
    if max_length is not None:
        out = torch.full((batch,), max_length, device=input_ids.device)
    elif mask is None:
        out = torch.full((batch,), length + SLACK, device=input_ids.device)
    else:
        out = mask.sum(dim=1) + SLACK
    settings = getattr(model, "settings", None)
    if settings is not None and settings.positions == "learned":
        out = out.clamp(max=settings.length - 1)  # the start takes a position too
    return out
