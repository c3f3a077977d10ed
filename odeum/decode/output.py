"""Logits of a few rows, pass after pass: the output matrix in the order in which oneDNN reads it.

For up to some dozens of rows the time of this product is that of reading the matrix, which MKL copies into its own
order at every call. To do so once a text halves it; the copy lives no longer than the call that makes the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from odeum.fields.derivatives import plain_autograd
from odeum.models.embedding import OutputMatrix, TiedEmbedding

LEAST_ROWS = 4
"""below, MKL's product of a matrix and a vector is the faster one"""
LEAST_SIZE = 1 << 19
"""numbers of a matrix below which it stays in a core's cache"""
LEAST_PASSES = 16
"""passes below which putting it in order costs more than it saves"""


def output_of(part: object, ordinary: Callable[[Tensor], Tensor], passes: int) -> Callable[[Tensor], Tensor]:
    """What `ordinary` computes by the matrix of this part, which nobody changes until all the passes are made."""
    if type(part) not in (TiedEmbedding, OutputMatrix) or passes < LEAST_PASSES:
        return ordinary
    weight, bias = part.weight, getattr(part, "bias", None)  # ty: ignore[missing-attribute]
    if weight.numel() < LEAST_SIZE or not _ordered_products(weight):
        return ordinary
    return _Ordered(weight, bias, ordinary)


def _ordered_products(weight: Tensor) -> bool:
    """Whether oneDNN is there and computes as exactly as MKL."""
    asked = ("_linear_pointwise", "_reorder_linear_weight")  # not public: another torch may lack either
    known = torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in asked)
    single = weight.device.type == "cpu" and weight.dtype == torch.float32 and type(weight) is nn.Parameter
    exactly = torch.get_float32_matmul_precision() == "highest"
    return bool(known and single and exactly and torch.backends.mkldnn.enabled)


class _Ordered:
    def __init__(self, weight: Tensor, bias: Tensor | None, ordinary: Callable[[Tensor], Tensor]) -> None:
        self.weight, self.bias, self.ordinary = weight, bias, ordinary
        self.ordered: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        other = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not plain_autograd()
        if other or x.dim() != 2 or len(x) < LEAST_ROWS or x.dtype != self.weight.dtype:
            return self.ordinary(x)
        if self.ordered is None:
            self.ordered = torch.ops.mkldnn._reorder_linear_weight(self.weight)
        return torch.ops.mkldnn._linear_pointwise(x, self.ordered, self.bias, "none", [], "")
