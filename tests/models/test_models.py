"""Models at their border: masks, labels, presets, and a sentence for each mistake."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import meeting
from torch import Tensor

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Scaled
from odeum.models import TranslationModel, VisionModel, build
from odeum.models.base import OdeumModel
from odeum.models.settings import PRESETS, Shape
from odeum.registry.names import ARCHITECTURES
from odeum.registry.spelling import parse

SIZE: dict[str, Any] = {"width": 16, "heads": 2, "depth": 2, "hidden": 32}
VOCABULARY = 29


def small(kind: str, architecture: str = "parallel", **changes: Any) -> OdeumModel:
    preset = {
        "language": "language_small",
        "classification": "classification_small",
        "translation": "translation_small",
    }[kind]
    model = build(architecture, preset, **(SIZE | {"vocabulary": VOCABULARY, "length": 12} | changes)).eval()
    assert isinstance(model, OdeumModel)
    return model


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, VOCABULARY, shape)


def padded(ids: Tensor, left: int, right: int) -> tuple[Tensor, Tensor]:
    """Rubbish on both sides, and the mask that hides it."""
    batch = ids.shape[0]
    mask = torch.cat((torch.zeros(batch, left), torch.ones_like(ids), torch.zeros(batch, right)), dim=1)
    return torch.cat((tokens(batch, left), ids, tokens(batch, right)), dim=1), mask.long()


POSITIONS = ["sinusoidal", "learned", "rotary"]


@pytest.mark.parametrize(
    ("positions", "architecture", "sides"),
    meeting(POSITIONS, ["sequential", "rk4", "transevolve"], [(0, 3), (3, 0), (2, 2)]),
)
def test_padding_changes_nothing(positions: str, architecture: str, sides: tuple[int, int], float64: None) -> None:
    left, right = sides
    ids, target = tokens(2, 6), tokens(2, 5)
    wide, mask = padded(ids, left, right)
    inside = slice(left, left + 6)
    language = small("language", architecture, positions=positions)
    for keep in (mask, mask.bool(), mask.double()):
        torch.testing.assert_close(language(wide, keep).logits[:, inside], language(ids).logits)
    for pooling in ("mean", "token"):
        classifier = small("classification", architecture, positions=positions, pooling=pooling)
        torch.testing.assert_close(classifier(wide, mask).logits, classifier(ids).logits)
    translation = small("translation", architecture, positions=positions)
    found, expected = translation(wide, mask, target), translation(ids, None, target)
    torch.testing.assert_close(found.logits, expected.logits)


def test_rows_of_different_length_are_as_if_alone(float64: None) -> None:
    ids = tokens(3, 7)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [0] * 5 + [1] * 2])
    model = small("language")
    together = model(ids, mask).logits
    for row in range(3):
        keep = mask[row].bool()
        torch.testing.assert_close(together[row, keep], model(ids[row : row + 1, keep]).logits[0])


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_build(preset: str) -> None:
    with torch.device("meta"):
        for architecture in ("sequential", "parallel"):
            model = build(architecture, preset)
            assert isinstance(model, OdeumModel)
            assert model.settings == PRESETS[preset] and model.architecture == parse(architecture)


def test_build_takes_words_settings_and_shapes() -> None:
    model = build("rk4", PRESETS["vit_8"], classes=7)
    assert isinstance(model, VisionModel) and model(torch.randn(2, 1, 8, 8)).logits.shape == (2, 7)
    stack = build(parse("macaron"), Shape(**SIZE, norm_kind="rms", activation="swiglu"))
    assert stack(torch.randn(2, 3, 16)).shape == (2, 3, 16)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "parallel:independent=1", "transevolve:random-2"])
def test_every_architecture_translates_causally(architecture: str, float64: None) -> None:
    """The gradient reaches every weight; a target position depends on the source and on no later target."""
    model = small("translation", architecture)
    ids, target, labels = tokens(2, 6), tokens(2, 5), tokens(2, 5)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    out = model(ids, mask, target, labels=labels)
    assert out.logits.shape == (2, 5, VOCABULARY)
    out.loss.backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    later = target.clone()
    later[:, 3:] = (later[:, 3:] + 1) % VOCABULARY
    tolerance = 1e-2 if architecture == "continuous" else 1e-10  # there, steps are chosen for all positions at once
    torch.testing.assert_close(model(ids, mask, later).logits[:, :3], out.logits[:, :3], rtol=0, atol=tolerance)
    other = ids.clone()
    other[:, 0] = (other[:, 0] + 1) % VOCABULARY
    assert (model(other, mask, target).logits - out.logits).abs().amax(dim=-1).min() > 1e-6
    hidden = ids.clone()
    hidden[1, 4:] = (hidden[1, 4:] + 1) % VOCABULARY
    torch.testing.assert_close(model(hidden, mask, target).logits, out.logits, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("encoder", "decoder"), [("parallel", "sequential"), ("rk4", "transevolve"), ("transevolve", "macaron")]
)
def test_encoder_and_decoder_may_differ(encoder: str, decoder: str, float64: None) -> None:
    model = small("translation", encoder, decoder=decoder, decoder_depth=4)
    assert isinstance(model, TranslationModel)
    ids, target = tokens(2, 6), tokens(2, 5)
    whole = model(ids, None, target).logits
    memory, caches = model.encode(ids), (Cache(), Cache())
    steps = [model.decode(target[:, i : i + 1], memory, caches=caches) for i in range(5)]
    torch.testing.assert_close(model.embedding.logits(torch.cat(steps, dim=1)), whole)
    assert model.settings.decoder == decoder


@pytest.mark.parametrize("architecture", ["sequential", "parallel", "rk4", "transevolve"])
def test_every_kind_learns_within_a_few_steps(architecture: str) -> None:
    for kind in ("language", "classification", "translation"):
        model = small(kind, architecture).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        batch: dict[str, Tensor] = {"input_ids": tokens(4, 6)}
        if kind == "translation":
            batch["decoder_input_ids"] = tokens(4, 5)
        shape = {"language": (4, 6), "classification": (4,), "translation": (4, 5)}[kind]
        batch["labels"] = torch.randint(0, 2 if kind == "classification" else VOCABULARY, shape)
        losses = []
        for _ in range(12):
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.7 * losses[0], (kind, losses)


def test_wrong_inputs_give_sentences() -> None:
    language, classifier, translation = small("language"), small("classification"), small("translation")
    learned = small("language", positions="learned")
    vision = build("parallel", "vit_8")
    ids, outside = tokens(2, 5), torch.tensor([[1, VOCABULARY]])
    long, short_mask = tokens(1, 13), torch.ones(2, 4)
    cache = Cache()
    learned(long[:, :12], cache=cache)
    cases: list[tuple[Any, str]] = [
        (lambda: language(ids, short_mask), r"attention_mask has shape \(2, 4\), but must be \(2, 5\)"),
        (lambda: classifier(ids, short_mask), r"attention_mask has shape \(2, 4\), but must be \(2, 5\)"),
        (lambda: translation(ids, short_mask, ids), r"attention_mask has shape \(2, 4\), but must be \(2, 5\)"),
        (lambda: translation(ids), "needs decoder_input_ids"),
        (lambda: language(ids[:, :0]), r"input_ids has shape \(2, 0\), but must be \[batch, length\]"),
        (lambda: classifier(ids[0]), r"input_ids has shape \(5,\), but must be \[batch, length\]"),
        (lambda: translation(ids, None, ids[0]), r"decoder_input_ids has shape \(5,\), but must be"),
        (lambda: language(ids[:1], labels=ids), r"labels have shape \(2, 5\), but must have shape \(1, 5\)"),
        (lambda: language(ids[:, 1:], labels=ids), r"labels have shape \(2, 5\), but must have shape \(2, 4\)"),
        (lambda: small("language", embedding="adaptive")(ids, labels=ids.T), r"labels have shape \(5, 2\)"),
        (lambda: classifier(ids, labels=torch.tensor([0])), r"labels have shape \(1,\), but must have shape"),
        (lambda: language(outside), r"the token 29 is not in the vocabulary \(0 to 28\)"),
        (lambda: classifier(-outside), "the token -29 is not in the vocabulary"),
        (lambda: translation(outside, None, ids[:1]), "the token 29 is not in the vocabulary"),
        (lambda: small("language", embedding="adaptive")(outside), "the token 29 is not in the vocabulary"),
        (lambda: language(ids, labels=ids + VOCABULARY), r"the label \d+ is not one of the 29 classes"),
        (lambda: language(ids, labels=torch.full_like(ids, -1)), "the label -1 is not one of the 29 classes"),
        (lambda: small("language", embedding="adaptive")(ids, labels=ids - 100), "the label -"),
        (lambda: classifier(ids, labels=torch.tensor([0, 2])), "the label 2 is not one of the 2 classes"),
        (lambda: vision(torch.randn(1, 1, 8, 8), torch.tensor([10])), "the label 10 is not one of the 10 classes"),
        (lambda: vision(torch.randn(1, 1, 9, 9)), r"images of shape \(1, 1, 9, 9\) do not fit"),
        (lambda: learned(long), "13 tokens, but the model has 12 learned positions"),
        (lambda: learned(long[:, 12:], cache=cache), "13 tokens, but the model has 12 learned positions"),
        (lambda: build("parallel", "langage_small"), "did you mean 'language_small'"),
        (lambda: build("paralel", "vit_8"), "did you mean 'parallel'"),
        (lambda: build("parallel", "vit_8", clases=3), "did you mean 'classes'"),
        (lambda: build("parallel", "vit_8", heads=5), "heads=5 must divide width=64; use 4 or 8"),
        (lambda: build("parallel", "vit_8", patch_size=3), r"patch_size \(3\) must divide image_size \(8\)"),
        (lambda: build("parallel", "vit_8", dropout=1.0), "dropout must be a number from 0 to below 1"),
        (lambda: build("parallel:independent=3", "vit_8"), "independent=3 does not divide the depth of 2"),
        (lambda: build("parallel:norm=post", "vit_8"), "would drop the norm"),
        (lambda: build("continuous", "vit_8", dropout=0.1), "adaptive solver needs a field without randomness"),
        (
            lambda: small("language", embedding="adaptive", cutoffs=(9, 4)),
            "must be increasing and below the vocabulary",
        ),
        (lambda: small("language", embedding="tide"), "unknown embedding 'tide'"),
        (lambda: small("language", positions="absolute"), "unknown positions 'absolute'"),
        (lambda: build("parallel", "vit_8", pooling="cls"), "unknown pooling 'cls'"),
        (lambda: build("parallel", "vit_8", classes="10"), "classes must be a positive integer, got '10'"),
        (lambda: build("parallel", "vit_8", bias="false"), "bias must be true or false, got 'false'"),
        (lambda: build("parallel", "vit_8", norm_eps=-1.0), "norm_eps must be a non-negative number, got -1.0"),
        (lambda: build("macaron", "vit_8", hidden=1), "hidden must be at least 2"),
        (lambda: build("parallel", "vit_32", width=1, heads=1), "the width must be at least 2, not 1"),
        (lambda: small("language", cutoffs=10), "cutoffs must be a tuple of integers, got 10"),
        (lambda: small("language", embedding="adaptive", vocabulary=3), "a vocabulary of at least 4, not 3"),
        (lambda: small("language", positions="rotary", width=4, heads=4), "rotary positions rotate pairs of features"),
        (lambda: small("language", "continuous")(ids, cache=Cache()), "cannot decode with a cache"),
    ]
    for call, sentence in cases:
        with pytest.raises(OdeumError, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("placement", ["pre", "peri", "branch"])
def test_macaron_halves_its_feed_forwards_under_every_norm(placement: str) -> None:
    """A norm outside the factor would undo it."""
    torch.manual_seed(0)
    model, x = stack(f"macaron:norm={placement}", Shape(16, 2, 1)), torch.randn(1, 4, 16)
    half = model(x)
    for module in model.modules():
        if isinstance(module, Scaled):
            module.factor = 1.0
    assert (model(x) - half).abs().max() > 0.05


@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_a_continuous_model_of_nothing_is_nothing(gradient: str) -> None:
    x = torch.randn(0, 4, 16, requires_grad=True)
    out = stack(f"continuous:gradient={gradient}", Shape(16, 2, 2))(x)
    assert out.shape == x.shape
    out.sum().backward()
