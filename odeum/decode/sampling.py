"""Translations drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor

from odeum.decode.choice import Choice
from odeum.decode.common import evaluating
from odeum.decode.target import Target, limits
from odeum.models.translation import TranslationModel


@torch.inference_mode()
def sample(
    model: TranslationModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    max_length: int | None = None,
    start: int = 1,
    end: int = 2,
    pad: int = 0,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """Samples a translation of each source, without start and end tokens; temperature 0 is greedy."""
    choice = Choice(temperature, top_k, top_p, generator).check()
    answers: list[list[int]] = [[] for _ in range(input_ids.shape[0])]
    model = evaluating(model)
    most = limits(model, input_ids, attention_mask, max_length)
    target = Target(model, input_ids, attention_mask, {pad, start} - {end}, use_cache, most)
    sentences = torch.arange(len(answers), device=input_ids.device)
    ids = torch.full((len(answers), 1), start, dtype=torch.long, device=input_ids.device)
    while len(sentences):
        open_rows = most >= ids.shape[1]
        token = choice.pick(target.forbid(target.next_logits(ids))) if bool(open_rows.any()) else ids[:, -1]
        open_rows &= token != end
        for row in (~open_rows).nonzero().flatten().tolist():
            answers[int(sentences[row])] = ids[row, 1:].tolist()
        ids = torch.cat((ids, token.unsqueeze(1)), dim=1)
        if not bool(open_rows.all()):
            rows = open_rows.nonzero().flatten()
            ids, most, sentences = ids[rows], most[rows], sentences[rows]
            target.select(rows, same_sources=False)
    return answers
