"""When two tensors count as equal."""

from __future__ import annotations

from torch import Tensor


def close(a: Tensor, b: Tensor, tolerance: float) -> None:
    scale = max(1.0, float(b.detach().abs().max()))
    assert float((a - b).detach().abs().max()) <= tolerance * scale
