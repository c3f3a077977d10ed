"""The likeliest translation, as far as a beam can see."""

from __future__ import annotations

import torch
from torch import Tensor

from odeum.decode.common import evaluating
from odeum.decode.target import Target, limits
from odeum.errors import OdeumError
from odeum.models.translation import TranslationModel

MAX_BEAMS = 1000
"""larger beams find no better translations and fill the memory"""


@torch.inference_mode()
def beam_search(
    model: TranslationModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    beam: int = 4,
    length_penalty: float = 0.6,
    max_length: int | None = None,
    start: int = 1,
    end: int = 2,
    pad: int = 0,
    use_cache: bool = True,
) -> list[list[int]]:
    """Beam search: returns the best translation of each source, without start and end tokens.

    Best is the highest log p(Y) / ((5 + |Y|) / 6)^length_penalty (Wu et al. 2016), where |Y| counts the end. A
    translation has at most `max_length` tokens (default: 50 more than its source) and then must end. The search of a
    sentence is over when none of its open translations could beat its best finished one at any length; with a beam of
    one, which is greedy search, at the first end.
    """
    if beam < 1:
        raise OdeumError(f"beam must be at least 1, not {beam}")
    if beam > MAX_BEAMS:
        raise OdeumError(f"beam must be at most {MAX_BEAMS}, not {beam}: so many translations are kept at once")
    if not length_penalty >= 0:
        raise OdeumError(f"length_penalty must be 0 or positive, not {length_penalty}")
    model = evaluating(model)
    most = limits(model, input_ids, attention_mask, max_length)
    target = Target(model, input_ids, attention_mask, {pad, start} - {end}, use_cache, most)
    return _Search(target, most, beam, length_penalty, start, end).run()


def greedy(
    model: TranslationModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    max_length: int | None = None,
    start: int = 1,
    end: int = 2,
    pad: int = 0,
    use_cache: bool = True,
) -> list[list[int]]:
    """Greedy search: beam search with one beam."""
    options = {"max_length": max_length, "start": start, "end": end, "pad": pad, "use_cache": use_cache}
    return beam_search(model, input_ids, attention_mask, beam=1, **options)  # ty: ignore[invalid-argument-type]


CHECK_INTERVAL = 8
"""positions between two looks at which sentences are over, where a look waits for a device's queue"""


def check_interval(device: torch.device) -> int:
    """On a CPU a look costs nothing."""
    return 1 if device.type == "cpu" else CHECK_INTERVAL


