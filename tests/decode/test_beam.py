"""Beam search finds what it should: against hand-made models, plain Python, and exhaustive search."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from odeum.decode import beam_search, greedy, sample
from odeum.decode.target import Target
from odeum.fields import Cache

PAD, START, END = 0, 1, 2
Script = Callable[[int, tuple[int, ...]], list[float]]


class Scripted:
    """A translation model whose next-token probabilities are written down: (source, tokens so far) -> probabilities.

    Its cache holds the tokens themselves, so that a wrong reordering makes a wrong prefix.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.embedding = self
        self.rows: list[int] = []

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return input_ids[..., None].double()

    def decode(
        self,
        ids: Tensor,
        memory: Tensor,
        attention_mask: Tensor | None = None,
        caches: tuple[Cache, Cache] | None = None,
    ) -> Tensor:
        sources = memory[:, -1, 0].long()
        if caches is not None:
            for cache in caches:
                cache.begin()
            ids = caches[0].extend(ids[..., None])[0].squeeze(-1)
            sources = caches[1].constant(lambda: (sources,))[0]
            for cache in caches:
                cache.advance(1)
        self.rows.append(len(ids))
        rows = zip(sources.tolist(), ids.tolist(), strict=True)
        return torch.tensor([[self.script(source, tuple(row[1:]))] for source, row in rows]).double()

    def logits(self, x: Tensor) -> Tensor:
        return x.log()


def search(script: Script, sources: int = 1, **words: Any) -> list[list[int]]:
    ids = torch.arange(sources).unsqueeze(1)
    model: Any = Scripted(script)
    out = beam_search(model, ids, **words)
    assert out == beam_search(model, ids, use_cache=False, **words)
    with pytest.MonkeyPatch.context() as patch:  # as on a device that is not asked at each position
        patch.setattr("odeum.decode.beam.check_interval", lambda device: 3)
        assert out == beam_search(model, ids, **words)
    return out


def random_script(seed: int, vocabulary: int) -> Script:
    """Every prefix has its own probabilities, some of them very small."""

    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        dice = random.Random(f"{seed} {source} {tokens}")
        weights = [math.exp(dice.gauss(0.0, 1.5)) for _ in range(vocabulary)]
        return [weight / sum(weights) for weight in weights]

    return script


def penalised(script: Script, source: int, tokens: tuple[int, ...], alpha: float) -> float:
    """log p(tokens, end) / ((5 + |Y|) / 6)^alpha."""
    steps = [(tokens[:i], token) for i, token in enumerate((*tokens, END))]
    total = sum(math.log(script(source, prefix)[token]) for prefix, token in steps)
    return total / ((5 + len(tokens) + 1) / 6) ** alpha


def exhaustive(script: Script, source: int, vocabulary: int, longest: int, alpha: float) -> list[int]:
    words = [token for token in range(vocabulary) if token not in (PAD, START, END)]
    texts = itertools.chain.from_iterable(itertools.product(words, repeat=n) for n in range(longest + 1))
    return list(max(texts, key=lambda tokens: penalised(script, source, tokens, alpha)))


def plain(script: Script, source: int, beam: int, alpha: float, longest: int) -> list[int]:
    """Beam search written down as simply as can be, without stopping early."""
    alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    best, answer = -math.inf, ()
    for length in range(longest + 1):
        ends = length == longest
        extended = [
            (total + math.log(p), (*tokens, token))
            for total, tokens in alive
            for token, p in enumerate(script(source, tokens))
            if token == END or (token not in (PAD, START) and not ends)
        ]
        extended.sort(key=lambda pair: -pair[0])
        for total, tokens in extended[:beam]:
            score = total / ((5 + length + 1) / 6) ** alpha
            if tokens[-1] == END and score > best:
                best, answer = score, tokens[:-1]
        alive = [pair for pair in extended if pair[1][-1] != END][:beam]
    return list(answer)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_as_wide_as_everything_is_exhaustive_search(alpha: float) -> None:
    for seed in range(3):
        script = random_script(seed, 6)
        found = search(script, 4, beam=3**4, length_penalty=alpha, max_length=4)
        assert found == [exhaustive(script, source, 6, 4, alpha) for source in range(4)]
        assert len({tuple(text) for text in found}) > 1


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("beam", [2, 3, 5, 20])
def test_stopping_early_changes_nothing(beam: int, alpha: float) -> None:
    for seed in range(4):
        script = random_script(seed, 8)
        found = search(script, 6, beam=beam, length_penalty=alpha, max_length=9)
        assert found == [plain(script, source, beam, alpha, 9) for source in range(6)]


def test_a_wider_beam_avoids_the_greedy_trap() -> None:
    table = {
        (): [0, 0, 0.0, 0.6, 0.4],
        (3,): [0, 0, 0.5, 0.25, 0.25],  # the likelier start leads nowhere
        (4,): [0, 0, 0.9, 0.05, 0.05],
    }

    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return table.get(tokens, [0, 0, 1.0, 0.0, 0.0])

    assert search(script, beam=1) == [[3]]
    assert search(script, beam=2, length_penalty=0.0) == [[4]]


