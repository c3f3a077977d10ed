"""The shared exponential: P = exp(A0 − row maximum) is computed once per block; depth t needs P (e^b ⊙ v) / (P e^b).

The scores' gradient is computed once per block too. Each evaluation leaves its two thin factors in a ledger instead of
a queries × keys gradient of P; when the gradient reaches P, one product of the gathered factors gives all of it, tile
by tile. So P is the only quadratic tensor that ever exists, forward or backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from odeum.kernels.attention import is_masked
from odeum.kernels.autograd import gradients_of, needs_plain_gradients

TILE = 1 << 21
"""bytes of P worked on at a time, so that the passes over a tile stay in the cache"""
CAUSAL_TILE = 256
"""rows of a causal P multiplied at a time, so that half of the product is never made"""
FEW = 16
"""a matrix of fewer columns is multiplied from the left, which is faster"""


def reference(q: Tensor, k: Tensor, b: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Compute A(t) v = softmax(q kᵀ / √d + mask + b) v by plain operations, [batch, queries, width].

    b is [batch, heads, keys]. A query that sees nothing gets zeros.
    """
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + b.unsqueeze(-2)
    if mask is not None and mask.is_floating_point():
        scores = scores + mask
    everything = slice(None)
    hidden = _hidden(scores, mask, causal, everything, everything, everything, scores.shape[-1])
    if hidden is None:
        return (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(-2)
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(hidden, 0.0)
    return (weights @ v).transpose(1, 2).flatten(-2)


def _hidden(
    p: Tensor, mask: Tensor | None, causal: bool, batch: slice, head: slice, rows: slice, stop: int
) -> Tensor | None:
    """Return True where the tile's queries may not look; causal: the last query is aligned with the last key."""
    hidden = None
    if mask is not None:
        hidden = is_masked(mask.expand(p.shape)[batch, head, rows, :stop])
    if causal:
        first = (rows.start or 0) + p.shape[-1] - p.shape[-2]
        count = len(range(p.shape[-2])[rows])
        later = torch.ones(count, stop, dtype=torch.bool, device=p.device).triu(first + 1)
        hidden = later if hidden is None else hidden | later
    return hidden


def exponent_floor(dtype: torch.dtype) -> float:
    """The smallest exponent: exp is slow where its result is denormal, and larger exponents lose nothing."""
    return -700.0 if dtype == torch.float64 else -80.0


def largest_spread(dtype: torch.dtype) -> float:
    """The largest max b − min b for which the shared exponential is exact.

    A row's largest score has P = 1, so its normaliser is at least e^−spread, while what the floor changes is at most
    keys · e^floor: with half the floor as the limit, the relative error is below keys · e^−40.
    """
    return -0.5 * exponent_floor(dtype)


def within_range(b: Tensor) -> list[bool]:
    """At which depths e^b stays far from underflow; with a steep drift the softmax is left to the fused form."""
    if b.device.type == "meta":
        return [True] * b.shape[2]
    low, high = torch.aminmax(b.detach(), dim=-1)
    return ((high - low).amax(dim=(0, 1)) <= largest_spread(b.dtype)).tolist()


class Ledger:
    """The factors of the gradient of P, left by the evaluations of one backward pass."""

    def __init__(self) -> None:
        self.entries: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def add(self, of_rows: Tensor, of_keys: Tensor) -> None:
        """The gradient of P has one more term: of_rows of_keysᵀ."""
        self.entries.setdefault(torch._C._current_graph_task_id(), []).append((of_rows, of_keys))

    def take(self) -> list[tuple[Tensor, Tensor]]:
        """The terms of this pass; leftovers of unfinished passes are dropped."""
        entries = self.entries.get(torch._C._current_graph_task_id(), [])
        self.entries.clear()
        return entries


def _exponential(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, _: None) -> Tensor:
    """Compute P by plain operations, differentiable any number of times."""
    scores = q @ k.transpose(-1, -2)
    if mask is not None and mask.is_floating_point():
        scores = scores + mask
    everything = slice(None)
    hidden = _hidden(scores, mask, causal, everything, everything, everything, scores.shape[-1])
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    top = scores.detach().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    return (scores - top).exp()


class Exponential(torch.autograd.Function):
    """P = exp(q kᵀ + mask − row maximum), zero where a query may not look.

    The gradient through the row maximum is left out: what is made of P does not change when a row is scaled.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, ledger: Ledger) -> Tensor:
        p = q.new_empty(*q.shape[:-1], k.shape[-2])
        floor = exponent_floor(p.dtype)
        for batch, head, rows, stop in _tiles(p, causal):
            tile = p[batch, head, rows, :stop]
            scores = torch.matmul(q[batch, head, rows], k[batch, head, :stop].transpose(-1, -2), out=tile)
            if mask is not None and mask.is_floating_point():
                scores.add_(mask.expand(p.shape)[batch, head, rows, :stop])
            hidden = _hidden(p, mask, causal, batch, head, rows, stop)
            if hidden is not None:
                scores.masked_fill_(hidden, -torch.inf)
            top = scores.amax(dim=-1, keepdim=True).clamp_(min=torch.finfo(p.dtype).min)
            scores.sub_(top).clamp_(min=floor).exp_()
            if hidden is not None:
                tile.masked_fill_(hidden, 0.0)
            if stop < p.shape[-1]:
                p[batch, head, rows, stop:] = 0.0
        ctx.save_for_backward(q, k, mask, p)
        ctx.set_materialize_grads(False)
        ctx.plan = (causal, ledger)
        return p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        (direct,) = grads
        q, k, mask, p = ctx.saved_tensors
        causal, ledger = ctx.plan
        terms = ledger.take()
        if not terms and direct is None:
            return (None,) * 5
        if direct is not None and needs_plain_gradients(direct):
            assert not terms
            return gradients_of(_exponential, (q, k, mask, causal, None), ctx.needs_input_grad, direct)
        dq, dk = torch.empty_like(q), k.new_zeros(*k.shape[:-2], k.shape[-1], k.shape[-2])
        here, of_keys = None, k
        for batch, head, rows, stop in _tiles(p, causal):
            if not terms:
                assert direct is not None
                change = direct[batch, head, rows, :stop] * p[batch, head, rows, :stop]
            else:
                # Gathered tile by tile: what is copied is multiplied while it is in the cache.
                if here != (batch, head):
                    here, of_keys = (batch, head), torch.cat([x[batch, head] for _, x in terms], dim=-1)
                of_rows = torch.cat([x[batch, head, rows] for x, _ in terms], dim=-1)
                change = of_rows @ of_keys[:, :, :stop].transpose(-1, -2)
                if direct is not None:
                    change += direct[batch, head, rows, :stop]
                change *= p[batch, head, rows, :stop]
            dq[batch, head, rows] = change @ k[batch, head, :stop]
            dk[batch, head, :, :stop] += q[batch, head, rows].transpose(-1, -2) @ change
        return dq, dk.transpose(-1, -2), None, None, None


def _normaliser(p: Tensor, e: Tensor, *_: None) -> Tensor:
    """Compute P e by plain operations."""
    out = e @ p.transpose(-1, -2)
    return out + (out == 0)


class Normaliser(torch.autograd.Function):
    """P e for several e, [batch, heads, depths, keys] to [batch, heads, depths, queries]; 1 for a blind query."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, e: Tensor, causal: bool, ledger: Ledger | None) -> Tensor:
        out = _rows_times(p, e.transpose(-1, -2), causal).transpose(-1, -2)
        out += out == 0
        ctx.save_for_backward(p, e)
        ctx.plan = (causal, ledger)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        p, e = ctx.saved_tensors
        causal, ledger = ctx.plan
        if needs_plain_gradients(grads[0]):
            return gradients_of(_normaliser, (p, e, None, None), ctx.needs_input_grad, grads[0])
        grad = grads[0].transpose(-1, -2)
        direct = _term(ledger, grad, e.transpose(-1, -2)) if ctx.needs_input_grad[0] else None
        return direct, _columns_times(p, grad, causal).transpose(-1, -2), None, None


def _shared_attention(p: Tensor, e: Tensor, normaliser: Tensor, v: Tensor, *_: None) -> Tensor:
    """Compute P (e ⊙ v) / normaliser by plain operations."""
    out = (p @ (v * e.unsqueeze(-1)).to(p.dtype)) / normaliser.unsqueeze(-1)
    return out.transpose(1, 2).flatten(-2)


class SharedAttention(torch.autograd.Function):
    """P (e ⊙ v) / normaliser for e [batch, heads, keys], v [batch, heads, keys, features]; a blind query gets zeros."""

    @staticmethod
    def forward(
        ctx: Any, p: Tensor, e: Tensor, normaliser: Tensor, v: Tensor, causal: bool, ledger: Ledger | None
    ) -> Tensor:
        out = p.new_empty(p.shape[0], p.shape[2], p.shape[1], v.shape[-1])  # heads side by side, as W_O wants them
        torch.div(_rows_times(p, _weighed(v, e, p), causal), normaliser.unsqueeze(-1), out=out.transpose(1, 2))
        ctx.save_for_backward(p, e, normaliser, v, out)
        ctx.plan = (causal, ledger)
        return out.flatten(-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        p, e, normaliser, v, out = ctx.saved_tensors
        causal, ledger = ctx.plan
        if needs_plain_gradients(grads[0]):
            inputs = (p, e, normaliser, v, None, None)
            return gradients_of(_shared_attention, inputs, ctx.needs_input_grad, grads[0])
        ev = _weighed(v, e, p)
        e, normaliser = e.unsqueeze(-1), normaliser.unsqueeze(-1)
        grad = grads[0].unflatten(-1, out.shape[-2:])
        dnormaliser = -torch.linalg.vecdot(grad, out).transpose(1, 2) / normaliser.squeeze(-1)
        dnum = torch.div(grad.transpose(1, 2), normaliser, out=out.new_empty(normaliser.shape[:-1] + ev.shape[-1:]))
        back = _columns_times(p, dnum, causal)
        de = (back * ev).sum(dim=-1) / e.squeeze(-1)
        direct = _term(ledger, dnum, ev) if ctx.needs_input_grad[0] else None
        return direct, de, dnormaliser, back.mul_(e).to(v.dtype), None, None


def _weighed(v: Tensor, e: Tensor, p: Tensor) -> Tensor:
    """e ⊙ v in the memory layout and precision that the product with P needs."""
    e = e.unsqueeze(-1)
    return torch.mul(v, e, out=p.new_empty(v.shape)) if v.dtype == p.dtype else (v * e).to(p.dtype)


def _term(ledger: Ledger | None, of_rows: Tensor, of_keys: Tensor) -> Tensor | None:
    """A term of the gradient of P: noted in the ledger, or multiplied out."""
    if ledger is None:
        return of_rows @ of_keys.transpose(-1, -2)
    return ledger.add(of_rows, of_keys)


class Evolution(NamedTuple):
    """The factors of A(t) besides P: e^(b − max b) [batch, heads, keys] and P times it [batch, heads, queries]."""

    e: Tensor
    normaliser: Tensor


class SharedExponential(NamedTuple):
    """P of a block, which all its evaluations share."""

    p: Tensor
    causal: bool
    ledger: Ledger

    @classmethod
    def measure(cls, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> SharedExponential:
        ledger, q, k = Ledger(), (q * q.shape[-1] ** -0.5).contiguous(), k.contiguous()
        return cls(Exponential.apply(q, k, mask, causal, ledger), causal, ledger)

    def evolve(self, b: Tensor) -> list[Evolution]:
        """For b of several depths, [batch, heads, depths, keys]: P is read once for all of them."""
        top = b.detach().amax(dim=-1, keepdim=True)
        e = torch.exp((b - top).clamp(min=exponent_floor(b.dtype))).to(self.p.dtype)
        normaliser = Normaliser.apply(self.p, e, self.causal, self._ledger)
        return [Evolution(*pair) for pair in zip(e.unbind(2), normaliser.unbind(2), strict=True)]

    def act(self, evolution: Evolution, v: Tensor) -> Tensor:
        """A(t) v, [batch, queries, width]"""
        return SharedAttention.apply(self.p, *evolution, v, self.causal, self._ledger)

    @property
    def _ledger(self) -> Ledger | None:
        """It serves only a P that comes straight from its Exponential."""
        return self.ledger if isinstance(self.p.grad_fn, Exponential._backward_cls) else None


def _tiles(p: Tensor, causal: bool) -> Iterator[tuple[slice, slice, slice, int]]:
    """Whole samples while they are small, else rows of one head; and how many keys these rows may see."""
    batch, heads, rows, keys = p.shape
    size = keys * p.element_size()
    if heads * rows * size <= TILE:
        step = max(1, TILE // max(1, heads * rows * size))
        for start in range(0, batch, step):
            yield slice(start, start + step), slice(None), slice(None), keys
        return
    step = min(rows, max(32, TILE // size))
    for sample in range(batch):
        for head in range(heads):
            for start in range(0, rows, step):
                stop = min(start + step, rows) + keys - rows if causal else keys
                yield slice(sample, sample + 1), slice(head, head + 1), slice(start, start + step), stop


def _rows_times(p: Tensor, x: Tensor, causal: bool) -> Tensor:
    """P x; of a causal P only the blocks that are not zero."""
    rows, keys = p.shape[-2:]
    if not causal or rows <= 2 * CAUSAL_TILE:
        return _times(p, x)
    out = p.new_empty(*p.shape[:-1], x.shape[-1])
    for start in range(0, rows, CAUSAL_TILE):
        stop = min(start + CAUSAL_TILE, rows)
        seen = stop + keys - rows
        out[..., start:stop, :] = _times(p[..., start:stop, :seen], x[..., :seen, :])
    return out


def _columns_times(p: Tensor, x: Tensor, causal: bool) -> Tensor:
    """Pᵀ x; of a causal P only the blocks that are not zero."""
    rows, keys = p.shape[-2:]
    if not causal or rows <= 2 * CAUSAL_TILE:
        return (x.transpose(-1, -2) @ p).transpose(-1, -2)
    out = p.new_zeros(*p.shape[:-2], x.shape[-1], keys)
    for start in range(0, rows, CAUSAL_TILE):
        stop = min(start + CAUSAL_TILE, rows)
        seen = stop + keys - rows
        out[..., :seen] += x[..., start:stop, :].transpose(-1, -2) @ p[..., start:stop, :seen]
    return out.transpose(-1, -2)


def _times(p: Tensor, x: Tensor) -> Tensor:
    """P x"""
    if x.shape[-1] < FEW:
        return (x.transpose(-1, -2) @ p.transpose(-1, -2)).transpose(-1, -2)
    return p @ x
