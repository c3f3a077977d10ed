"""Text that goes on: greedy or sampled continuation by a causal model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from odeum.decode.choice import Choice
from odeum.decode.common import Folds, boolean_mask, cacheable, evaluating
from odeum.decode.flat import FlatStack, FlatTokens
from odeum.decode.packed import PackedMaps, output_map
from odeum.errors import OdeumError
from odeum.fields.cache import Cache
from odeum.models.language import LanguageModel


def generate(
    model: LanguageModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end: int | None = None,
    pad: int = 0,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Tensor:
    """Generates tokens; returns the prompts and their continuations: [batch, prompt + new tokens].

    Prompts of different length are padded on the left, with `attention_mask` 0 there. Temperature 0 is greedy. A row
    that produced `end` is filled with `pad`; generation stops when all rows have. Keys and values are cached wherever
    the number of evaluations is fixed; adaptive solvers read all tokens again at each step.

    A window that has grown over the model's `length` is cut to its last `length // 2` tokens, which are then read
    again at positions 0, 1, 2 …, for every kind of positions: the model has never seen more than `length`.
    """
    choice = Choice(temperature, top_k, top_p, generator)
    steps = _steps(model, input_ids, attention_mask, max_new_tokens, choice, end, pad, use_cache, alone=True)
    tokens = list(steps)
    return torch.cat((input_ids, torch.stack(tokens, dim=1)), dim=1) if tokens else input_ids.clone()


def stream(
    model: LanguageModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end: int | None = None,
    pad: int = 0,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Iterator[Tensor]:
    """Yields the new tokens of `generate` one by one, [batch] each, for example to print them as they appear."""
    choice = Choice(temperature, top_k, top_p, generator)
    for token in _steps(model, input_ids, attention_mask, max_new_tokens, choice, end, pad, use_cache):
        yield token.clone()


@torch.inference_mode()
def _steps(
    model: LanguageModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    count: int,
    choice: Choice,
    end: int | None,
    pad: int,
    use_cache: bool,
    *,
    alone: bool = False,
) -> Iterator[Tensor]:
    """Decode token by token; nothing of the model is changed.

    What its owner changes between two tokens counts from the next one on, unless the caller is `alone` with the model
    until the last one.
    """
    choice.check()
    owned, folds = model, Folds()
    model = evaluating(owned, folds)
    if count < 0:
        raise OdeumError(f"max_new_tokens must be 0 or more, not {count}")
    window = Window(input_ids, boolean_mask(input_ids, attention_mask), model.settings.length)
    use_cache = use_cache and cacheable(model)
    room = min(model.settings.length, window.ids.shape[1] + count) if window.mask is None else 0
    cache = Cache(room) if use_cache else None
    run = None
    if use_cache and type(model) is LanguageModel:
        run = FlatStack(model.stack, model, PackedMaps(count)) if alone else FlatStack(model.stack)
    logits, one = model.logits, None
    short = run is not None and run.alone and not {"hidden", "embed", "logits"} & model.__dict__.keys()
    if short:
        logits = output_map(model.embedding if model.output is None else model.output, logits, count)
    fed = window.ids
    done = torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)
    for i in range(count):
        x = one(fed) if one is not None else model.hidden(fed, window.mask, cache, run)
        token = choice.pick(logits(x.select(1, -1)))
        if end is None:
            yield token
        else:
            yield token.masked_fill(done, pad)  # the model itself goes on with its own: pad may be no token at all
            done |= token == end
        if i + 1 == count or (end is not None and bool(done.all())):
            return
        slid = window.append(token)
        if slid and use_cache:
            cache = Cache(room)
        fed = window.ids if slid or cache is None else token.unsqueeze(1)
        if slid or window.mask is not None:
            one = None
        elif short and run is not None and one is None and cache is not None:
            one = FlatTokens(model, run, cache)
        if not alone:
            before, model = model, evaluating(owned, folds)
            logits = model.logits
            if run is not None and model is not before:
                run = FlatStack(model.stack)


class Window:
    """The tokens that the model reads: never more than `length` in a row, however long the text.

    Each row slides for itself, so that a text does not depend on those beside it.
    """

    def __init__(self, ids: Tensor, mask: Tensor | None, length: int) -> None:
        if mask is not None and not bool(mask[:, -1].all()):
            raise OdeumError(
                "attention_mask ends in 0: pad the prompts on the left, so that each ends in its last token"
            )
        self._ids, self.mask, self.length = ids, mask, length
        self._new: list[Tensor] = []
        self.longest = ids.shape[1] if mask is None else int(mask.sum(dim=1).max())
        if self.longest > length:
            self._cut(length)

    @property
    def ids(self) -> Tensor:
        if self._new:
            self._ids = torch.cat((self._ids, torch.stack(self._new, dim=1)), dim=1)
            self._new = []
        return self._ids

    def append(self, token: Tensor) -> bool:
        """Whether the window slid, so that all of it must be read again."""
        self._new.append(token)
        self.longest += 1
        if self.mask is not None:
            self.mask = torch.nn.functional.pad(self.mask, (0, 1), value=True)
        if self.longest <= self.length:
            return False
        self._cut(max(1, self.length // 2))
        return True

    def _cut(self, keep: int) -> None:
        """Forget all but the last `keep` tokens of each row that is too long, and columns that no row needs."""
        ids = self.ids
        if self.mask is None:
            self._ids, self.longest = ids[:, -keep:], keep
            return
        place = self.mask.flip(-1).cumsum(dim=-1).flip(-1)  # the last token has place 1
        mask = self.mask & ~((place[:, :1] > self.length) & (place > keep))
        first = int(mask.any(dim=0).int().argmax())
        self._ids, mask = ids[:, first:], mask[:, first:]
        self.longest = int(mask.sum(dim=1).max())
        self.mask = None if bool(mask.all()) else mask
