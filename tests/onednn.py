"""Tests with float32 products by oneDNN: the setting that `use_onednn` makes, on any processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

T = TypeVar("T")

BY_ONEDNN = [
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN"),
    pytest.mark.usefixtures("onednn"),
]


def by_torch(compute: Callable[[], T]) -> T:
    """Return what torch computes without the setting."""
    torch.set_float32_matmul_precision("highest")
    try:
        return compute()
    finally:
        torch.set_float32_matmul_precision("medium")