def test_a_finished_translation_outlives_its_neighbours() -> None:
    """It ends at once, leaves the beam, and is still the answer when all others have become worse."""

    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return [0, 0, 0.4, 0.35, 0.25] if len(tokens) < 6 else [0, 0, 0.98, 0.01, 0.01]

    assert search(script, beam=2, length_penalty=0.0, max_length=8) == [[]]


def test_the_length_penalty_prefers_longer_translations() -> None:
    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return [0, 0, 0.5, 0.5] if not tokens else [0, 0, 0.1, 0.9] if len(tokens) < 5 else [0, 0, 1.0, 0.0]

    short, long = penalised(script, 0, (), 1.0), penalised(script, 0, (3,) * 5, 1.0)
    assert long > short
    assert search(script, beam=2, length_penalty=0.0, max_length=9) == [[]]
    assert search(script, beam=2, length_penalty=1.0, max_length=9) == [[3] * 5]


def test_an_end_outside_the_beam_is_not_taken() -> None:
    """Third of a beam of two: were it taken, it would win by being short."""

    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return [0, 0, 0.3, 0.36, 0.34] if not tokens else [0, 0, 0.5, 0.25, 0.25]

    assert search(script, beam=2, length_penalty=0.0) == [[3]]
    assert search(script, beam=3, length_penalty=0.0) == [[]]


def test_padding_and_start_are_never_produced() -> None:
    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return [0.5, 0.4, 0.02, 0.05, 0.03] if len(tokens) < 3 else [0.5, 0.4, 0.1, 1e-9, 1e-9]

    model: Any = Scripted(script)
    ids = torch.zeros(3, 1, dtype=torch.long)
    for text in (
        *search(script, beam=4, length_penalty=2.0),
        *greedy(model, ids),
        *sample(model, ids, generator=torch.Generator().manual_seed(0)),
    ):
        assert set(text) <= {3, 4}
    assert greedy(model, ids[:1]) == [[3, 3, 3]]


def test_a_translation_that_never_ends_is_cut() -> None:
    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return [0, 0, 1e-9 if source else 0.0, 0.7, 0.3]

    for beam in (1, 3):
        assert search(script, 2, beam=beam, max_length=4) == [[3] * 4] * 2
        assert search(script, beam=beam, max_length=0) == [[]]
        mask = torch.tensor([[0, 0, 1], [1, 1, 1]])
        model: Any = Scripted(script)
        for find in (beam_search, greedy, sample):
            out = find(model, torch.ones(2, 3, dtype=torch.long), mask)
            assert [len(text) for text in out] == [51, 53]  # 50 more than its own source, not than the longest


def test_finished_sentences_leave_the_batch() -> None:
    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return [0, 0, 0.96, 0.03, 0.01] if len(tokens) >= source else [0, 0, 1e-6, 0.6, 0.4]

    model: Any = Scripted(script)
    ids = torch.tensor([[4], [0], [2], [1]])
    assert [len(text) for text in beam_search(model, ids, beam=2, length_penalty=0.0)] == [4, 0, 2, 1]
    assert model.rows == [4, 2 * 3, 2 * 2, 2, 2]
    model.rows.clear()
    assert [len(text) for text in greedy(model, ids)] == [4, 0, 2, 1]
    assert model.rows == [4, 3, 2, 1, 1]


def test_samples_follow_the_model_and_their_seed() -> None:
    def script(source: int, tokens: tuple[int, ...]) -> list[float]:
        return [0.1, 0.1, 0.2, 0.36, 0.24] if not tokens else [0, 0, 1.0, 0, 0]

    model: Any = Scripted(script)
    ids = torch.zeros(4000, 1, dtype=torch.long)

    def draw(seed: int, **words: Any) -> list[list[int]]:
        return sample(model, ids, generator=torch.Generator().manual_seed(seed), **words)

    texts = draw(0)
    assert texts == draw(0) and texts != draw(1)
    for text, share in (([], 0.25), ([3], 0.45), ([4], 0.3)):
        assert abs(texts.count(text) / 4000 - share) < 0.03
    assert {tuple(text) for text in draw(0, top_k=2)} == {(3,), (4,)}


@pytest.mark.parametrize("odd", [0.0, torch.inf, -torch.inf, torch.nan, 3e38, -3e38])
def test_probabilities_are_among_all_tokens(odd: float) -> None:
    """As torch's logsumexp, for logits of every size, though its exponentials are kept from position to position."""
    target = object.__new__(Target)
    target.exponentials = None
    for rows in (3, 3, 2):
        logits = 4 * torch.randn(rows, 11)
        logits[0, 4], logits[1] = odd, odd
        right = logits.logsumexp(dim=-1, keepdim=True)
        torch.testing.assert_close(target.log_of_sum(logits), right, equal_nan=True)
