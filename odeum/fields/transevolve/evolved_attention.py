"""TransEvolve (Dutta et al. 2021): attention measured once at a block's start and evolved over depth.

The published scores are A0 + (A1·T)[query axis] + (A2·T)[key axis] + T·A3·T. What is constant along the keys cancels in
the softmax, so only a drift of the keys is left: A(t) = softmax(q kᵀ / √(D/H) + b(t)) with b(t) = k · (W_Q,time T(t)).
A1, A3 and the time columns of W_K do nothing and are not stored.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from odeum.draws import drawing
from odeum.errors import OdeumError
from odeum.fields.attention import check_heads, reset, split_heads
from odeum.fields.base import Context, Field, Source
from odeum.fields.constants import cached_constant
from odeum.fields.noise import Dropout
from odeum.fields.transevolve.forms import Anchor


class EvolvedAttention(Field):
    """A(t) acting on the state: values are the (normed) state itself, split in heads; there is no W_V."""

    cross = False
    symbol = "G"
    timed = True
    role = "attention"

    def __init__(self, width: int, heads: int, time_width: int | None = None, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.time_width = time_width or width // heads
        signals = heads * self.time_width
        self.coefficients = nn.Parameter(torch.empty(signals))
        nn.init.uniform_(self.coefficients, -math.sqrt(6.0 / signals), math.sqrt(6.0 / signals))
        self.out = nn.Linear(width, width, bias=False)
        with drawing("out"):
            reset(self.out)
        self.dropout = Dropout(dropout)

    def depth_vector(self, t: float) -> Tensor:
        """T(t) = c ⊙ [sin(tπp/64) ‖ cos(tπp/64)], one vector a head."""
        c = self.coefficients
        signal = _signal(c.shape[0], t, torch.promote_types(c.dtype, torch.float32), c.device)
        return (c * signal).view(self.heads, self.time_width)

    def drift(self, t: float, anchor: Anchor) -> Tensor:
        """b(t) = k · (W_Q,time T(t)) of the new keys, [batch, heads, keys]."""
        return anchor.drift.of(self, t)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        source = context.own
        v, anchor = split_heads(x, self.heads), _anchor(source)
        if source.cache is None:
            moved = anchor.move(self, t, v, source)
        else:
            v, past = source.cache.extend(v, self.drift(t, anchor).unsqueeze(-1))
            moved = anchor.act(past.squeeze(-1), v, source)
        return self.dropout(self.out(moved), context.noise)

    def formula(self, x: str) -> str:
        return f"A(t)·{x}"


class EvolvedCrossAttention(EvolvedAttention):
    """A(t) acting on the memory, normed by this layer; the state is not read: its query is in the anchor."""

    cross = True
    symbol = "C"
    role = "cross"

    def __init__(
        self, width: int, heads: int, time_width: int | None = None, *, norm: nn.Module, dropout: float = 0.0
    ) -> None:
        super().__init__(width, heads, time_width, dropout=dropout)
        self.norm = norm

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        source = context.other
        anchor, memory = _anchor(source), source.memory
        assert memory is not None

        def values() -> Tensor:
            return split_heads(self.norm(memory), self.heads)

        if source.cache is None:
            moved = anchor.move(self, t, values(), source)
        else:
            v, b = source.cache.constant(lambda: (values(), self.drift(t, anchor)))
            moved = anchor.act(b, v, source)
        return self.dropout(self.out(moved), context.noise)

    def formula(self, x: str) -> str:
        return "C(t)·N(M)"


@cached_constant
def _signal(size: int, t: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[sin(tπp/64) ‖ cos(tπp/64)] for p = 0, 1, 2 …"""
    p = torch.arange(size - size // 2, device=device, dtype=dtype) * (t * (math.pi / 64.0))
    return torch.cat((p[: size // 2].sin(), p.cos()))


def _anchor(source: Source) -> Anchor:
    if source.anchor is None:
        raise OdeumError("an evolved attention needs an anchor: put its flow inside Anchored")
    return source.anchor
