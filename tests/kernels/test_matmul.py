"""The rule for the library that multiplies, and models under it: the same numbers by oneDNN as by torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from closeness import close
from onednn import BY_ONEDNN, by_torch
from torch import Tensor

from odeum.fields import Context
from odeum.fields.attention import CrossAttention, SelfAttention
from odeum.fields.base import Source
from odeum.fields.feedforward import FeedForward
from odeum.kernels import matmul
from odeum.kernels.cross_entropy import cross_entropy
from odeum.models import build
from odeum.models.description import describe


@pytest.mark.parametrize(
    "processor, faster",
    [
        ({"avx512_f": True, "cpu_name": "AMD EPYC 9654 96-Core Processor"}, True),
        ({"avx512_f": False, "cpu_name": "AMD EPYC 7763 64-Core Processor"}, False),
        ({"avx512_f": True, "cpu_name": "Intel(R) Xeon(R) Platinum 8481C"}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_the_processor_decides(processor: dict, faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    possible = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    assert matmul.onednn_is_faster.__wrapped__() is (faster and possible)


@pytest.mark.parametrize("precise", [True, False])
def test_the_setting_stays_on_where_precision_is_kept(precise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(matmul, "full_precision", lambda: precise)
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        monkeypatch.setenv(name, "8")
    assert matmul.use_onednn() is precise
    assert torch.get_float32_matmul_precision() == ("medium" if precise else "highest")  # other libraries may ask
    assert matmul.backend_name() == ("oneDNN" if precise else "torch")
    with matmul.by_mkl():
        assert not matmul.by_onednn() and matmul.backend_name() == "torch"
    assert matmul.by_onednn() is precise


def test_no_setting_where_it_is_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: False)
    assert not matmul.use_onednn() and torch.get_float32_matmul_precision() == "highest"


def test_rounded_products_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with AMX: factors rounded to bfloat16, sums in float32."""
    multiply = Tensor.__matmul__

    def rounded(a: Tensor, b: Tensor) -> Tensor:
        return multiply(a, b) if a.dtype == torch.float64 else multiply(a.bfloat16().float(), b.bfloat16().float())

    assert matmul.full_precision.__wrapped__()  # by torch itself
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "__matmul__", rounded)
        assert not matmul.full_precision.__wrapped__()


def test_a_users_own_setting_stays() -> None:
    code = """
import torch
from odeum.kernels import matmul
matmul.onednn_is_faster = matmul.full_precision = lambda: True
torch.backends.mkldnn.matmul.fp32_precision = "tf32"
assert not matmul.use_onednn() and torch.backends.mkldnn.matmul.fp32_precision == "tf32"
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
assert matmul.use_onednn() and matmul.backend_name() == "oneDNN"
torch.backends.mkldnn.enabled = False
assert not matmul.use_onednn() and matmul.backend_name() == "torch"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("field", [SelfAttention(32, 2), CrossAttention(32, 2), FeedForward(32, activation="relu")])
def test_fields_by_oneDNN_and_by_torch(field: torch.nn.Module) -> None:
    x, memory = torch.randn(4, 20, 32, requires_grad=True), torch.randn(4, 17, 32, requires_grad=True)
    inputs = [x, *field.parameters(), *([memory] if isinstance(field, CrossAttention) else [])]

    def compute() -> list[Tensor]:
        out = field(0.0, x, Context(other=Source(memory=memory)))
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    for ours, right in zip(compute(), by_torch(compute), strict=True):
        close(ours, right, 1e-4)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_by_oneDNN_and_by_torch(smoothing: float) -> None:
    x, weight = torch.randn(40, 32, requires_grad=True), torch.randn(300, 32, requires_grad=True)
    labels = torch.randint(0, 300, (40,))
    labels[3] = -100

    def compute() -> list[Tensor]:
        loss = cross_entropy(x, weight, labels, smoothing, chunk=16)
        return [loss, *torch.autograd.grad(loss, [x, weight])]

    for ours, right in zip(compute(), by_torch(compute), strict=True):
        close(ours, right, 1e-5)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("architecture", ["sequential", "transevolve"])
def test_models_are_counted_the_same(architecture: str) -> None:
    """Attention takes another way, with the same multiply–adds."""
    settings = build(architecture, "language_small", vocabulary=50, width=32, heads=2, depth=2, hidden=64, length=24)
    count = lambda: describe(settings.architecture, settings.settings, detail=False)["macs"]  # noqa: E731
    assert count() == by_torch(count)


pytestmark = BY_ONEDNN[:1]
