"""One new token of each text, on its way to the first layer and through them, without the calls around it."""

from __future__ import annotations

from torch import Tensor

from odeum.decode.flat_stack import FlatStack
from odeum.fields.base import Context, Source
from odeum.fields.cache import Cache
from odeum.models.language import LanguageModel, token_positions


class FlatTokens:
    """What `LanguageModel.hidden` computes of [batch, 1] tokens that follow what the cache has read, without padding.

    For whoever is alone with the model until the last token: what does not change between two is found once.
    """

    def __init__(self, model: LanguageModel, run: FlatStack, cache: Cache) -> None:
        self.run, self.cache, self.positions = run, cache, model.positions
        self.embed = model.embedding.forward
        self.added = model.positions.added(next(model.embedding.parameters()).new_empty(0, model.settings.width))
        self.context = Context(own=Source(causal=True, cache=cache))

    def __call__(self, tokens: Tensor) -> Tensor:
        cache, context, past = self.cache, self.context, self.cache.length
        x = self.embed(tokens)
        if self.added is not None:
            x = x + self.added[past]
        elif (rotary := self.positions.rotary(token_positions(tokens, None, past))) is not None:
            context = context._replace(own=context.own._replace(rotary=rotary))
        cache.begin()
        x = self.run(x, context)
        cache.advance(1)
        return x
