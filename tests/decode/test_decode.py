"""Decoding with kept keys and values gives what decoding without them gives, and draws what it should."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import every_second
from torch import Tensor, nn

from odeum.decode import generate, stream
from odeum.decode.choice import Choice, largest, likeliest
from odeum.decode.common import cacheable, evaluating
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, Field, PreNorm, Scaled, Sum
from odeum.fields.transevolve.rotation import Rotation
from odeum.flow import set_solver
from odeum.integrators import Adaptive
from odeum.models import LanguageModel, build
from odeum.models.embedding import TiedEmbedding
from odeum.registry.names import ARCHITECTURES

VOCABULARY = 23
FIXED = [
    *(name for name in ARCHITECTURES if name != "continuous"),
    "rk4:steps=2",
    "rk4:gradient=checkpointed",
    "rk4:gradient=adjoint",
    "adams-bashforth:gradient=checkpointed,steps=2",
    "adams-bashforth:order=4,independent=2",
    "transevolve:method=adams-bashforth,blocks=2",
    "transevolve:method=leapfrog",
    "parallel:independent=2",
    "parallel:independent=2,sharing=cycle,steps=3",
    "sequential:norm=peri",
    "parallel:norm=shared",
    "parallel:norm=post-sum",
    "macaron:method=euler",
    "ode-transformer:coefficients=learned,method=rk4",
    "transevolve:random-2",
    "transevolve:full-2",
    "transevolve:attention=fused",
    "transevolve:attention=shared,method=rk4",
    "transevolve:attention=linear",
]


def lively(architecture: str, **changes: Any) -> LanguageModel:
    """A model whose next token is not just the last one again: what a token adds is the contrary of its output row."""
    settings = {"vocabulary": VOCABULARY, "width": 16, "heads": 2, "depth": 4, "hidden": 32, "length": 32} | changes
    model = build(architecture, "language_small", **settings).eval()
    assert isinstance(model, LanguageModel)
    if isinstance(model.embedding, TiedEmbedding):
        torch.nn.init.normal_(model.embedding.weight, std=1.0)
        model.embedding.scale = -1.0
    return model


def prompts() -> tuple[Tensor, Tensor]:
    """Three prompts of 9, 6 and 1 tokens, padded on the left."""
    ids = torch.randint(0, VOCABULARY, (3, 9))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    mask[2, :8] = 0
    return ids, mask


@pytest.mark.parametrize("architecture", FIXED)
def test_cached_logits_equal_uncached(architecture: str, float64: None) -> None:
    model = lively(architecture)
    ids, mask = prompts()
    for keep in (None, mask):
        whole = model(ids, keep).logits
        cache, start, parts = Cache(), 0, []
        for size in (4, 1, 1, 3):  # a prompt, single tokens, and several at once
            end = start + size
            parts.append(model(ids[:, start:end], None if keep is None else keep[:, :end], cache=cache).logits)
            start = end
        seen = mask.bool() if keep is not None else torch.ones_like(mask).bool()
        assert cache.length == 9
        torch.testing.assert_close(torch.cat(parts, dim=1)[seen], whole[seen], rtol=0, atol=1e-10)


@pytest.mark.parametrize("architecture", every_second(FIXED))
def test_padded_batch_continues_as_each_alone_and_as_uncached(architecture: str, float64: None) -> None:
    model = lively(architecture, length=12)  # the window slides
    ids, mask = prompts()
    out = generate(model, ids, mask, max_new_tokens=5, temperature=0)
    assert out.shape == (3, 14) and torch.equal(out[:, :9], ids)
    assert torch.equal(out, generate(model, ids, mask, max_new_tokens=5, temperature=0, use_cache=False))
    for row in range(3):
        alone = generate(model, ids[row : row + 1, mask[row] == 1], max_new_tokens=5, temperature=0)
        assert torch.equal(alone[0, -5:], out[row, 9:])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("architecture", ["parallel", "rk4", "transevolve"])
@pytest.mark.parametrize("embedding", ["tied", "adaptive"])
def test_every_kind_of_positions(positions: str, architecture: str, embedding: str, float64: None) -> None:
    model = lively(architecture, length=10, positions=positions, embedding=embedding)
    ids, mask = prompts()
    out = [generate(model, ids, mask, max_new_tokens=6, temperature=0, use_cache=cached) for cached in (True, False)]
    assert torch.equal(*out)
    alone = generate(model, ids[1:2, 3:], max_new_tokens=6, temperature=0)
    assert torch.equal(alone[0, -6:], out[0][1, -6:])


def test_greedy_is_the_argmax_of_the_model_over_its_window(float64: None) -> None:
    model = lively("parallel", length=8, positions="learned")
    text = torch.randint(0, VOCABULARY, (1, 11))  # longer than the model reads
    window = text[:, -8:]
    for _ in range(12):
        token = model(window).logits[:, -1].argmax(dim=-1, keepdim=True)
        text, window = torch.cat((text, token), dim=1), torch.cat((window, token), dim=1)
        window = window if window.shape[1] <= 8 else window[:, -4:]
    assert torch.equal(generate(model, text[:, :11], max_new_tokens=12, temperature=0), text)
    assert len(set(text[0, 11:].tolist())) > 3  # or the model is too dull to test anything


def test_a_longer_answer_begins_with_the_shorter() -> None:
    model = lively("sequential", length=8)
    ids = torch.randint(0, VOCABULARY, (2, 5))
    short, long = (generate(model, ids, max_new_tokens=n, temperature=0) for n in (6, 20))
    assert torch.equal(long[:, :11], short)
    assert torch.equal(generate(model, ids, max_new_tokens=0), ids)


def test_adaptive_solvers_are_decoded_without_a_cache() -> None:
    ids = torch.randint(0, VOCABULARY, (1, 5))
    refined = lively("parallel")
    set_solver(refined, Adaptive())
    for model in (lively("continuous:rtol=1e-2,atol=1e-2"), refined):
        text = ids
        for _ in range(4):
            text = torch.cat((text, model(text).logits[:, -1:].argmax(dim=-1)), dim=1)
        assert torch.equal(generate(model, ids, max_new_tokens=4, temperature=0), text)


class Convolution(Field):
    """A causal convolution: a position sees those before it, in no cache."""

    def __init__(self) -> None:
        super().__init__()
        self.taps = nn.Conv1d(16, 16, 3, groups=16)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.taps(nn.functional.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)


class Tilt(Field):
    """A user's field that moves each position alone."""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return x.roll(1, dims=-1).tanh()


