"""The loss in chunks: values and gradients of the plain formula, and a buffer that is kept between calls."""

from __future__ import annotations

import threading

import pytest
import torch
from closeness import close
from torch import Tensor

from odeum.kernels import cross_entropy as kernel
from odeum.kernels.cross_entropy import cross_entropy, reference


def example(seed: int, tokens: int = 23, vocabulary: int = 50) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(n, 8, generator=generator).requires_grad_() for n in (tokens, vocabulary))
    labels = torch.randint(0, vocabulary, (tokens,), generator=generator)
    labels[::7] = kernel.IGNORE
    return x, weight, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 5, 23, 100, None])
def test_values_and_gradients(smoothing: float, chunk: int | None) -> None:
    x, weight, labels = example(0)
    losses = (cross_entropy(x, weight, labels, smoothing, chunk), reference(x, weight, labels, smoothing))
    ours, right = ([loss, *torch.autograd.grad(3 * loss, [x, weight], retain_graph=True)] for loss in losses)
    for one, other in zip(ours, right, strict=True):
        close(one, other, 1e-5)
    again = torch.autograd.grad(3 * losses[0], [x, weight])  # over the same graph, after other calls used the buffer
    assert all(map(torch.equal, again, ours[1:]))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16_products_are_as_close_as_plain_autocast(smoothing: float) -> None:
    """All products have bfloat16 factors, sums are in single precision: no worse than torch's own formula."""
    x, weight, labels = example(3, tokens=200, vocabulary=300)
    right = torch.autograd.grad(reference(x, weight, labels, smoothing), [x, weight])
    errors = []
    for compute in (cross_entropy, reference):
        with torch.autocast("cpu", torch.bfloat16):
            loss = (
                compute(x, weight, labels, smoothing, 37)
                if compute is cross_entropy
                else compute(x, weight, labels, smoothing)
            )
        made = torch.autograd.grad(loss, [x, weight])
        assert all(y.dtype is torch.float32 for y in made)
        errors.append([float((one - other).norm() / other.norm()) for one, other in zip(made, right, strict=True)])
    for ours, plain in zip(*errors, strict=True):
        assert ours < max(1.5 * plain, 4e-3)


@pytest.mark.parametrize("tile", [1, 50, 4 * 50, 10**6])
def test_tiles_give_the_bits_of_the_whole(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one row (a tile smaller than a row too), some rows and a remainder, or all."""
    x, weight, labels = example(4)
    made = []
    for size in (10**7, tile):
        monkeypatch.setattr(kernel, "TILE", size)
        with torch.autocast("cpu", torch.bfloat16):
            loss = cross_entropy(x, weight, labels, 0.1, 9)
        made.append([loss.detach(), *torch.autograd.grad(loss, [x, weight])])
    assert all(map(torch.equal, *made))


def test_second_derivatives() -> None:
    results = []
    for compute in (cross_entropy, reference):
        x, weight, labels = example(1)
        slope = torch.autograd.grad(compute(x, weight, labels, 0.1), x, create_graph=True)[0]
        results.append(torch.autograd.grad(slope.square().sum(), [x, weight]))
    for one, other in zip(*results, strict=True):
        close(one, other, 1e-4)


def test_the_kept_buffer_is_bounded_and_no_result_lies_in_it() -> None:
    kernel._workspace.__dict__.clear()
    with torch.inference_mode():
        cross_entropy(*example(0))
    kept = kernel._workspace.__dict__["torch.float32"]
    assert kept.numel() == 23 * 50 and not kept.is_inference()
    x, weight, labels = example(0)
    loss = cross_entropy(x, weight, labels)
    made = [loss.detach(), *torch.autograd.grad(loss, [x, weight])]
    assert kernel._workspace.__dict__["torch.float32"] is kept
    before = [y.clone() for y in made]
    cross_entropy(*example(1))
    assert all(map(torch.equal, made, before))
    assert kernel._buffer(1, 2 * kernel.BUFFER + 1, torch.empty(0)).data_ptr() != kept.data_ptr()
    assert kernel._workspace.__dict__["torch.float32"] is kept  # a larger one is not kept
    assert kernel._buffer(2, 3, torch.empty(0, dtype=torch.float64)).dtype == torch.float64


def test_large_matrices_have_more_rows_per_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    make = kernel._buffer
    monkeypatch.setattr(kernel, "_buffer", lambda n, columns, like: rows.append(n) or make(n, columns, like))
    monkeypatch.setattr(kernel, "BUFFER", 50 * 40)
    for limit in (50 * 8, 50 * 8 - 1):
        monkeypatch.setattr(kernel, "LARGE_MATRIX", limit)
        cross_entropy(*example(0, tokens=100))
    assert rows == [40, 80]


def test_threads_do_not_share_a_buffer() -> None:
    examples = [example(seed, tokens=200, vocabulary=400) for seed in range(4)]

    def gradients(x: Tensor, weight: Tensor, labels: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(cross_entropy(x, weight, labels, 0.1, chunk=16), [x, weight]))

    alone, wrong = [gradients(*given) for given in examples], []

    def work(number: int) -> None:
        for _ in range(20):
            if not all(map(torch.equal, gradients(*examples[number]), alone[number])):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
