"""Products of a few rows with the same matrices, pass after pass: in the order in which oneDNN reads them.

For up to some dozens of rows the time of such a product is that of reading the matrix, which a library copies into its
own order at every call. To do so once a text halves it; the copy lives no longer than the call that makes the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from odeum.decode.flat_fields import Map, flat_map
from odeum.kernels import matmul
from odeum.kernels.autograd import plain_autograd
from odeum.models.embedding import OutputMatrix, TiedEmbedding

LEAST_SIZE = 1 << 19
"""numbers of a matrix below which it stays in a core's cache"""
LEAST_PASSES = 16
"""passes below which putting it in order costs more than it saves"""
LEAST_WORK = 1 << 20
"""multiply–adds of a pass below which the call of oneDNN costs more than it saves"""


class OrderedMaps:
    """Flat maps, the linear ones in order: where oneDNN is the faster library for every matrix.

    Each is copied once, when there are first as many rows as that pays for: as much memory again as the layers have.
    """

    def __init__(self) -> None:
        self.known: dict[nn.Module, Map] = {}

    def __call__(self, module: nn.Module) -> Map:
        if type(module) is not nn.Linear or not _ordered_products(module.weight):
            return flat_map(module)
        if module not in self.known:
            self.known[module] = _Ordered(module.weight, module.bias, flat_map(module))
        return self.known[module]


def maps_for(passes: int) -> Callable[[nn.Module], Map]:
    """How linear maps that nobody changes are computed in so many passes."""
    return OrderedMaps() if passes >= LEAST_PASSES and matmul.faster_here() else flat_map


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
    return matmul.available() and type(weight) is nn.Parameter and matmul.ordinary(weight)


class _Ordered:
    def __init__(self, weight: Tensor, bias: Tensor | None, ordinary: Callable[[Tensor], Tensor]) -> None:
        self.weight, self.bias, self.ordinary = weight, None if bias is None else bias.contiguous(), ordinary
        self.least = weight.shape[1] * max(matmul.LEAST_ROWS, LEAST_WORK // weight.numel())
        self.ordered: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() < self.least or x.dtype != self.weight.dtype:
            return self.ordinary(x)
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not plain_autograd():
            return self.ordinary(x)
        if self.ordered is None:
            self.ordered = torch.ops.mkldnn._reorder_linear_weight(self.weight)
        return torch.ops.mkldnn._linear_pointwise(x, self.ordered, self.bias, "none", [], "")
