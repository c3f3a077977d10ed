"""Attention by plain products: torch's values and gradients under every mask, also saturated and with infinities."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from closeness import close
from onednn import BY_ONEDNN, by_torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from odeum.fields.attention import attend
from odeum.fields.base import Source
from odeum.kernels import attention, matmul

pytestmark = BY_ONEDNN

MASKS: dict[str, Callable[[], Tensor | None]] = {
    "none": lambda: None,
    "keys": lambda: (torch.arange(9) < 7).expand(2, 1, 1, 9),
    "pairs": lambda: torch.rand(2, 3, 9, 9) > 0.3,
    "blind": lambda: torch.arange(9).unsqueeze(1).expand(9, 9) != 4,
    "added": lambda: torch.randn(3, 9, 9),
    "added, blind": lambda: torch.zeros(9, 9).index_fill(0, torch.tensor(4), -torch.inf),
}


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry per call of the plain products."""
    seen: list[bool] = []

    def noted(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *given: seen.append(True) or compute(*given)

    for name in ("reference", "causal_attention"):
        monkeypatch.setattr(attention, name, noted(getattr(attention, name)))
    return seen


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_plain_products_give_torchs_values_and_gradients(mask: str, causal: bool, calls: list[bool]) -> None:
    q, k, v = inputs = [torch.randn(2, 9, 3, 4).transpose(1, 2).requires_grad_() for _ in range(3)]
    source = Source(mask=MASKS[mask](), causal=causal)

    def compute() -> list[Tensor]:
        out = attend(q, k, v, source)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    ours = compute()
    assert len(calls) == 1
    for one, right in zip(ours, by_torch(compute), strict=True):
        assert not one.isnan().any()
        close(one, right, 1e-5)
    assert len(calls) == 1  # without the setting torch's kernel


def test_a_longer_memory_and_second_derivatives() -> None:
    q, k = (torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 9))
    v = torch.randn(2, 3, 9, 6, requires_grad=True)  # values of another width
    results = []
    for compute in (lambda: attend(q, k, v, Source()), lambda: (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v):
        out = compute()
        slope = torch.autograd.grad(out.square().sum(), k, create_graph=True)[0]
        results.append([out, slope, *torch.autograd.grad(slope.square().sum(), [q, k, v])])
    for ours, right in zip(*results, strict=True):
        close(ours, right, 1e-4)


def test_the_least_number_hides_less_than_minus_infinity() -> None:
    """A query whose visible keys all have the least number added sees them, and nothing of later ones."""
    inputs = [torch.randn(1, 1, 9, 4, requires_grad=True) for _ in range(3)]
    mask = torch.zeros(1, 9).index_fill(1, torch.tensor([0, 1]), torch.finfo(torch.float32).min)
    q, k, v = inputs
    scores = (q @ k.transpose(-1, -2) / 2 + mask).masked_fill(torch.ones(9, 9).triu(1) > 0, -torch.inf)
    results = [
        [out, *torch.autograd.grad(out.square().sum(), inputs)]
        for out in (attend(q, k, v, Source(mask=mask, causal=True)), scores.softmax(-1) @ v)
    ]
    for ours, right in zip(*results, strict=True):
        close(ours, right, 1e-5)


def test_a_causal_query_gets_nothing_of_later_ones() -> None:
    q, k, v = (torch.randn(1, 1, 9, 4) for _ in range(3))
    before = attend(q, k, v, Source(causal=True))
    k[..., 6:, :], v[..., 6:, :] = 1e6, 1e30
    assert torch.equal(attend(q, k, v, Source(causal=True))[..., :6, :], before[..., :6, :])


def gradients(inputs: list[Tensor], source: Source) -> list[Tensor]:
    inputs = [x.detach().requires_grad_() for x in inputs]
    out = attend(*inputs, source)
    weight = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), inputs)]


