"""Two alternatives to softmax attention, as baselines: linear attention and the dense Synthesizer.

- *Linear attention* (Katharopoulos et al. 2020, arXiv 2006.16236): weights φ(q)·φ(k) with φ(x) = elu(x) + 1, divided by
  their sum. Without an order of the positions the keys and values are summed once, so the cost grows linearly with the
  length. With a causal mask the weights are computed pair by pair: the same function at quadratic cost.
- *Dense Synthesizer* (Tay et al. 2021, arXiv 2005.00743): a query's scores are a small network of the query's own
  state, one output per position; keys are not read. It is built for a longest length.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odeum.draws import drawing
from odeum.errors import OdeumError
from odeum.fields.attention import check_heads, check_mask, merge_heads, reset, rotate, split_heads, visible
from odeum.fields.base import Context, Field, Source
from odeum.fields.noise import Dropout
from odeum.kernels.attention import is_masked


def _refuse_depth(source: Source, what: str) -> None:
    if source.past is not None:
        raise OdeumError(f"{what} cannot read keys and values of earlier layers; use attention=attention there")


def _mask(source: Source, queries: int, keys: int, x: Tensor, heads: int) -> Tensor | None:
    """The mask of the source, with the causal order merged in."""
    if source.mask is not None:
        check_mask(source.mask, (x.shape[0], heads, queries, keys))
    mask, causal = visible(source, queries, keys, x.device)
    if causal:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=x.device).tril()
    return mask if mask is None or mask.dtype == torch.bool else mask.to(x.dtype)


def _normalised(weighted: Tensor, total: Tensor) -> Tensor:
    """weighted / total, and zeros for a query that may attend to nothing."""
    empty = total == 0
    return (weighted / total.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


class LinearAttention(Field):
    """Attention with the weights φ(q)·φ(k), φ(x) = elu(x) + 1."""

    symbol = "G"
    role = "attention"
    cached = True

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.dropout = Dropout(dropout)
        with drawing("qkv"):
            reset(self.qkv, parts=3)
        with drawing("out"):
            reset(self.out)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        source = context.own
        _refuse_depth(source, "linear attention")
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = (F.elu(rotate(part, source.rotary)) + 1.0 for part in (q, k))
        if source.cache is not None:
            k, v = source.cache.extend(k, v)
        mask = _mask(source, q.shape[-2], k.shape[-2], x, self.heads)
        if mask is not None:
            mask = mask.to(x.dtype) if mask.dtype == torch.bool else mask.exp()
        if mask is not None and mask.shape[-2] > 1:
            weights = q @ k.mT * mask
            seen = _normalised(weights @ v, weights.sum(-1, keepdim=True))
        else:
            if mask is not None:  # the same keys for all queries
                k = k * mask.mT
            seen = _normalised(q @ (k.mT @ v), q @ k.sum(-2, keepdim=True).mT)
        return self.dropout(self.out(merge_heads(seen)), context.noise)

    def formula(self, x: str) -> str:
        return f"{self.symbol}({x})"

    def extra_repr(self) -> str:
        return f"width={self.out.out_features}, heads={self.heads}"


class SynthesizedAttention(Field):
    """Attention whose scores are a network of the query alone, with one output per head and position."""

    symbol = "G"
    role = "attention"
    cached = True

    def __init__(self, width: int, heads: int, length: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads, self.length = heads, length
        self.hidden = nn.Linear(width, width, bias=bias)
        self.scores = nn.Linear(width, heads * length, bias=bias)
        self.v = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.dropout = Dropout(dropout)
        for name in ("hidden", "scores", "v", "out"):
            with drawing(name):
                reset(getattr(self, name))

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        source = context.own
        _refuse_depth(source, "a Synthesizer")
        if source.rotary is not None:
            raise OdeumError(
                "a Synthesizer has no keys to rotate, so rotary positions do not apply; use positions=learned"
            )
        v = split_heads(self.v(x), self.heads)
        if source.cache is not None:
            v, _ = source.cache.extend(v, v)
        keys = v.shape[-2]
        if keys > self.length:
            raise OdeumError(
                f"a Synthesizer built for {self.length} positions cannot attend to {keys}; give --model.length {keys}"
            )
        scores = self.scores(self.hidden(x).relu()).unflatten(-1, (self.heads, self.length)).transpose(1, 2)
        scores = scores[..., :keys]
        mask = _mask(source, x.shape[1], keys, x, self.heads)
        if mask is None:
            seen = scores.softmax(-1) @ v
        else:
            hidden = is_masked(mask)
            scores = scores if mask.dtype == torch.bool else scores + mask
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)  # no row of −∞: its gradient is NaN
            seen = (scores.softmax(-1) @ v).masked_fill(hidden.all(-1, keepdim=True), 0.0)
        return self.dropout(self.out(merge_heads(seen)), context.noise)

    def formula(self, x: str) -> str:
        return f"{self.symbol}({x})"

    def extra_repr(self) -> str:
        return f"width={self.out.out_features}, heads={self.heads}, length={self.length}"