class _Search:
    """Unfinished sentences with `width` hypotheses each: one at the start, up to `beam` later.

    Decisions stay on the device: a finished sentence remains in the batch, without effect, until the next check.
    """

    def __init__(self, target: Target, most: Tensor, beam: int, penalty: float, start: int, end: int) -> None:
        self.target, self.beam, self.penalty, self.end = target, beam, penalty, end
        batch, device = most.shape[0], most.device
        self.every = check_interval(device)
        self.answers: list[list[int]] = [[] for _ in range(batch)]
        self.sentences = list(range(batch))
        self.most, self.longest_penalty = most, self.lengths_penalty(most + 1.0)
        self.least, self.longest = (int(most.min()), int(most.max())) if batch else (0, -1)
        self.width = 1
        self.ids = torch.full((batch, 1), start, dtype=torch.long, device=device)  # [batch · width, length]
        self.scores = torch.zeros(batch, 1, device=device)  # log p of the open ones, the best first
        self.best = torch.full((batch,), -torch.inf, device=device)  # of the finished ones, penalised
        self.found = torch.zeros(batch, self.longest + 1, dtype=torch.long, device=device)  # which they are …
        self.lengths = torch.zeros(batch, dtype=torch.long, device=device)  # … and how long
        self.over = torch.zeros(batch, dtype=torch.bool, device=device)

    def lengths_penalty(self, length: Tensor) -> Tensor:
        return ((5.0 + length) / 6.0) ** self.penalty

    def run(self) -> list[list[int]]:
        for length in range(self.longest + 1):
            scores, parents, tokens, ended = self.candidates(length)
            self.finish(scores, parents, ended, length)
            scores, rank = scores.masked_fill(ended, -torch.inf).topk(min(self.beam, scores.shape[1]))
            self.judge(scores, length)
            stay = self.look() if (length + 1) % self.every == 0 or length == self.longest else None
            if stay is not None and not len(stay):
                break
            self.go_on(stay, scores, parents.gather(1, rank), tokens.gather(1, rank))
        return self.answers

    def candidates(self, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores, parents and tokens of the best extensions, enough that `beam` of them do not end; and which end."""
        batch = len(self.sentences)
        log_p, tokens, ends = self.target.candidates(self.ids, 2 * self.beam, self.end)
        ended = tokens == self.end
        if length >= self.least:
            full = (self.most <= length).repeat_interleave(self.width).unsqueeze(1)  # nothing but the end may follow
            log_p = torch.where(full, torch.cat((ends, torch.full_like(log_p[:, 1:], -torch.inf)), dim=1), log_p)
            ended = ended | full
        count = log_p.shape[1]
        total = (self.scores.unsqueeze(-1) + log_p.view(batch, self.width, count)).flatten(1)
        scores, index = total.topk(min(2 * self.beam, total.shape[1]))
        tokens, ended = (x.view(batch, -1).gather(1, index) for x in (tokens, ended))
        return scores, index // count, tokens, ended

    def any(self, which: Tensor) -> bool:
        """Whether there are some; where an answer would wait for the device's queue, there may be."""
        return self.every > 1 or bool(which.any())

    def finish(self, scores: Tensor, parents: Tensor, ended: Tensor, length: int) -> None:
        """Keep the best ended translation of each sentence. To end, it must have made it into the beam."""
        scores, ended = scores[:, : self.beam], ended[:, : self.beam]
        if not self.any(ended):
            return
        penalised = scores / self.lengths_penalty(torch.tensor(length + 1.0))
        best, rank = penalised.masked_fill(~ended, -torch.inf).max(dim=1)
        better = (best > self.best) & ~self.over
        self.best = torch.where(better, best, self.best)
        self.keep(better, parents.gather(1, rank.unsqueeze(1)).squeeze(1), length)

    def keep(self, which: Tensor, parent: Tensor, length: int) -> None:
        """The answers of these sentences are those of their open translations that is the parent."""
        first = torch.arange(len(self.sentences), device=parent.device) * self.width
        texts = torch.where(which.unsqueeze(1), self.ids[first + parent, 1:], self.found[:, :length])
        self.found[:, :length] = texts
        self.lengths = torch.where(which, length, self.lengths)

    def judge(self, scores: Tensor, length: int) -> None:
        """Which sentences are over, by the scores of their open translations."""
        # log p only falls, and the penalty divides it by the more the longer: so this is the best still possible.
        hope = scores[:, 0] / self.longest_penalty
        over = (hope <= self.best) | (scores[:, 0] == -torch.inf)
        if self.beam == 1:
            over |= self.best > -torch.inf
        if not self.any(over):
            return
        # One may end nowhere (the end has no probability at all): its best open translation is all there is.
        nowhere = over & ~self.over & (self.best == -torch.inf)
        self.keep(nowhere, torch.zeros_like(self.lengths), length)
        self.over = self.over | over

    def look(self) -> Tensor | None:
        """The sentences that go on, None if all do; the answers of those that are over are taken down."""
        over = self.over.tolist()
        if not any(over):
            return None
        for i, length in enumerate(self.lengths.tolist()):
            if over[i]:
                self.answers[self.sentences[i]] = self.found[i, :length].tolist()
        return (~self.over).nonzero().flatten()

    def go_on(self, stay: Tensor | None, scores: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Extend the open translations of the sentences that stay: all, if it is not said which."""
        batch, same = len(self.sentences), scores.shape[1] == self.width and stay is None
        places = torch.arange(batch, device=scores.device)
        if stay is not None:
            places, scores, parents, tokens = stay, scores[stay], parents[stay], tokens[stay]
        rows = (places.unsqueeze(1) * self.width + parents).flatten()
        in_place = same and self.every == 1 and torch.equal(rows, torch.arange(len(rows), device=rows.device))
        if not in_place:
            self.target.select(rows, same, scores.shape[1])
        self.ids = torch.cat((self.ids[rows], tokens.view(-1, 1)), dim=1)
        self.scores, self.width = scores, scores.shape[1]
        if stay is not None:
            self.sentences = [self.sentences[i] for i in stay.tolist()]
            remaining = (x[stay] for x in (self.most, self.best, self.found, self.lengths, self.over))
            self.most, self.best, self.found, self.lengths, self.over = remaining
            self.longest_penalty = self.lengths_penalty(self.most + 1.0)