class SaysSo(Tilt):
    cached = True


@pytest.mark.parametrize(("field", "exact"), [(Convolution, False), (Tilt, False), (SaysSo, True)])
def test_a_cache_serves_only_fields_that_say_it_is_exact(field: type[Field], exact: bool, float64: None) -> None:
    model, ids = lively("rk4"), torch.randint(0, VOCABULARY, (2, 5))
    for flow in model.stack.flows:
        flow.field = Sum(*flow.field.terms, Scaled(3.0, PreNorm(nn.LayerNorm(16), field())))
    assert cacheable(model) == exact
    texts = [generate(model, ids, max_new_tokens=12, temperature=0, use_cache=use) for use in (True, False)]
    assert torch.equal(*texts)
    if not exact:
        with pytest.raises(OdeumError, match="decode without a cache, or set cached = True"):
            model(ids, cache=Cache())


def test_a_layer_of_ones_own_is_decoded_without_a_cache() -> None:
    class Reversed(nn.Module):
        duration = 1.0

        def forward(self, x: Tensor, context: Context, t0: float) -> Tensor:
            return x.cumsum(dim=1)

    model = lively("rk4")
    assert cacheable(model)
    model.stack.flows[1] = Reversed()
    assert not cacheable(model)


def test_a_seed_repeats_a_sample_and_another_does_not() -> None:
    model = lively("parallel")
    ids = torch.randint(0, VOCABULARY, (4, 5))

    def draw(seed: int, **words: Any) -> Tensor:
        random = torch.Generator().manual_seed(seed)
        return generate(model, ids, max_new_tokens=12, generator=random, **words)

    cases: list[dict[str, Any]] = [{}, {"top_k": 5}, {"top_p": 0.8}, {"top_k": 6, "top_p": 0.7, "temperature": 1.5}]
    for words in cases:
        assert torch.equal(draw(1, **words), draw(1, **words))
        assert torch.equal(draw(1, **words), draw(1, use_cache=False, **words))
        assert not torch.equal(draw(1, **words), draw(2, **words))
    state = torch.random.get_rng_state()
    draw(1)
    assert torch.equal(state, torch.random.get_rng_state())  # the global stream is left alone


def frequencies(probabilities: list[float], draws: int = 20_000, **words: Any) -> Tensor:
    choice = Choice(generator=torch.Generator().manual_seed(0), **words).check()
    logits = torch.tensor(probabilities).log().expand(draws, -1)
    return torch.bincount(choice.pick(logits), minlength=len(probabilities)) / draws


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_k": 0, "top_p": 1.0}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 99}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 1e-6}, [0, 1, 0, 0]),
        ({"top_k": 3, "top_p": 0.43}, [0, 1, 0, 0]),  # of the three, 4/9 is held by the first alone
        ({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        ({"temperature": 0.5, "top_p": 0.8}, [0, 16 / 25, 0, 9 / 25]),  # the temperature comes first
        ({"temperature": 0.0}, [0, 1, 0, 0]),
        ({"top_k": 1}, [0, 1, 0, 0]),
    ],
)
def test_samples_have_the_right_support_and_frequencies(words: dict, expected: list[float]) -> None:
    found = frequencies([0.1, 0.4, 0.2, 0.3], **words)
    assert [f > 0 for f in found.tolist()] == [e > 0 for e in expected]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), rtol=0, atol=0.015)


