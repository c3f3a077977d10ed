"""Softmax attention in tiles of queries, with the faster matmul backend.

Where oneDNN is that backend (`kernels/matmul.py`), tiles take two thirds of the time of torch's fused kernel from about
400 tokens on. A tile fits a core's cache; no queries × keys tensor exists, and backward computes each tile again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from odeum.kernels.autograd import gradients_of, more_than_a_gradient, plain_autograd
from odeum.kernels.matmul import OneDnnBackend, matmul_backend

TILE_OF_SCORES = 1 << 19
"""scores that are computed at a time, so that all passes over them stay in the cache"""
CAUSAL_TILES = 4
"""into how many a causal sequence is divided at least: keys that all queries of a tile may not see are left out"""
LEAST_HEAD = 1 << 23
"""multiply–adds of one product of one head, half of them where it is causal, below which torch's kernel is as fast"""


def hides(mask: Tensor) -> Tensor:
    """Return True where a query may not look, of a boolean or an additive mask."""
    return ~mask if mask.dtype == torch.bool else mask == -torch.inf


def reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Compute attention by plain operations, differentiable any number of times."""
    scores, least = q @ k.transpose(-1, -2) * _scale(q), torch.finfo(q.dtype).min
    if mask is not None and mask.is_floating_point():
        scores = scores + mask
        scores = scores.masked_fill(scores.amax(dim=-1, keepdim=True) == -torch.inf, 0.0)
    elif mask is not None:
        scores = scores.masked_fill(~mask, least)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, least)
    return scores.softmax(dim=-1) @ v


def worth_tiling(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> bool:
    """Whether attention in tiles is faster here than torch's kernel, and as good: a learned mask gets no gradient."""
    if type(q) is not Tensor or not plain_autograd():  # first: what is traced has no size to ask for
        return False
    if (mask is not None and mask.requires_grad) or not torch.backends.cuda.flash_sdp_enabled():
        return False  # within torch.nn.attention.sdpa_kernel another kernel was asked for, on a CPU too
    if not q.shape[:2] == k.shape[:2] == v.shape[:2] or q.shape[3:] != k.shape[3:] or k.shape[2:3] != v.shape[2:3]:
        return False
    operations = q.shape[-2] * k.shape[-2] * q.shape[-1] // (2 if causal else 1)
    return operations >= LEAST_HEAD and matmul_backend(operations, q, k, v) is OneDnnBackend


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q kᵀ / √d + mask) v over [batch, heads, length, d]; a query must see something, or be left out after it.

    The mask broadcasts to the scores: True where a query may look, or added. `causal`: queries are as many as keys.
    """
    return _TiledAttention.apply(q, k, v, mask, causal)


class _TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[-1])  # heads side by side, as W_O wants them
        for place, (qs, ks, vs), hidden in _heads(q, k, v, mask=mask):
            here = out[place[0], :, place[1]]
            for rows, keys in _tiles(len(qs), len(ks), causal):
                here[rows] = OneDnnBackend.times(_weights(qs[rows], ks[keys], hidden, causal, rows), vs[keys])
        ctx.save_for_backward(q, k, v, mask, out)
        ctx.causal = causal
        return out.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        q, k, v, mask, out = ctx.saved_tensors
        (grad,) = grads
        if more_than_a_gradient(grad):
            return gradients_of(reference, (q, k, v, mask, ctx.causal), ctx.needs_input_grad, grad)
        dq, dk, dv = (torch.empty_like(x.transpose(1, 2)).transpose(1, 2) for x in (q, k, v))
        # The mean of a row's gradients, by its weights; not by a product, which autocast would round.
        means = (grad * out.transpose(1, 2)).sum(dim=-1, keepdim=True)
        for place, (qs, ks, vs, gs), hidden in _heads(q, k, v, grad, mask=mask):
            of_keys, of_values = ks.new_zeros(ks.shape[::-1]), vs.new_zeros(vs.shape[::-1])
            for rows, keys in _tiles(len(qs), len(ks), ctx.causal):
                weights = _weights(qs[rows], ks[keys], hidden, ctx.causal, rows)
                of_values[:, keys] += OneDnnBackend.times(gs[rows].T, weights)
                change = OneDnnBackend.linear(gs[rows], vs[keys]).sub_(means[place][rows]).mul_(weights)
                torch.mul(OneDnnBackend.times(change, ks[keys]), _scale(q), out=dq[place][rows])
                of_keys[:, keys] += OneDnnBackend.times(qs[rows].T, change)
            dk[place], dv[place] = of_keys.T, of_values.T
        return dq, dk, dv, None, None


def _scale(q: Tensor) -> float:
    return q.shape[-1] ** -0.5


def _heads(
    q: Tensor, *others: Tensor, mask: Tensor | None
) -> Iterator[tuple[tuple[int, int], list[Tensor], Tensor | None]]:
    """Each head of each sample: where it is, its scaled queries and its other tensors, and its mask."""
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], others[0].shape[-2])
    for place in product(range(q.shape[0]), range(q.shape[1])):
        parts = [q[place] * _scale(q), *(x[place].contiguous() for x in others)]
        yield place, parts, None if mask is None else mask[place]


def _tiles(queries: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Rows of queries, and the keys that any of them may see."""
    step = max(32, TILE_OF_SCORES // keys)
    if causal:
        step = min(step, max(32, queries // CAUSAL_TILES))
    step = 1 << (step.bit_length() - 1)  # so that sequences of other lengths have tiles of the same size
    for start in range(0, queries, step):
        stop = min(start + step, queries)
        yield slice(start, stop), slice(0, stop if causal else keys)


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, rows: slice) -> Tensor:
    """What these queries give to each key. One that sees nothing gives to all: its caller leaves it out."""
    scores, least = OneDnnBackend.linear(q, k), torch.finfo(q.dtype).min
    if mask is not None and mask.is_floating_point():
        scores.add_(mask[rows])
        scores.masked_fill_(scores.amax(dim=-1, keepdim=True) == -torch.inf, 0.0)
    elif mask is not None:
        scores.masked_fill_(~mask[rows], least)
    if causal:
        later = torch.ones(len(q), len(q), dtype=torch.bool).triu_(1)
        scores[:, rows].masked_fill_(later, least)
    return torch.softmax(scores, dim=-1, out=scores)