@pytest.mark.parametrize("length", [1, 2, 9, 300])
@pytest.mark.parametrize("sharpness", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("causal", [False, True])
def test_saturated_rows_are_as_exact_as_torchs(length: int, sharpness: float, causal: bool) -> None:
    """300 tokens go to torch's fused kernel, which multiplies by oneDNN too. The error is relative to |q|, |k|, |v|."""
    inputs = [torch.randn(2, 2, length, 16) * scale for scale in (sharpness, 1.0, 1.0)]
    source = Source(causal=causal)
    exact = gradients([x.double() for x in inputs], source)
    ours, torchs = gradients(inputs, source), by_torch(lambda: gradients(inputs, source))
    for one, other, right in zip(ours, torchs, exact, strict=True):
        noise = float((other - right).abs().max()) + 2e-7 * float(right.abs().max()) + 2e-7
        assert float((one - right).abs().max()) < 4 * noise


def test_one_key_has_no_gradient() -> None:
    """Whatever its score, it gets all of the weight."""
    q, k, v = (torch.randn(2, 2, n, 16) for n in (9, 1, 1))
    _, dq, dk, _ = gradients([100 * q, k, v], Source())
    assert not dq.any() and not dk.any()


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_shows_in_values_and_gradients(which: int, value: float) -> None:
    inputs = [torch.randn(1, 1, 9, 16) for _ in range(3)]
    inputs[which][0, 0, 3, 5] = value
    plain = [x.double().requires_grad_() for x in inputs]
    out = (plain[0] @ plain[1].transpose(-1, -2) / 4).softmax(-1) @ plain[2]
    weight = torch.linspace(-1.0, 1.0, out.numel(), dtype=torch.float64).view_as(out)
    exact = [out, *torch.autograd.grad((out * weight).sum(), plain)]
    assert not all(x.isfinite().all() for x in exact)
    for ours, right in zip(gradients(inputs, Source()), exact, strict=True):
        assert torch.equal(ours.isfinite(), right.isfinite())


def test_other_precisions_and_transforms(calls: list[bool]) -> None:
    q, k, v = (torch.randn(1, 2, 9, 4) for _ in range(3))
    learned = torch.zeros(9, 9, requires_grad=True)
    attend(q, k, v, Source(mask=learned)).sum().backward()
    assert learned.grad is not None
    mapped = torch.func.vmap(lambda x: attend(x, k, v, Source()))(q.unsqueeze(0))
    close(mapped[0], nn.functional.scaled_dot_product_attention(q, k, v), 1e-5)
    before = len(calls)
    attend(q.double(), k.double(), v.double(), Source())
    long = torch.randn(1, 1, 300, 4)
    attend(long, long, long, Source())
    compiled = torch.compile(lambda x: attend(x, k, v, Source()), backend="eager", fullgraph=True)
    close(compiled(q), mapped[0], 1e-5)
    assert len(calls) == before


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_trace_takes_other_batches_and_lengths(calls: list[bool]) -> None:
    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention.attention(q, k, v, None, True)

    small, large = (torch.randn(3, *shape) for shape in ((2, 3, 5, 4), (7, 3, 9, 4)))
    right = nn.functional.scaled_dot_product_attention(*large, is_causal=True)
    for traced in (torch.jit.trace(compute, tuple(small)), make_fx(compute, tracing_mode="symbolic")(*small)):
        close(traced(*large), right, 1e-5)
    assert calls


@pytest.mark.parametrize(
    "values", [(9, 4), (3, 9, 4), (2, 3, 9, 6), (1, 3, 9, 4), (0, 3, 9, 4), (2, 2, 3, 9, 4)], ids=str
)
def test_any_leading_dimensions(values: tuple[int, ...], calls: list[bool]) -> None:
    """Also values that are shared by a batch, of another width, and no batch at all."""
    shape = (2, 3, 9, 4) if len(values) == 4 and values[0] else values
    q, k, v = torch.randn(shape), torch.randn(shape), torch.randn(values)
    weights = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(9, 9).triu(1) == 1, -torch.inf).softmax(-1)
    ours = attention.attention(q, k, v, None, True)
    assert calls and ours.shape == (weights @ v).shape
    assert torch.allclose(ours, weights @ v, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_bfloat16_products_are_as_close_as_torchs_kernel(
    mask: str, causal: bool, calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On processors with bfloat16 instructions; elsewhere oneDNN emulates them, with the same results."""
    exact = [torch.randn(2, 3, 9, 8, requires_grad=True) for _ in range(3)]
    low = [x.detach().bfloat16().requires_grad_() for x in exact]
    source = Source(mask=MASKS[mask](), causal=causal)

    def compute(inputs: list[Tensor]) -> list[Tensor]:
        out = attend(*inputs, source)
        return [out.float(), *(x.float() for x in torch.autograd.grad(out.float().square().sum(), inputs))]

    right = by_torch(lambda: compute(exact))
    monkeypatch.setattr(matmul, "processor_has_bfloat16", lambda: False)
    theirs = compute(low)
    assert not calls
    monkeypatch.setattr(matmul, "processor_has_bfloat16", lambda: True)
    ours = compute(low)
    assert len(calls) == 1
    for one, other, true in zip(ours, theirs, right, strict=True):
        assert (one - true).norm() <= 2 * (other - true).norm() + 1e-2 * true.norm()
