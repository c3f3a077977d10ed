"""Which library multiplies float32 matrices on a CPU: the one rule for all kernels.

torch uses MKL, which reserves AVX512 for Intel processors. On AMD processors with AVX512, oneDNN (also part of torch)
computes the same products with the same accuracy in half the time. torch sends products there if

    torch.set_float32_matmul_precision("medium")

This public setting permits bfloat16. Without a faster bfloat16 unit oneDNN does not make use of the permission; with
AMX it does. So `use_onednn` tests the precision before it leaves the setting on. The setting is process-wide and costs
about 15 µs per product, which is too much for decoding with a few rows (`by_mkl`, `kernels/packed_linear.py`).
(`torch.backends.mkldnn.matmul.fp32_precision = "bf16"` does the same for CPUs alone, but afterwards
`torch.get_float32_matmul_precision()`, which other libraries call, raises.)
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

SETTING: Any = torch.backends.mkldnn.matmul  # ty: ignore[missing-attribute]
LARGEST_ERROR = 1e-5
"""of a product, relative to the product of absolute values; float32 stays below 1e-6, bfloat16 is above 1e-3"""
CACHED_SHAPES = 256
"""shapes whose compiled code oneDNN keeps, two megabytes each; its own limit is 1024, too many for varying lengths"""


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN uses wider vectors than MKL on this processor.

    The name of the processor decides, never a measurement, so that a run is reproducible to the bit on a busy machine.
    """
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkl.is_available():
        return False
    processor = _processor()
    return bool(processor.get("avx512_f")) and str(processor.get("cpu_name")).startswith("AMD")


def _processor() -> Mapping[str, object]:
    """Name and instructions of this processor; nothing from an older torch (2.9), which does not tell them."""
    return getattr(torch.cpu, "get_capabilities", dict)()


@cache
def processor_has_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 matrices by instructions of its own (AVX512-BF16 or AMX).

    Without them oneDNN emulates bfloat16, many times slower than float32.
    """
    processor = _processor()
    return torch.backends.mkldnn.is_available() and bool(processor.get("avx512_bf16") or processor.get("amx_bf16"))


def has_bfloat16_unit(*factors: Tensor) -> bool:
    """Return whether oneDNN multiplies these factors by the processor's bfloat16 instructions."""
    types = all(x.dtype is torch.bfloat16 and x.device.type == "cpu" for x in factors)
    return types and processor_has_bfloat16() and bool(torch.backends.mkldnn.enabled)


@cache
def full_precision() -> bool:
    """Return whether oneDNN keeps float32 precision: products under the setting, which must be on, against float64."""
    x, y = (torch.randn(2, 96, 96, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    largest = 0.0
    for a, b in ((x[0], y[0]), (x[0].T, y[0]), (x[0], y[0].T), (x, y)):
        error = (a @ b - a.double() @ b.double()).abs() / (a.double().abs() @ b.double().abs())
        largest = max(largest, float(error.max()))
    return largest < LARGEST_ERROR


def use_onednn() -> bool:
    """Send float32 products of this process to oneDNN if that is faster here and keeps full precision.

    A setting other than full precision, which the user must have made, stays. Returns whether oneDNN multiplies.
    """
    if SETTING.fp32_precision in ("none", "ieee") and onednn_is_faster():
        for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # read at the first product
            os.environ.setdefault(name, str(CACHED_SHAPES))
        torch.set_float32_matmul_precision("medium")
        if not full_precision():
            torch.set_float32_matmul_precision("highest")
    return by_onednn()


def by_onednn(*factors: Tensor) -> bool:
    """Return whether oneDNN multiplies these float32 factors."""
    return (
        SETTING.fp32_precision == "bf16"
        and bool(torch.backends.mkldnn.enabled)
        and all(x.dtype is torch.float32 and x.device.type == "cpu" for x in factors)
    )


def backend_name() -> str:
    """Return the library that multiplies float32 matrices, which the bits of a run depend on."""
    if not by_onednn():
        return "torch"
    return "oneDNN" if full_precision() else "oneDNN in bfloat16"


@contextmanager
def by_mkl() -> Generator[None]:
    """Switch the setting off: for decoding, whose products are small. Not for use beside threads that multiply."""
    before = by_onednn()
    if before:
        torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if before:
            torch.set_float32_matmul_precision("medium")
