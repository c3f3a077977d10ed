"""Matrix products through oneDNN on CPUs where it is faster than MKL.

torch computes float32 products with MKL, which uses its widest vectors on Intel processors only. On AMD processors with
AVX512, oneDNN computes the same products with the same accuracy in less than half the time, but torch calls it only for
lower precisions. On all other processors, under hooks or autocast, and while compiling, torch's own product is used.
`torch.backends.mkldnn.enabled = False` switches oneDNN off.

This module computes values only; `kernels/linear.py` makes them differentiable.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Protocol

import torch
from torch import Tensor, nn

LEAST_PRODUCT = 1 << 21
"""multiply–adds for each thread below which calling oneDNN costs more than it saves"""


LEAST_ROWS = 4
"""below, MKL's product of a matrix and a vector is as fast"""


KEPT_SHAPES = 256
"""shapes of products whose code oneDNN keeps, two megabytes each: a thousand by itself, where lengths vary"""


class SumOfProducts(Protocol):
    """aᵀ b of [k, m] and [k, n], added up over parts of k: a gradient by a weight."""

    def add(self, a: Tensor, b: Tensor) -> None: ...

    def total(self) -> Tensor:
        """[m, n], of one part at least."""
        ...


class MatmulBackend(Protocol):
    """Products of matrices; what is called `room` may be where the result lies, or it lies elsewhere."""

    @staticmethod
    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, room: Tensor | None = None) -> Tensor:
        """x Wᵀ + b for x of any number of dimensions, of two where there is room."""
        ...

    @staticmethod
    def times(a: Tensor, b: Tensor, room: Tensor | None = None) -> Tensor:
        """a b of [m, k] and [k, n]."""
        ...

    @staticmethod
    def sum() -> SumOfProducts:
        """An empty sum of products."""
        ...


class _TorchSum:
    def __init__(self) -> None:
        self.parts: Tensor | None = None

    def add(self, a: Tensor, b: Tensor) -> None:
        if self.parts is None:
            self.parts = a.new_zeros(a.shape[1], b.shape[1])
        self.parts.addmm_(a.T, b)  # in its own precision: autocast does not see products that are told where to write

    def total(self) -> Tensor:
        assert self.parts is not None
        return self.parts


class _OneDnnSum:
    def __init__(self) -> None:
        self.parts: Tensor | None = None
        self.transposed = False

    def add(self, a: Tensor, b: Tensor) -> None:
        # The left factor is copied into the order of its rows: let it be the narrower one.
        self.transposed = a.shape[1] > b.shape[1]
        part = OneDnnBackend.times(b.T, a) if self.transposed else OneDnnBackend.times(a.T, b)
        self.parts = part if self.parts is None else self.parts.add_(part)

    def total(self) -> Tensor:
        assert self.parts is not None
        return self.parts.T.contiguous() if self.transposed else self.parts


class TorchBackend:
    """As torch multiplies by itself."""

    @staticmethod
    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, room: Tensor | None = None) -> Tensor:
        if room is None:
            return nn.functional.linear(x, weight, bias)
        return torch.mm(x, weight.T, out=room) if bias is None else torch.addmm(bias, x, weight.T, out=room)

    @staticmethod
    def times(a: Tensor, b: Tensor, room: Tensor | None = None) -> Tensor:
        return a @ b if room is None else torch.mm(a, b, out=room)

    sum = _TorchSum


class OneDnnBackend:
    """By oneDNN, which always makes room itself."""

    @staticmethod
    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, room: Tensor | None = None) -> Tensor:
        if not weight.is_contiguous() and not weight.T.is_contiguous():
            weight = weight.contiguous()  # in any other order it would take number by number, a thousand times slower
        if bias is not None:
            bias = bias.contiguous()  # of which it takes the first numbers that it finds
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def times(a: Tensor, b: Tensor, room: Tensor | None = None) -> Tensor:
        return OneDnnBackend.linear(a, b.T)

    sum = _OneDnnSum


def transposed_times(by: type[MatmulBackend], a: Tensor, b: Tensor) -> Tensor:
    """aᵀ b of [k, m] and [k, n]."""
    whole = by.sum()
    whole.add(a, b)
    return whole.total()


def matmul_backend(operations: int, *factors: Tensor) -> type[MatmulBackend]:
    """The faster one for products of so many multiply–adds of these factors."""
    if torch.compiler.is_compiling():
        return TorchBackend
    large = operations >= LEAST_PRODUCT * torch.get_num_threads()
    return OneDnnBackend if large and faster_here() and ordinary(*factors) else TorchBackend


def linear_backend(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> type[MatmulBackend]:
    """The faster one for x Wᵀ + b; of a few rows torch's own is, whatever the processor."""
    fits = x.shape[-1:] == weight.shape[1:] and (bias is None or bias.shape == weight.shape[:1])
    if not fits or x.numel() < LEAST_ROWS * weight.shape[1]:  # what does not fit, torch says or knows how to fit
        return TorchBackend
    return matmul_backend(x.numel() * weight.shape[0], x, weight, *(() if bias is None else (bias,)))


@cache
def available() -> bool:
    """Whether torch was built with oneDNN and has what is asked of it here, which is not public."""
    asked = ("_linear_pointwise", "_reorder_linear_weight")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in asked)


@cache
def faster_here() -> bool:
    """Whether oneDNN is there and uses wider vectors than MKL.

    It is known by the processor and never by a clock: the same run has the same bits whatever else the machine does.
    """
    if not available() or not torch.backends.mkl.is_available():
        return False
    processor = torch.cpu.get_capabilities()
    faster = bool(processor.get("avx512_f")) and str(processor.get("cpu_name")).startswith("AMD")
    if faster:  # read when oneDNN is first asked; a user who has set them is heard
        for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
            os.environ.setdefault(name, str(KEPT_SHAPES))
    return faster


def ordinary(*factors: Tensor) -> bool:
    """Whether these are plain numbers, multiplied in full precision, and nothing is on that looks at operations."""
    return (
        all(type(x) in (Tensor, nn.Parameter) and x.dtype is torch.float32 for x in factors)
        and all(x.device.type == "cpu" and x.layout is torch.strided for x in factors)
        and bool(torch.backends.mkldnn.enabled)
        and torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")  # ty: ignore[missing-attribute]
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
    )


def backend_name() -> str:
    """Who makes the large products in single precision: what a run's bits depend on."""
    return "oneDNN" if faster_here() and torch.backends.mkldnn.enabled else "torch"
