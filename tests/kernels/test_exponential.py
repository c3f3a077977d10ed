"""The shared exponential: values and gradients of the plain formula, whole and in tiles, by either library."""

from __future__ import annotations

import pytest
import torch
from closeness import close
from torch import Tensor

from odeum.kernels import exponential


@pytest.mark.parametrize("by", ["torch", "oneDNN"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "boolean", "added", "blind"])
@pytest.mark.parametrize("queries, keys", [(9, 9), (5, 9)])
@pytest.mark.parametrize("tile, causal_tile", [(1 << 21, 256), (1, 2)])
def test_values_and_gradients(
    by: str,
    causal: bool,
    mask: str,
    queries: int,
    keys: int,
    tile: int,
    causal_tile: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if by == "oneDNN":
        torch.set_float32_matmul_precision("medium")
    monkeypatch.setattr(exponential, "TILE", tile)
    monkeypatch.setattr(exponential, "CAUSAL_TILE", causal_tile)
    q, k, v = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4), torch.randn(2, 3, keys, 16)
    inputs = [q, k, torch.randn(2, 3, keys), v]
    for x in inputs:
        x.requires_grad_()
    hidden = torch.rand(2, 1, queries, keys) > 0.7
    given = {
        "none": None,
        "boolean": ~hidden,
        "added": torch.randn(queries, keys),
        "blind": ~hidden & (torch.arange(queries) != 1).unsqueeze(-1),
    }[mask]

    def shared(q: Tensor, k: Tensor, b: Tensor, v: Tensor) -> Tensor:
        whole = exponential.SharedExponential.measure(q, k, given, causal)
        (evolution,) = whole.evolve(b.unsqueeze(2))
        return whole.act(evolution, v)

    results = []
    for out in (shared(*inputs), exponential.reference(*inputs, given, causal)):
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for ours, right in zip(*results, strict=True):
        close(ours, right, 1e-4)
