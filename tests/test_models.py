"""Models at their border: masks, labels, losses, presets, and a sentence for each mistake."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Scaled
from odeum.kinds import MODELS
from odeum.models import TranslationModel, VisionModel, build
from odeum.models.base import OdeumModel
from odeum.models.embedding import AdaptiveEmbedding, TiedEmbedding
from odeum.settings.architecture import ARCHITECTURES
from odeum.settings.model import Shape
from odeum.settings.spelling import parse

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


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("architecture", ["sequential", "rk4", "transevolve"])
@pytest.mark.parametrize(("left", "right"), [(0, 3), (3, 0), (2, 2)])
def test_padding_changes_nothing(positions: str, architecture: str, left: int, right: int, float64: None) -> None:
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


def smoothed(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=smoothing)


@pytest.mark.parametrize("embedding", ["tied", "adaptive"])
def test_the_loss_is_the_cross_entropy_of_the_logits(embedding: str, float64: None) -> None:
    model = small("language", embedding=embedding)
    ids, labels = tokens(3, 7), tokens(3, 7)
    labels[0, :3] = labels[2] = -100
    out = model(ids, labels=labels)
    torch.testing.assert_close(out.loss, smoothed(out.logits, labels), check_dtype=False, rtol=1e-6, atol=1e-6)
    only = model(ids, labels=labels, only_loss=True)
    assert only.logits is None and torch.equal(only.loss, out.loss)
    changed = labels.masked_fill(labels == -100, 5)
    assert not torch.isclose(model(ids, labels=changed).loss, out.loss)
    assert model(ids, labels=torch.full_like(ids, -100)).loss == 0.0


def test_labels_are_the_next_tokens_and_not_shifted_inside(float64: None) -> None:
    model = small("language")
    ids = tokens(1, 8)
    loss = model(ids[:, :-1], labels=ids[:, 1:]).loss
    log_p = model(ids).logits.log_softmax(dim=-1)
    expected = -torch.stack([log_p[0, i, ids[0, i + 1]] for i in range(7)]).mean()
    torch.testing.assert_close(loss, expected, check_dtype=False, rtol=1e-6, atol=1e-6)


def test_smoothing_is_for_training_alone(float64: None) -> None:
    labels = tokens(2, 6)
    labels[0, 0] = -100
    calls: list[tuple[OdeumModel, tuple[Any, ...]]] = [
        (small("language"), (tokens(2, 6), None)),
        (small("translation"), (tokens(2, 4), None, tokens(2, 6))),
    ]
    for model, inputs in calls:
        model.label_smoothing = 0.1
        for training, smoothing in ((True, 0.1), (False, 0.0)):
            model.train(training)
            out = model(*inputs, labels=labels)
            expected = smoothed(out.logits, labels, smoothing)
            torch.testing.assert_close(out.loss, expected, check_dtype=False, rtol=1e-6, atol=1e-6)
    classifier = small("classification").train()
    classifier.label_smoothing = 0.1
    out = classifier(tokens(4, 5), labels=torch.tensor([0, 1, 1, 0]))
    torch.testing.assert_close(out.loss, smoothed(out.logits, torch.tensor([0, 1, 1, 0]), 0.1), check_dtype=False)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_the_chunked_loss_has_the_gradient_of_the_whole(chunk: int, smoothing: float) -> None:
    embedding = TiedEmbedding(11, 6)
    x = torch.randn(2, 5, 6, requires_grad=True)
    labels = torch.randint(0, 11, (2, 5))
    labels[1, 2:4] = -100
    inputs = [x, embedding.weight]
    plain = smoothed(embedding.logits(x), labels, smoothing)
    chunked = embedding.loss(x, labels, smoothing, chunk)
    torch.testing.assert_close(chunked, plain)
    for a, b in zip(torch.autograd.grad(3 * chunked, inputs), torch.autograd.grad(3 * plain, inputs), strict=True):
        torch.testing.assert_close(a, b)


def test_the_chunked_loss_spares_gradients_that_nobody_wants() -> None:
    embedding, labels = TiedEmbedding(11, 6), torch.randint(0, 11, (5,))
    embedding.weight.requires_grad_(False)
    x = torch.randn(5, 6, requires_grad=True)
    embedding.loss(x, labels).backward()
    assert x.grad is not None and embedding.weight.grad is None
    with torch.no_grad():
        torch.testing.assert_close(embedding.loss(x, labels), smoothed(embedding.logits(x), labels))


def test_adaptive_embedding_is_a_distribution_with_the_right_gradient(float64: None) -> None:
    embedding = AdaptiveEmbedding(20, 16, (4, 9))
    x = torch.randn(7, 16, requires_grad=True)
    log_p = embedding.logits(x)
    torch.testing.assert_close(log_p.exp().sum(dim=-1), torch.ones(7), check_dtype=False, rtol=1e-5, atol=1e-5)
    labels = torch.tensor([0, 3, 4, 8, 9, 19, -100])  # both ends of each band
    plain, banded = smoothed(log_p, labels), embedding.loss(x, labels)
    inputs = [x, *embedding.tables, *embedding.projections, embedding.classes.weight]
    for a, b in zip(torch.autograd.grad(plain, inputs), torch.autograd.grad(banded, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    ids = torch.tensor([[0, 3, 4], [8, 9, 19]])
    rows = embedding(ids)
    for band, (token, low) in enumerate([(3, 0), (8, 4), (19, 9)]):
        expected = embedding.tables[band][token - low] @ embedding.projections[band] * 4.0
        torch.testing.assert_close(rows[ids == token][0], expected)


@pytest.mark.parametrize("preset", MODELS)
def test_presets_build(preset: str) -> None:
    with torch.device("meta"):
        for architecture in ("sequential", "parallel"):
            model = build(architecture, preset)
            assert isinstance(model, OdeumModel)
            assert model.settings == MODELS[preset] and model.architecture == parse(architecture)


def test_build_takes_words_settings_and_shapes() -> None:
    model = build("rk4", MODELS["vit_8"], classes=7)
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


def test_soft_labels_from_mixup() -> None:
    model = build("parallel", "vit_8")
    images, hard = torch.randn(3, 1, 8, 8), torch.tensor([1, 9, 4])
    soft = nn.functional.one_hot(hard, 10).float()
    torch.testing.assert_close(model(images, soft).loss, model(images, hard).loss)


def test_wrong_inputs_give_sentences() -> None:
    language, classifier, translation = small("language"), small("classification"), small("translation")
    learned = small("language", positions="learned")
    vision = build("parallel", "vit_8")
    ids, outside = tokens(2, 5), torch.tensor([[1, VOCABULARY]])
    long, short_mask = tokens(1, 13), torch.ones(2, 4)
    cache = Cache()
    learned(long[:, :12], cache=cache)
    cases: list[tuple[Any, str]] = [
        (lambda: language(ids, short_mask), r"attention_mask has shape \(2, 4\), but should be \(2, 5\)"),
        (lambda: classifier(ids, short_mask), r"attention_mask has shape \(2, 4\), but should be \(2, 5\)"),
        (lambda: translation(ids, short_mask, ids), r"attention_mask has shape \(2, 4\), but should be \(2, 5\)"),
        (lambda: translation(ids), "needs decoder_input_ids"),
        (lambda: language(ids[:, :0]), r"input_ids has shape \(2, 0\), but should be \[batch, length\]"),
        (lambda: classifier(ids[0]), r"input_ids has shape \(5,\), but should be \[batch, length\]"),
        (lambda: translation(ids, None, ids[0]), r"decoder_input_ids has shape \(5,\), but should be"),
        (lambda: language(ids[:1], labels=ids), r"labels have shape \(2, 5\), but what they label needs \(1, 5\)"),
        (lambda: language(ids[:, 1:], labels=ids), r"labels have shape \(2, 5\), but what they label needs \(2, 4\)"),
        (lambda: small("language", embedding="adaptive")(ids, labels=ids.T), r"labels have shape \(5, 2\)"),
        (lambda: classifier(ids, labels=torch.tensor([0])), r"labels have shape \(1,\), but what they label needs"),
        (lambda: language(outside), "the token 29 is not in the vocabulary, which has 0 to 28"),
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
        (lambda: build("parallel", "vit_8", heads=5), r"heads \(5\) must divide the width \(64\)"),
        (lambda: build("parallel", "vit_8", patch_size=3), r"patch_size \(3\) must divide image_size \(8\)"),
        (lambda: build("parallel", "vit_8", dropout=1.0), "dropout is a probability"),
        (lambda: build("parallel:independent=3", "vit_8"), "independent=3 does not divide the depth of 2"),
        (lambda: build("parallel:norm=post", "vit_8"), "would drop the norm"),
        (lambda: build("continuous", "vit_8", dropout=0.1), "adaptive solver needs a field without randomness"),
        (lambda: small("language", embedding="adaptive", cutoffs=(9, 4)), "must rise and stay below the vocabulary"),
        (lambda: small("language", embedding="tide"), "unknown embedding 'tide'"),
        (lambda: small("language", positions="absolute"), "unknown positions 'absolute'"),
        (lambda: build("parallel", "vit_8", pooling="cls"), "unknown pooling 'cls'"),
        (lambda: build("parallel", "vit_8", classes="10"), "classes should be a whole number, not '10'"),
        (lambda: build("parallel", "vit_8", bias="false"), "bias should be True or False, not 'false'"),
        (lambda: build("parallel", "vit_8", norm_eps=-1.0), "norm_eps must be zero or more, not -1.0"),
        (lambda: build("macaron", "vit_8", hidden=1), "hidden must be at least 2"),
        (lambda: build("parallel", "vit_32", width=1, heads=1), "the width must be at least 2, not 1"),
        (lambda: small("language", cutoffs=10), "cutoffs should be a tuple of whole numbers, not 10"),
        (lambda: small("language", embedding="adaptive", vocabulary=3), "a vocabulary of at least 4, not 3"),
        (lambda: small("language", positions="rotary", width=4, heads=4), "rotary positions turn pairs of features"),
        (lambda: small("language", "continuous")(ids, cache=Cache()), "cannot decode with a cache"),
    ]
    for call, sentence in cases:
        with pytest.raises(OdeumError, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_smoothing_of_the_adaptive_softmax_is_refused() -> None:
    model = small("language", embedding="adaptive").train()
    model.label_smoothing = 0.1
    with pytest.raises(OdeumError, match="label smoothing is not defined for the adaptive softmax"):
        model(tokens(1, 3), labels=tokens(1, 3))


@pytest.mark.parametrize("embedding", ["tied", "adaptive"])
def test_the_loss_of_a_double_model_is_double(embedding: str) -> None:
    model, ids = small("language", embedding=embedding).double(), tokens(2, 5)
    output = model(ids, labels=ids)
    assert output.loss.dtype == torch.float64
    right = nn.functional.cross_entropy(output.logits.flatten(0, 1), ids.flatten())
    torch.testing.assert_close(output.loss, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_in_low_precision_is_scaled_before_it_is_rounded(dtype: torch.dtype, smoothing: float) -> None:
    """A gradient scaler multiplies the loss; each of 4,000 tokens' shares is nothing in half precision before that."""
    embedding, x = TiedEmbedding(300, 8).to(dtype), (0.1 * torch.randn(4000, 8)).to(dtype).requires_grad_()
    labels = tokens(4000) % 20  # most of the vocabulary is rare: its gradient is made of small probabilities alone
    scale = 65536.0
    (scale * embedding.loss(x, labels, smoothing)).backward()
    right_x, right_weight = (y.detach().float().requires_grad_() for y in (x, embedding.weight))
    logits = nn.functional.linear(right_x, right_weight)
    (scale * nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)).backward()
    close = {"rtol": 2e-2 if dtype == torch.bfloat16 else 4e-3, "atol": 1e-3}
    assert x.grad is not None and embedding.weight.grad is not None
    torch.testing.assert_close(x.grad.float(), right_x.grad, **close)
    torch.testing.assert_close(embedding.weight.grad.float(), right_weight.grad, **close)


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
