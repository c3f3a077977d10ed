"""Our AdamW is torch's, to the bit, with the same state under the same names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from odeum.kernels.adamw import AdamW, reference


def weights(dtype: torch.dtype) -> list[nn.Parameter]:
    random = torch.Generator().manual_seed(0)
    shapes = ((5, 7), (7,), (3, 33), ())
    return [nn.Parameter(torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_steps_are_those_of_torch(dtype: torch.dtype) -> None:
    """Also where a weight has no gradient for a while, the rate changes, and groups decay differently."""
    ours, theirs = weights(dtype), weights(dtype)

    def groups(all_of_them: list[nn.Parameter]) -> list[dict[str, object]]:
        return [
            {"params": all_of_them[:2], "weight_decay": 0.1},
            {"params": all_of_them[2:], "weight_decay": 0.0},
        ]

    mine = AdamW(groups(ours), 3e-3, (0.9, 0.95))
    peer = reference(groups(theirs), 3e-3, (0.9, 0.95))
    random = torch.Generator().manual_seed(1)
    for step in range(6):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if index != 2 or step > 2:
                a.grad = torch.randn(a.shape, generator=random, dtype=torch.float64).to(dtype)
                b.grad = a.grad.clone()
        for group in (*mine.param_groups, *peer.param_groups):
            group["lr"] = 3e-3 / (1 + step)
        mine.step()
        peer.step()
        mine.zero_grad()
        peer.zero_grad()
        assert all(a.grad is None for a in ours)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
            assert mine.state[a].keys() == peer.state[b].keys()
            for name, value in mine.state[a].items():
                assert torch.equal(value, peer.state[b][name]) and value.dtype == peer.state[b][name].dtype
