"""Losses of models: the cross-entropy of their logits, in parts, smoothed, of rare words and in low precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_models import small, tokens
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.kernels.cross_entropy import cross_entropy
from odeum.models import build
from odeum.models.base import OdeumModel
from odeum.models.embedding import AdaptiveEmbedding, TiedEmbedding
from odeum.models.pretrained import EmbeddingSettings, Pretrained
from odeum.models.settings import MODEL_KINDS, Classification, Language, MaskedLanguage, Model, Translation, Vision


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


def test_soft_labels_from_mixup() -> None:
    model = build("parallel", "vit_8")
    images, hard = torch.randn(3, 1, 8, 8), torch.tensor([1, 9, 4])
    soft = nn.functional.one_hot(hard, 10).float()
    torch.testing.assert_close(model(images, soft).loss, model(images, hard).loss)


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


@pytest.mark.parametrize("chunk", [None, 5])
def test_in_half_precision_the_gradients_are_kept_in_single(chunk: int | None) -> None:
    x, weight = torch.randn(12, 8, requires_grad=True), torch.randn(50, 8, requires_grad=True)
    labels = torch.randint(0, 50, (12,))
    exactly = torch.autograd.grad(cross_entropy(x, weight, labels), [x, weight])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        roughly = torch.autograd.grad(cross_entropy(x, weight, labels, 0.1, chunk), [x, weight])
    for rough, right in zip(roughly, exactly, strict=True):
        assert rough.dtype == torch.float32
        assert float((rough - right).norm() / right.norm()) < 0.2


def trained(kind: str, architecture: str) -> tuple[OdeumModel, dict[str, Tensor]]:
    """A model and a batch with labels."""
    model, ids = small(kind, architecture).train(), tokens(3, 7)
    labels = torch.randint(0, 2, (3,)) if kind == "classification" else tokens(3, 7)
    batch = {"input_ids": ids, "labels": labels} | (
        {"decoder_input_ids": tokens(3, 7)} if kind == "translation" else {}
    )
    return model, batch


@pytest.mark.parametrize("architecture", ["parallel", "transevolve"])
@pytest.mark.parametrize("kind", ["language", "classification", "translation"])
def test_a_training_step_in_half_precision(kind: str, architecture: str) -> None:
    model, batch = trained(kind, architecture)
    exactly = float(model(**batch).loss)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    assert abs(float(loss) - exactly) < 0.05 * exactly
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("architecture", ["parallel", "transevolve"])
@pytest.mark.parametrize("kind", ["language", "classification", "translation"])
def test_a_loss_compiles_into_one_graph(kind: str, architecture: str) -> None:
    model, batch = trained(kind, architecture)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**batch).loss, model(**batch).loss, rtol=1e-5, atol=1e-5)


TINY: dict[str, Any] = {"width": 16, "heads": 2, "depth": 1, "hidden": 24}
TEXT: dict[str, Any] = {**TINY, "vocabulary": 23, "length": 9}
WITH_LABELS: dict[str, Model] = {
    "vision": Vision(**TINY, image_size=8, patch_size=4, channels=1, classes=3),
    "classification": Classification(**TEXT),
    "classification, pretrained": Classification(**TEXT, pretrained=Pretrained()),
    "language": Language(**TEXT),
    "language, adaptive": Language(**TEXT, embedding="adaptive"),
    "language, untied": Language(**TEXT, pretrained=Pretrained(embedding=EmbeddingSettings(tied=False, bias=True))),
    "masked": MaskedLanguage(**TEXT),
    "translation": Translation(**TEXT),
}


def test_every_kind_of_model_with_class_labels_is_below() -> None:
    kinds = {kind.settings for kind in MODEL_KINDS.values() if kind.name not in ("regression", "image-regression")}
    assert {type(settings) for settings in WITH_LABELS.values()} == kinds


@pytest.mark.parametrize("wrapped", [False, True], ids=["odeum", "transformers"])
@pytest.mark.parametrize("name", WITH_LABELS)
def test_no_label_is_no_loss(name: str, wrapped: bool) -> None:
    """A batch whose labels are all ignored has loss 0 and zero gradients, beside others in a step too."""
    model: Any = build("parallel", WITH_LABELS[name]).train()
    model.label_smoothing = 0.0 if name == "language, adaptive" else 0.1
    inputs = model.example("cpu", batch=2)
    length = () if name.startswith(("vision", "classification")) else (9,)
    more: list[dict[str, Any]] = [{}]
    if wrapped:
        hf = pytest.importorskip("odeum.hf")
        model = hf.configuration.class_of(type(WITH_LABELS[name]).__name__).wrap(model)
        inputs = {"pixel_values" if key == "images" else key: value for key, value in inputs.items()}
        more += [{"num_items_in_batch": 7}]
    for given in more:
        model.zero_grad()
        loss = model(**inputs, labels=torch.full((2, *length), -100), **given).loss
        assert loss == 0.0
        loss.backward()
        assert not any(bool(p.grad.any()) for p in model.parameters() if p.grad is not None)  # NaN is not zero
