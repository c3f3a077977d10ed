"""A linear map of a few rows, applied again and again with the same weights: decoding.

Reading the matrix dominates the time of such a product, and both MKL and oneDNN first copy it into their own layout in
every call. Here oneDNN's copy is made once per text. The operation is private in torch, and public ones do not replace
it: greedy decoding of 4 and 16 rows takes 0.80 and 0.77 of the time of torch's own products, beam search of 1 and 8
sources 0.75 and 0.68 (width 128 and 256, one thread, Zen 5). Where it is missing, `reference` is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from odeum.kernels import matmul
from odeum.kernels.autograd import plain_autograd

reference = nn.functional.linear
"""x Wᵀ + b by torch"""

MIN_ROWS = 4
"""rows below which MKL's product of a matrix and a vector is as fast"""
MIN_WEIGHTS = 1 << 17
"""weights below which MKL is faster for any number of rows (Zen 4: 1.05 to 1.4 times at 65,536; at 262,144 weights the
packed product is 1.1 to 1.25 times as fast): a small matrix stays in a core's cache"""
MIN_CALLS = 16
"""calls below which packing costs more than it saves"""


def worth_packing(weight: Tensor, calls: int) -> bool:
    """Return whether packing an ordinary float32 matrix for so many calls pays on this processor."""
    return (
        calls >= MIN_CALLS
        and matmul.onednn_is_faster()
        and bool(torch.backends.mkldnn.enabled)
        and all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight"))
        and type(weight) is nn.Parameter
        and weight.numel() >= MIN_WEIGHTS
        and weight.dtype is torch.float32
        and weight.device.type == "cpu"
        and weight.layout is torch.strided
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
    )


class PackedLinear:
    """x Wᵀ + b of a weight that does not change while this object lives; `plain` computes what packing cannot."""

    def __init__(self, weight: Tensor, bias: Tensor | None, plain: Callable[[Tensor], Tensor] | None = None) -> None:
        self.weight, self.bias = weight, None if bias is None else bias.contiguous()
        self.plain = plain or (lambda x: reference(x, weight, bias))
        self.least = weight.shape[1] * MIN_ROWS
        self.packed: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() < self.least or x.dtype != self.weight.dtype:
            return self.plain(x)
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not plain_autograd():
            return self.plain(x)
        if self.packed is None:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
