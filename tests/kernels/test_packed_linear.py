"""Linear maps with packed weights: torch's numbers, and the same texts."""

from __future__ import annotations

import copy

import pytest
import torch
from onednn import BY_ONEDNN
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from odeum.decode import beam_search, generate
from odeum.decode.packed import PackedMaps, output_map
from odeum.kernels import matmul, packed_linear
from odeum.kernels.packed_linear import PackedLinear, reference, worth_packing
from odeum.models import build
from odeum.models.embedding import OutputMatrix, TiedEmbedding

pytestmark = [*BY_ONEDNN, pytest.mark.usefixtures("small_products")]
SIZES = {"vocabulary": 40, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 64}


@pytest.fixture
def small_products(onednn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No matrix is too small; products that are not packed are torch's own."""
    monkeypatch.setattr(packed_linear, "MIN_WEIGHTS", 1)
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    "bias", [None, torch.arange(20.0)[::2], torch.tensor([2.0]).expand(10)], ids=["none", "strided", "expanded"]
)
@torch.inference_mode()
def test_values(bias: Tensor | None) -> None:
    weight = nn.Parameter(torch.randn(10, 6))
    packed = PackedLinear(weight, bias)
    for rows in (1, 4, 33, 5):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(packed(x), reference(x, weight, bias), rtol=1e-5, atol=1e-5)
        assert (packed.packed is not None) == (rows >= packed_linear.MIN_ROWS or packed.packed is not None)
    assert packed.packed is not None


def test_gradients_other_precisions_and_transforms_are_plain() -> None:
    weight, x = nn.Parameter(torch.randn(10, 6)), torch.randn(8, 6)
    packed = PackedLinear(weight, None)
    packed(x).sum().backward()
    assert weight.grad is not None
    with torch.no_grad():
        assert packed(x.bfloat16().float()).dtype == torch.float32
        packed.packed = None
        torch.func.vmap(lambda row: packed(row.expand(8, 6)))(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert packed(x).dtype == torch.bfloat16
    assert packed.packed is None


def test_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.randn(10, 6))
    assert worth_packing(weight, 16) and not worth_packing(weight, 15)
    assert not worth_packing(weight.detach(), 16) and not worth_packing(nn.Parameter(weight.double()), 16)
    with monkeypatch.context() as patched:
        patched.setattr(packed_linear, "MIN_WEIGHTS", 61)
        assert not worth_packing(weight, 16)
    with FlopCounterMode(display=False):
        assert not worth_packing(weight, 16)
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: False)
    part = TiedEmbedding(8200, 64)
    assert not worth_packing(weight, 16) and output_map(part, part.logits, 48) == part.logits


@torch.inference_mode()
@pytest.mark.parametrize("tied", [True, False])
def test_output_matrices(tied: bool) -> None:
    part = TiedEmbedding(8200, 64) if tied else OutputMatrix(64, 8200)
    plain = part.logits if isinstance(part, TiedEmbedding) else part
    packed = output_map(part, plain, 48)
    assert isinstance(packed, PackedLinear)
    for rows in (1, 5, 32, 7):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(packed(x), plain(x), rtol=1e-5, atol=1e-5)
        assert rows > 1 or torch.equal(packed(x), plain(x))
    half = part.to(torch.bfloat16)
    assert output_map(half, plain, 48) is plain and output_map(nn.Linear(64, 8200), plain, 48) is plain


@pytest.mark.parametrize(
    "architecture", ["parallel", "rk4:independent=1", "transevolve", "transevolve:random-1", "momentum"]
)
def test_texts(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[nn.Module] = []
    make = PackedMaps.__call__

    def noted(self: PackedMaps, module: nn.Module) -> object:
        result = make(self, module)
        packed.extend([module] if isinstance(result, PackedLinear) else [])
        return result

    monkeypatch.setattr(PackedMaps, "__call__", noted)
    model = build(architecture, "language_small", **SIZES).eval()
    ids = torch.randint(0, 40, (5, 3))
    text = generate(model, ids, max_new_tokens=20, temperature=0)  # ty: ignore[invalid-argument-type]
    assert packed
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: False)
    packed.clear()
    assert torch.equal(text, generate(model, ids, max_new_tokens=20, temperature=0))  # ty: ignore[invalid-argument-type]
    assert not packed


def test_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("post-norm", "translation_small", **SIZES).eval()
    sources = torch.randint(3, 40, (3, 18))
    answers = beam_search(model, sources, beam=3, max_length=12)  # ty: ignore[invalid-argument-type]
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: False)
    assert answers == beam_search(model, sources, beam=3, max_length=12)  # ty: ignore[invalid-argument-type]


def test_weights_that_were_trained_between_two_texts() -> None:
    """A packed copy lives no longer than the call."""
    model = build("parallel", "language_small", **SIZES).eval()
    ids = torch.randint(0, 40, (5, 3))
    generate(model, ids, max_new_tokens=20, temperature=0)  # ty: ignore[invalid-argument-type]
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    again, fresh = (
        generate(m, ids, max_new_tokens=20, temperature=0)  # ty: ignore[invalid-argument-type]
        for m in (model, copy.deepcopy(model))
    )
    assert torch.equal(again, fresh)
