"""Real translation models are searched as they should: cached or not, alone or in a batch, in every architecture."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from odeum.decode import beam_search, greedy, sample
from odeum.errors import OdeumError
from odeum.models import TranslationModel, build
from odeum.registry.names import ARCHITECTURES

PAD, START, END = 0, 1, 2


def lively(architecture: str, **changes: Any) -> TranslationModel:
    """A model whose next token is not just the last one again."""
    settings = {"vocabulary": 19, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 40} | changes
    model = build(architecture, "translation_small", **settings).eval()
    assert isinstance(model, TranslationModel)
    nn.init.normal_(model.embedding.weight, std=0.7)
    model.embedding.scale = -1.0
    return model


def sentences() -> tuple[Tensor, Tensor]:
    ids = torch.randint(3, 19, (4, 7))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    mask[3, 1:] = 0
    return ids, mask


@pytest.mark.parametrize(
    "architecture",
    [
        *ARCHITECTURES,
        "rk4:steps=2",
        "parallel:independent=1",
        "transevolve:random-2",
        "transevolve:method=adams-bashforth",
    ],
)
def test_cached_search_equals_uncached_and_each_sentence_alone(architecture: str, float64: None) -> None:
    model = lively(architecture)
    ids, mask = sentences()
    longest = 4 if architecture == "continuous" else 9
    found = beam_search(model, ids, mask, beam=3, max_length=longest)
    assert found == beam_search(model, ids, mask, beam=3, max_length=longest, use_cache=False)
    if architecture != "continuous":  # there, within a tolerance, sentences do depend on each other
        for row in range(4):
            alone = ids[row : row + 1, mask[row] == 1]
            assert beam_search(model, alone, beam=3, max_length=longest) == [found[row]]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_other_positions(positions: str, float64: None) -> None:
    model = lively("parallel", positions=positions, length=12)
    ids, mask = sentences()
    found = beam_search(model, ids, mask)
    assert found == beam_search(model, ids, mask, use_cache=False)
    assert positions != "learned" or max(map(len, found)) <= 11


def test_a_real_model_is_searched_exhaustively(float64: None) -> None:
    model = lively("parallel", vocabulary=6)
    ids = torch.randint(3, 6, (3, 5))
    for alpha in (0.0, 0.6):
        expected = []
        for row in range(3):
            texts = [list(text) for n in range(4) for text in itertools.product((3, 4, 5), repeat=n)]

            def score(text: list[int], row: int = row, alpha: float = alpha) -> float:
                out = model(ids[row : row + 1], None, torch.tensor([[START, *text]])).logits.log_softmax(dim=-1)
                total = out[0].gather(1, torch.tensor([*text, END]).unsqueeze(1)).sum().item()
                return total / ((5 + len(text) + 1) / 6) ** alpha

            expected.append(max(texts, key=score))
        assert beam_search(model, ids, beam=27, length_penalty=alpha, max_length=3) == expected


def test_greedy_is_a_beam_of_one_is_the_argmax(float64: None) -> None:
    model = lively("sequential")
    ids, mask = sentences()
    expected = []
    for row in range(4):
        text = [START]
        while len(text) <= 12:
            logits = model(ids[row : row + 1], mask[row : row + 1], torch.tensor([text])).logits[0, -1]
            logits[[PAD, START]] = -torch.inf
            if int(logits.argmax()) == END:
                break
            text.append(int(logits.argmax()))
        expected.append(text[1:])
    assert greedy(model, ids, mask, max_length=12) == expected
    for alpha in (0.0, 0.6, 3.0):
        assert beam_search(model, ids, mask, beam=1, length_penalty=alpha, max_length=12) == expected
    assert sample(model, ids, mask, temperature=0, max_length=12) == expected
    assert sample(model, ids, mask, top_k=1, max_length=12, use_cache=False) == expected


def test_search_switches_dropout_off_and_on_again(float64: None) -> None:
    model = lively("parallel", dropout=0.5)
    ids, mask = sentences()
    found = beam_search(model, ids, mask, max_length=6)
    model.train()
    assert beam_search(model, ids, mask, max_length=6) == found and model.training


def test_wrong_words_give_sentences() -> None:
    model = lively("parallel")
    ids, mask = sentences()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"beam": 0}, "beam must be at least 1"),
        ({"beam": 100_000}, "beam must be at most 1000"),
        ({"length_penalty": -1.0}, "length_penalty must be 0 or positive"),
        ({"max_length": -1}, "max_length must be a number of tokens"),
        ({"attention_mask": mask[:2]}, r"attention_mask has shape \(2, 7\)"),
        ({"input_ids": ids[0]}, r"input_ids has shape \(7,\)"),
    ]
    for wrong, sentence in cases:
        words: dict[str, Any] = {"input_ids": ids, **wrong}
        with pytest.raises(OdeumError, match=sentence):
            beam_search(model, **words)


@pytest.mark.parametrize("pad", [-1, 10_000])
def test_padding_that_is_no_token_forbids_none(pad: int) -> None:
    model, (ids, mask) = lively("parallel"), sentences()
    assert beam_search(model, ids, mask, pad=pad, max_length=6) == beam_search(model, ids, mask, pad=1, max_length=6)


def test_decoding_leaves_every_part_in_its_mode() -> None:
    model, (ids, mask) = lively("parallel", dropout=0.5), sentences()
    model.eval()
    model.decoder.train()
    assert greedy(model, ids, mask, max_length=6) == greedy(model, ids, mask, max_length=6)
    assert model.decoder.training and not model.encoder.training and not model.training


@pytest.mark.parametrize("temperature", [1e-40, 1e-10])
def test_a_tiny_temperature_takes_the_likeliest(temperature: float) -> None:
    model, (ids, mask) = lively("parallel"), sentences()
    drawn = sample(model, ids, mask, temperature=temperature, max_length=6)
    assert drawn == sample(model, ids, mask, temperature=0.0, max_length=6)
