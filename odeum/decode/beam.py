"""The likeliest translation, as far as a beam can see."""

from __future__ import annotations

import torch
from torch import Tensor

from odeum.decode.common import Evaluation, folded
from odeum.decode.target import Target, limits
from odeum.errors import OdeumError
from odeum.models.translation import TranslationModel


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
    """The best translation of each source, without start and end.

    Best is the highest log p(Y) / ((5 + |Y|) / 6)^length_penalty (Wu et al. 2016), where |Y| counts the end. A
    translation has at most `max_length` tokens (none: 50 more than its source) and then must end. The search of a
    sentence is over when none of its open translations could beat its best finished one at any length; with a beam of
    one, which is greedy search, at the first end.
    """
    if beam < 1:
        raise OdeumError(f"beam must be at least 1, not {beam}")
    if not length_penalty >= 0:
        raise OdeumError(f"length_penalty must be 0 or positive, not {length_penalty}")
    with Evaluation(model), folded(model):
        target = Target(model, input_ids, attention_mask, {pad, start} - {end}, use_cache)
        most = limits(model, input_ids, attention_mask, max_length)
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
    """The likeliest next token each time: a beam of one."""
    options = {"max_length": max_length, "start": start, "end": end, "pad": pad, "use_cache": use_cache}
    return beam_search(model, input_ids, attention_mask, beam=1, **options)  # ty: ignore[invalid-argument-type]


class _Search:
    """The open sentences, `width` open translations each: one at the start, up to `beam` later."""

    def __init__(self, target: Target, most: Tensor, beam: int, penalty: float, start: int, end: int) -> None:
        self.target, self.beam, self.penalty, self.end = target, beam, penalty, end
        batch, device = most.shape[0], most.device
        self.answers: list[list[int]] = [[] for _ in range(batch)]
        self.sentences = torch.arange(batch, device=device)
        self.most = most
        self.width = 1
        self.ids = torch.full((batch, 1), start, dtype=torch.long, device=device)  # [batch · width, length]
        self.scores = torch.zeros(batch, 1, device=device)  # log p of the open ones, the best first
        self.best = torch.full((batch,), -torch.inf, device=device)  # of the finished ones, penalised

    def lengths_penalty(self, length: Tensor) -> Tensor:
        return ((5.0 + length) / 6.0) ** self.penalty

    def run(self) -> list[list[int]]:
        for length in range(int(self.most.max()) + 1 if len(self.most) else 0):
            scores, parents, tokens = self.candidates(length)
            ended = tokens == self.end
            self.finish(scores, parents, ended, length)
            scores, rank = scores.masked_fill(ended, -torch.inf).topk(min(self.beam, scores.shape[1]))
            if not self.go_on(scores, parents.gather(1, rank), tokens.gather(1, rank)):
                break
        return self.answers

    def candidates(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, parents and tokens of the best extensions: enough that `beam` of them do not end."""
        log_p = self.target.log_probabilities(self.ids)
        vocabulary = log_p.shape[-1]
        log_p = log_p.view(-1, self.width, vocabulary)
        full = self.most <= length
        if bool(full.any()):
            only_end = torch.arange(vocabulary, device=log_p.device) == self.end
            log_p = log_p.masked_fill(full[:, None, None] & ~only_end, -torch.inf)
        total = (self.scores.unsqueeze(-1) + log_p).flatten(1)
        scores, index = total.topk(min(2 * self.beam, total.shape[1]))
        return scores, index // vocabulary, index % vocabulary

    def finish(self, scores: Tensor, parents: Tensor, ended: Tensor, length: int) -> None:
        """Keep the best ended translation of each sentence. To end, it must have made it into the beam."""
        if not bool(ended[:, : self.beam].any()):
            return
        penalised = scores / self.lengths_penalty(torch.tensor(length + 1.0))
        best, rank = penalised[:, : self.beam].masked_fill(~ended[:, : self.beam], -torch.inf).max(dim=1)
        better = best > self.best
        self.best = torch.where(better, best, self.best)
        for i in better.nonzero().flatten().tolist():
            row = i * self.width + int(parents[i, rank[i]])
            self.answers[int(self.sentences[i])] = self.ids[row, 1:].tolist()

    def go_on(self, scores: Tensor, parents: Tensor, tokens: Tensor) -> bool:
        """Extend the open translations of the sentences that are not over; false if all are."""
        # log p only falls, and the penalty divides it by the more the longer: so this is the best still possible.
        hope = scores[:, 0] / self.lengths_penalty(self.most + 1.0)
        over = (hope <= self.best) | (scores[:, 0] == -torch.inf)
        if self.beam == 1:
            over |= self.best > -torch.inf
        stay = (~over).nonzero().flatten()
        if len(stay) < len(over):
            for i in (over & (self.best == -torch.inf)).nonzero().flatten().tolist():
                # It may end nowhere (the end has no probability at all): its best open translation is all there is.
                self.answers[int(self.sentences[i])] = self.ids[i * self.width, 1:].tolist()
        if len(stay) == 0:
            return False
        rows = (stay.unsqueeze(1) * self.width + parents[stay]).flatten()
        same = scores.shape[1] == self.width and len(stay) == len(over)
        if not same or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            self.target.select(rows, same)
        self.ids = torch.cat((self.ids[rows], tokens[stay].view(-1, 1)), dim=1)
        self.scores, self.width = scores[stay], scores.shape[1]
        self.sentences, self.most, self.best = self.sentences[stay], self.most[stay], self.best[stay]
        return True
