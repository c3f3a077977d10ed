"""Products by oneDNN: the same numbers as torch's own, wherever they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from closeness import close
from onednn import EVERYWHERE, without
from torch import Tensor, nn

from odeum.decode.ordered import OrderedMaps
from odeum.fields import Context
from odeum.fields.attention import CrossAttention, SelfAttention
from odeum.fields.base import Source
from odeum.fields.feedforward import FeedForward
from odeum.kernels import exponential, matmul
from odeum.kernels.cross_entropy import cross_entropy
from odeum.kernels.linear import linear, linear_map
from odeum.kernels.matmul import OneDnnBackend, TorchBackend, matmul_backend, transposed_times

pytestmark = EVERYWHERE


def layouts(rows: int, columns: int) -> Iterator[Tensor]:
    """A matrix in every order in which it may lie."""
    yield torch.randn(rows, columns)
    yield torch.randn(columns, rows).T
    yield torch.randn(rows, columns + 3)[:, :columns]
    yield torch.randn(2 * rows, columns)[::2]
    yield torch.randn(rows, 1).expand(rows, columns)
    yield torch.randn(rows, columns).flip(0)


@pytest.mark.parametrize("m, k, n", [(5, 7, 3), (1, 16, 9), (33, 1, 17), (16, 64, 1)])
def test_products_of_matrices_that_lie_anyhow(m: int, k: int, n: int) -> None:
    for a, b in product(layouts(m, k), layouts(k, n)):
        close(OneDnnBackend.times(a, b), a @ b, 1e-5)
        close(OneDnnBackend.linear(a, b.T, torch.ones(n)), a @ b + 1, 1e-5)
    for a, b in product(layouts(k, m), layouts(k, n)):
        made = transposed_times(OneDnnBackend, a, b)
        close(made, a.T @ b, 1e-5)
        assert made.is_contiguous()


@pytest.mark.parametrize("bias", [torch.arange(20.0)[::2], torch.tensor([2.0]).expand(10)], ids=["strided", "expanded"])
def test_a_bias_that_lies_anyhow(bias: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    module, x = nn.Linear(6, 10), torch.randn(8, 6)
    module.bias = nn.Parameter(bias)
    close(linear(module, x), module(x), 1e-6)
    with torch.no_grad():
        close(OrderedMaps()(module)(x), module(x), 1e-6)


def test_a_sum_of_products_over_parts() -> None:
    for wide, narrow in ((9, 4), (4, 9)):
        a, b = torch.randn(12, wide), torch.randn(12, narrow)
        for by in (TorchBackend, OneDnnBackend):
            parts = by.sum()
            for rows in (slice(0, 5), slice(5, 12)):
                parts.add(a[rows], b[rows])
            close(parts.total(), a.T @ b, 1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("kind", ["self", "cross", "feedforward"])
def test_fields_with_and_without(kind: str, activation: str, onednn_calls: list[tuple[int, ...]]) -> None:
    fields = {
        "self": lambda: SelfAttention(8, 2),
        "cross": lambda: CrossAttention(8, 2),
        "feedforward": lambda: FeedForward(8, activation=activation),
    }
    field, x = fields[kind](), torch.randn(2, 5, 8, requires_grad=True)
    memory = torch.randn(2, 4, 8, requires_grad=True)
    inputs = [x, *field.parameters(), *([memory] if kind == "cross" else [])]

    def compute() -> list[Tensor]:
        out = field(0.0, x, Context(other=Source(memory=memory)))
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    ours, asked = compute(), len(onednn_calls)
    assert asked >= 6
    for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
        close(one, right, 1e-4)
    assert len(onednn_calls) == asked


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries, keys", [(9, 9), (5, 9)])
def test_the_shared_exponential(
    causal: bool,
    masked: bool,
    queries: int,
    keys: int,
    onednn_calls: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole samples at once, and in tiles of rows."""
    for tile, causal_tile in ((1 << 21, 256), (1, 2)):
        monkeypatch.setattr(exponential, "TILE", tile)
        monkeypatch.setattr(exponential, "CAUSAL_TILE", causal_tile)
        torch.manual_seed(1)
        q, k, v = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4), torch.randn(2, 3, keys, 16)
        inputs = [
            q.requires_grad_(),
            k.requires_grad_(),
            v.requires_grad_(),
            torch.randn(2, 3, 1, keys).requires_grad_(),
        ]
        mask = torch.rand(2, 1, queries, keys) > 0.3 if masked else None

        def compute(inputs: list[Tensor] = inputs, mask: Tensor | None = mask) -> list[Tensor]:
            q, k, v, b = inputs
            shared = exponential.SharedExponential.measure(q, k, mask, causal)
            (evolution,) = shared.evolve(b)
            out = shared.act(evolution, v)
            return [out, *torch.autograd.grad(out.square().sum(), inputs)]

        ours, asked = compute(), len(onednn_calls)
        assert asked
        for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
            close(one, right, 1e-4)
        assert len(onednn_calls) == asked


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_vocabulary(smoothing: float, onednn_calls: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(12, 8, requires_grad=True), torch.randn(50, 8, requires_grad=True)
    labels = torch.randint(0, 50, (12,))
    labels[3] = -100

    def compute() -> list[Tensor]:
        loss = cross_entropy(x, weight, labels, smoothing, chunk=5)
        return [loss, *torch.autograd.grad(loss, [x, weight])]

    ours, asked = compute(), len(onednn_calls)
    assert asked == 9  # three products of three chunks
    for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
        close(one, right, 1e-5)
    assert len(onednn_calls) == asked


def test_it_is_known_by_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for about, faster in (
        ({"avx512_f": True, "cpu_name": "AMD EPYC 9654 96-Core Processor"}, True),
        ({"avx512_f": False, "cpu_name": "AMD EPYC 7763 64-Core Processor"}, False),
        ({"avx512_f": True, "cpu_name": "Intel(R) Xeon(R) Platinum 8481C"}, False),
        ({"architecture": "aarch64"}, False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cpu, "get_capabilities", lambda about=about: about)
            assert matmul.faster_here.__wrapped__() is (faster and torch.backends.mkl.is_available())


def test_small_products_and_other_numbers_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(8, 6)
    assert matmul_backend(1 << 30, x) is OneDnnBackend
    monkeypatch.setattr(matmul, "LEAST_PRODUCT", 1 << 21)
    assert matmul_backend((1 << 21) - 1, x) is TorchBackend and matmul_backend(1 << 21, x) is OneDnnBackend
    torch.set_num_threads(2)
    assert matmul_backend(1 << 21, x) is TorchBackend and matmul_backend(1 << 22, x) is OneDnnBackend
    assert matmul_backend(1 << 30, x.double()) is TorchBackend and matmul_backend(1 << 30, x.to("meta")) is TorchBackend
    close(linear_map(x, torch.ones(10, 6)), x.sum(1, keepdim=True).expand(8, 10), 1e-5)
