"""Tests of products by oneDNN: everywhere it is taken to be the faster library, and no product to be too small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

EVERYWHERE = [
    pytest.mark.skipif(
        not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
        reason="torch was built without oneDNN",
    ),
    pytest.mark.usefixtures("onednn_everywhere"),
]


def without(compute: Callable[[], object]) -> object:
    """What torch itself computes."""
    torch.backends.mkldnn.enabled = False  # ty: ignore[invalid-assignment]
    try:
        return compute()
    finally:
        torch.backends.mkldnn.enabled = True  # ty: ignore[invalid-assignment]
