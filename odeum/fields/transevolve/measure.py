"""Measurement at the start of a TransEvolve block: queries, keys, and the form in which they are applied."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from odeum.draws import Keyed
from odeum.errors import OdeumError, choose
from odeum.fields.attention import check_heads, check_mask, rotate, split_heads
from odeum.fields.base import Source
from odeum.fields.noise import drop
from odeum.fields.transevolve.forms import Anchor, Drift, Flex, Fused, Linear, Shared, Single
from odeum.fields.transevolve.linear import LinearFeatures
from odeum.kernels.attention import is_masked
from odeum.kernels.autograd import plain_autograd
from odeum.kernels.exponential import SharedExponential

FORMS = ("auto", "shared", "fused", "flex", "linear")
LARGEST_SHARED = 1 << 30
"""bytes of P up to which `auto` shares the exponential on a CPU"""


class Measure(Keyed, nn.Module):
    """Measures a block's anchor. Only live weights are stored; `dead_parameters` more were published."""

    def __init__(
        self,
        width: int,
        heads: int,
        time_width: int | None = None,
        *,
        form: str = "auto",
        features: int = 128,
        seed: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(width, heads)
        time_width = time_width or width // heads
        self.heads = heads
        self.time_width = time_width
        self.form = choose(form, FORMS, "form of the evolved attention")
        total = width + heads * time_width
        self.q = nn.Linear(width, total, bias=False)
        self.k = nn.Linear(width, total, bias=False)
        self.time = nn.Parameter(torch.empty(total, heads * time_width))
        for weight in (self.q.weight, self.k.weight, self.time):
            # Glorot for the whole published matrix of D × D, of which these are columns.
            nn.init.uniform_(weight, -math.sqrt(3.0 / total), math.sqrt(3.0 / total))
        self.dropout = dropout
        self.features = LinearFeatures(total // heads, features, seed) if form == "linear" else None
        self.dead_parameters = total * heads * time_width

    def forward(self, x: Tensor, source: Source, *, cross: bool = False) -> Anchor:
        q = rotate(split_heads(self._dropped(self.q(x)), self.heads), source.rotary)
        if cross:
            memory = source.memory
            if memory is None:
                raise OdeumError("cross-attention needs a memory: give Context(other=Source(memory=...))")
            if source.cache is None:
                keys, new = self._keys(memory, source)
            else:
                keys, new = source.cache.constant(lambda: self._keys(memory, source))
            k = split_heads(keys, self.heads)
        else:
            keys, new = self._keys(x, source)
            k = rotate(split_heads(keys, self.heads), source.rotary)
            if source.cache is not None:
                (k,) = source.cache.extend(k)
        if source.mask is not None:
            check_mask(source.mask, (*q.shape[:-1], k.shape[-2]))
        drift = Drift(new, self.time.to(new.dtype) if source.cache is None else None)
        if self.features is not None:
            return Linear(self.features(q, k, source), drift)
        if q.shape[-2] == 1 and source.cache is not None:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
            if source.mask is not None:
                if source.mask.is_floating_point():
                    scores = scores + source.mask.to(scores.dtype)
                scores = scores.masked_fill(is_masked(source.mask), torch.finfo(scores.dtype).min)
            return Single(scores, drift)
        form = self.form_at(q.shape[-2], k.shape[-2], q.shape[0], q.device.type)
        if form == "shared" and _shareable(q, k, source.mask):
            causal = source.causal and q.shape[-2] > 1
            return Shared(q, k, drift, SharedExponential.measure(q, k, source.mask, causal))
        return Flex(q, k, drift) if form == "flex" and _flexible(q) else Fused(q, k, drift)

    def form_at(self, queries: int, keys: int | None = None, batch: int = 1, device: str = "cpu") -> str:
        """Which form runs: shared, fused, flex or linear.

        A compiled graph cannot look at the range of the drift, so it always holds the fused form.
        """
        if self.form == "linear":
            return "linear"
        if self.form == "fused" or torch.compiler.is_compiling():
            return "fused"
        if self.form in ("shared", "flex"):
            return self.form
        size = 4 * batch * self.heads * queries * (keys or queries)
        return "shared" if device in ("cpu", "meta") and size <= LARGEST_SHARED else "fused"

    def _keys(self, x: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """The keys, and what meets T(t): themselves, or k · W_Q,time of the few of a decoding step, to be cached so."""
        k = self._dropped(self.k(x))
        return k, k if source.cache is None else k @ self.time.to(k.dtype)

    def _dropped(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.dropout and self.training else x


def _flexible(q: Tensor) -> bool:
    """Whether flex attention of torch is one kernel with a gradient here; `torch.func` cannot transform it."""
    return q.device.type == "cuda" and plain_autograd() and not isinstance(q, FakeTensor)


def _shareable(q: Tensor, k: Tensor, mask: Tensor | None) -> bool:
    """Not in half precision, whose exponential underflows at −17, nor where there are no numbers to look at.

    Nor under a learned mask, whose gradient would be a tensor of queries × keys.
    """
    if mask is not None and mask.requires_grad and torch.is_grad_enabled():
        return False
    numbers = q.numel() > 0 and k.numel() > 0 and not isinstance(q, FakeTensor)
    return numbers and q.dtype != torch.float16 and plain_autograd()
