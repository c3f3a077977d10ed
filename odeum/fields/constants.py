"""Constant tensors that are computed once and shared."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode


def cached_constant(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of numbers and a device whose tensors are made once and then shared: decoding needs few, often.

    A tracer, and a mode that fakes or counts, must see how they are made; and a tensor first made in inference mode
    is of use in training too.
    """

    @functools.lru_cache(maxsize=256)
    def once(*numbers: object) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            return make(*numbers)

    @functools.wraps(make)
    def get(*numbers: object) -> Tensor:
        watched = torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None
        return make(*numbers) if watched else once(*numbers)

    return get
