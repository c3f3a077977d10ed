"""Attention in tiles: torch's values and gradients under every mask, and out of the way where it cannot serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from closeness import close
from onednn import EVERYWHERE, without
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from odeum.fields.attention import attend
from odeum.fields.base import Source
from odeum.kernels import tiled_attention

pytestmark = EVERYWHERE


MASKS: dict[str, Callable[[], Tensor | None]] = {
    "none": lambda: None,
    "keys": lambda: (torch.arange(9) < 7).expand(2, 1, 1, 9),
    "pairs": lambda: torch.rand(2, 3, 9, 9) > 0.3,
    "blind": lambda: torch.arange(9).unsqueeze(1).expand(9, 9) != 4,
    "added": lambda: torch.randn(3, 9, 9),
    "added, blind": lambda: torch.zeros(9, 9).index_fill(0, torch.tensor(4), -torch.inf),
}


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled_attention, "LEAST_HEAD", 1)
    monkeypatch.setattr(tiled_attention, "TILE_OF_SCORES", 1)
    tiles = tiled_attention._tiles

    def smaller(queries: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
        """The least tile is larger than these sequences."""
        for start in range(0, queries, 4):
            stop = min(start + 4, queries)
            yield slice(start, stop), slice(0, stop if causal else keys)
        assert list(tiles(queries, keys, causal)) == [(slice(0, queries), slice(0, keys))]

    monkeypatch.setattr(tiled_attention, "_tiles", smaller)


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_in_tiles(mask: str, causal: bool, onednn_calls: list[tuple[int, ...]]) -> None:
    q, k, v = inputs = [torch.randn(2, 9, 3, 4).transpose(1, 2).requires_grad_() for _ in range(3)]
    source = Source(mask=MASKS[mask](), causal=causal)

    def compute() -> list[Tensor]:
        out = attend(q, k, v, source)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    ours, asked = compute(), len(onednn_calls)
    assert asked > 2 * 3 * 7
    for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
        assert not one.isnan().any()
        close(one, right, 1e-5)
    assert len(onednn_calls) == asked


@pytest.mark.usefixtures("tiny_tiles")
def test_attention_in_tiles_of_a_longer_memory_and_twice_differentiated() -> None:
    q, k = (torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 9))
    v = torch.randn(2, 3, 9, 6, requires_grad=True)  # values of another width
    found = []
    for compute in (
        lambda: attend(q, k, v, Source()),
        lambda: (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v,
    ):
        out = compute()
        slope = torch.autograd.grad(out.square().sum(), k, create_graph=True)[0]
        found.append([out, slope, *torch.autograd.grad(slope.square().sum(), [q, k, v])])
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-4)


@pytest.mark.usefixtures("tiny_tiles")
def test_the_least_number_hides_less_than_nothing() -> None:
    """A query that sees nothing but padding, marked by the least number, sees that, and nothing of later ones."""
    inputs = [torch.randn(1, 1, 9, 4, requires_grad=True) for _ in range(3)]
    mask = torch.zeros(1, 9).index_fill(1, torch.tensor([0, 1]), torch.finfo(torch.float32).min)
    found = []
    for q, k, v, out in ((*inputs, attend(*inputs, Source(mask=mask, causal=True))), (*inputs, None)):
        if out is None:
            weighed = (q @ k.transpose(-1, -2) / 2 + mask).masked_fill(torch.ones(9, 9).triu(1) > 0, -torch.inf)
            out = weighed.softmax(-1) @ v
        found.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-5)


@pytest.mark.usefixtures("tiny_tiles")
def test_the_gradient_of_attention_in_tiles_is_not_rounded_by_autocast() -> None:
    inputs = [torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(3)]
    out = attend(*inputs, Source(causal=True))
    exactly = torch.autograd.grad(out.square().sum(), inputs, retain_graph=True)
    loss = out.square().sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = torch.autograd.grad(loss, inputs)
    assert all(map(torch.equal, under, exactly))


@pytest.mark.usefixtures("tiny_tiles")
def test_a_causal_query_in_tiles_gets_nothing_of_later_ones() -> None:
    q, k, v = (torch.randn(1, 1, 9, 4) for _ in range(3))
    before = attend(q, k, v, Source(causal=True))
    k[..., 6:, :], v[..., 6:, :] = 1e6, 1e30
    assert torch.equal(attend(q, k, v, Source(causal=True))[..., :6, :], before[..., :6, :])


@pytest.mark.usefixtures("tiny_tiles")
def test_attention_in_tiles_steps_aside(onednn_calls: list[tuple[int, ...]]) -> None:
    q, k, v = (torch.randn(1, 2, 9, 4) for _ in range(3))
    learned = torch.zeros(9, 9, requires_grad=True)
    attend(q, k, v, Source(mask=learned)).sum().backward()
    assert learned.grad is not None
    with sdpa_kernel(SDPBackend.MATH):
        attend(q, k, v, Source())
    attend(q.double(), k.double(), v.double(), Source())
    torch.func.vmap(lambda x: attend(x, k, v, Source()))(q.unsqueeze(0))
    assert not onednn_calls