def test_top_k_keeps_exactly_k_of_equals() -> None:
    assert int((frequencies([0.25] * 4, top_k=2) > 0).sum()) == 2


def test_a_finished_row_is_filled_up_and_the_last_ends_it_all() -> None:
    model = lively("parallel")
    ids = torch.randint(0, VOCABULARY, (4, 5))
    free = generate(model, ids, max_new_tokens=30, temperature=0)[:, 5:]
    end = int(free[0, 2])
    out = generate(model, ids, max_new_tokens=30, temperature=0, end=end, pad=99)[:, 5:]
    lengths = []
    for row, text in zip(out.tolist(), free.tolist(), strict=True):
        length = text.index(end) + 1 if end in text else 30
        assert row[:length] == text[:length] and set(row[length:]) <= {99}
        lengths.append(length)
    assert out.shape[1] == max(lengths) and min(lengths) <= 3


def test_stream_yields_what_generate_returns_and_leaves_no_trace() -> None:
    model = lively("parallel", dropout=0.5)
    ids, mask = prompts()
    whole = generate(model, ids, mask, max_new_tokens=6, temperature=0)
    model.train()
    tokens = []
    for token in stream(model, ids, mask, max_new_tokens=6, temperature=0):
        assert model.training and not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        tokens.append(token)
    assert torch.equal(torch.stack(tokens, dim=1), whole[:, 9:])
    first = next(iter(stream(model, ids, mask, max_new_tokens=6, temperature=0)))  # and then no more
    assert torch.equal(first, whole[:, 9]) and model.training
    loss = model(whole, labels=whole).loss  # what was generated can be trained on
    loss.backward()


def test_random_feed_forwards_are_folded_while_decoding_and_only_then() -> None:
    model = lively("transevolve:random-1")
    rotations = [part for part in model.modules() if isinstance(part, Rotation)]
    ids = torch.randint(0, VOCABULARY, (1, 4))
    going = stream(model, ids, max_new_tokens=3, temperature=0)
    first = int(next(going))
    assert rotations and not any(part.folding or part.folded for part in rotations), "nothing of the model changes"
    assert all(part.folding for part in evaluating(model).modules() if isinstance(part, Rotation))
    del going
    with torch.no_grad():
        for part in rotations:
            part.singular.normal_(std=20.0)
    expected = int(model(ids).logits[0, -1].argmax())
    assert int(generate(model, ids, max_new_tokens=1, temperature=0)[0, -1]) == expected != first


def test_wrong_words_give_sentences() -> None:
    model = lively("parallel")
    ids, mask = prompts()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"temperature": -1.0}, "temperature must be 0"),
        ({"top_k": -3}, "top_k must be a number of tokens"),
        ({"top_p": 0.0}, "top_p must be a probability"),
        ({"top_p": 1.5}, "top_p must be a probability"),
        ({"max_new_tokens": -1}, "max_new_tokens must be 0 or more"),
        ({"attention_mask": mask.flip(1)}, "pad the prompts on the left"),
        ({"attention_mask": mask[:, 1:]}, r"attention_mask has shape \(3, 8\)"),
        ({"input_ids": ids[0]}, r"input_ids has shape \(9,\)"),
        ({"input_ids": ids[:, :0]}, r"input_ids has shape \(3, 0\)"),
    ]
    for wrong, sentence in cases:
        words: dict[str, Any] = {"input_ids": ids, "max_new_tokens": 2, **wrong}
        with pytest.raises(OdeumError, match=sentence):
            generate(model, **words)


@pytest.mark.parametrize("vocabulary", [5, 127, 128, 300, 8192, 10_000])
def test_the_likeliest_is_what_argmax_says(vocabulary: int) -> None:
    """Also where several are as large, or nothing but NaN or −∞ is there."""
    logits = torch.randint(0, 4, (24, vocabulary)).float()
    logits[3, vocabulary // 2 :] = torch.nan
    logits[4], logits[5], logits[6, -1], logits[7, -1] = -torch.inf, torch.nan, 9.0, torch.nan
    assert torch.equal(likeliest(logits), logits.argmax(dim=-1))
    assert torch.equal(likeliest(logits.T.contiguous().T), logits.argmax(dim=-1))


@pytest.mark.parametrize("vocabulary", [9, 300, 8192, 10_000])
def test_the_largest_are_those_of_topk(vocabulary: int) -> None:
    logits = torch.randn(24, vocabulary)
    logits[1, -3:], logits[2, :-2], logits[3] = 9.0, -torch.inf, -torch.inf
    values, tokens = largest(logits, 8)
    assert torch.equal(values, logits.topk(8).values)
    assert torch.equal(logits.gather(1, tokens), values)
    assert all(len(set(row)) == 8 for row in tokens[:2].tolist())
