"""The forms of an anchor: measured once per block, they compute softmax(A0 + b(t)) v at each depth.

An anchor is one of `Shared | Fused | Flex | Linear | Single`, equal but for rounding (`Linear` approximates). They are
tuples of tensors, so that an adjoint can differentiate what was measured like weights.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from odeum.fields.attention import attend, merge_heads
from odeum.fields.base import Source
from odeum.fields.transevolve.linear import Features, linear_attention
from odeum.kernels.attention import is_masked
from odeum.kernels.exponential import Evolution, SharedExponential, within_range


class Evolving(Protocol):
    """A field whose attention drifts with depth."""

    def depth_vector(self, t: float) -> Tensor:
        """T(t), one vector a head."""
        ...


class Drift(NamedTuple):
    """The parts of the drift of the new keys: b(t) = k · (W_Q,time T(t))."""

    new: Tensor  # [batch, new keys, D]: the keys, not rotated, whose drift is not cached yet; or k · W_Q,time
    time: Tensor | None  # [D, heads · time width]: W_Q,time, unless `new` holds it already

    def at(self, depth_vectors: Sequence[Tensor]) -> Tensor:
        """b for several T, [batch, heads, depths, keys]."""
        vectors = torch.stack(tuple(depth_vectors)).to(self.new.dtype)
        # A row for each depth and head, zero where the other heads are.
        signals = torch.diag_embed(vectors.transpose(1, 2), dim1=1, dim2=2).flatten(2).flatten(0, 1)
        if self.time is not None:
            signals = signals @ self.time.T
        # From the left: as the right factor, a matrix of so few columns is multiplied several times slower.
        b = (signals @ self.new.flatten(0, 1).T).view(*vectors.shape[:2], *self.new.shape[:2])
        return b.permute(2, 1, 0, 3)

    def of(self, field: Evolving, t: float) -> Tensor:
        """b(t) of this field, [batch, heads, keys]."""
        return self.at([field.depth_vector(t)]).squeeze(2)


class Anchor(Protocol):
    """The result of measuring a block once, in the form in which it is applied."""

    @property
    def drift(self) -> Drift:
        """The drift of its new keys."""
        ...

    def act(self, b: Tensor, v: Tensor, source: Source) -> Tensor:
        """softmax(A0 + b) v, [batch, queries, width]."""
        ...

    def move(self, field: Evolving, t: float, v: Tensor, source: Source) -> Tensor:
        """A(t) v of this field, from what was measured at the start of the block."""
        ...


class Fused(NamedTuple):
    """The drift as one more feature of queries and keys: the fused kernel, no queries × keys tensor."""

    q: Tensor  # [batch, heads, queries, D / heads]
    k: Tensor  # [batch, heads, keys, D / heads]
    drift: Drift

    def act(self, b: Tensor, v: Tensor, source: Source) -> Tensor:
        width = self.q.shape[-1]
        padded = (max(width + 1, v.shape[-1]) + 7) // 8 * 8
        # The kernel divides by √padded; we want √width, and the drift undivided.
        q = torch.cat(
            (self.q * math.sqrt(padded / width), self.q.new_full((*self.q.shape[:-1], 1), math.sqrt(padded))), -1
        )
        k = torch.cat((self.k, b.unsqueeze(-1).to(self.k.dtype)), -1)
        q, k = (nn.functional.pad(x, (0, padded - width - 1)) for x in (q, k))
        out = attend(q, k, nn.functional.pad(v.to(q.dtype), (0, padded - v.shape[-1])), source)
        return merge_heads(out[..., : v.shape[-1]])

    def move(self, field: Evolving, t: float, v: Tensor, source: Source) -> Tensor:
        return self.act(self.drift.of(field, t), v, source)


class Flex(NamedTuple):
    """The drift added to the scores inside torch's flex attention: no wider feature, no queries × keys tensor."""

    q: Tensor
    k: Tensor
    drift: Drift

    def act(self, b: Tensor, v: Tensor, source: Source) -> Tensor:
        mask, shape = source.mask, (*self.q.shape[:-1], self.k.shape[-2])
        causal, ahead = source.causal and shape[2] > 1, shape[3] - shape[2]
        seen = None if mask is None else mask.expand(shape)

        def score(s: Tensor, i: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            s = s + b[i, head, key]
            if seen is not None and seen.dtype != torch.bool:
                s = s + seen[i, head, query, key]
            elif seen is not None:
                s = torch.where(seen[i, head, query, key], s, -torch.inf)
            return torch.where(key <= query + ahead, s, -torch.inf) if causal else s

        inputs = [self.q, self.k, v.to(self.q.dtype)]
        if not torch.is_grad_enabled():  # on a CPU it asks its inputs, not whether a gradient is wanted
            inputs = [x.detach() for x in inputs]
        out = _flex_attention(self.q.device.type)(*inputs, score)
        if mask is not None:
            hidden = is_masked(mask)
            if causal:
                hidden = hidden | ~torch.ones(shape[2:], dtype=torch.bool, device=mask.device).tril(ahead)
            out = out.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)
        return merge_heads(out)

    def move(self, field: Evolving, t: float, v: Tensor, source: Source) -> Tensor:
        return self.act(self.drift.of(field, t), v, source)


@functools.cache
def _flex_attention(device: str) -> Any:
    """Compiled on a GPU, where it is one kernel; as it is on a CPU. Importing it loads torch's compiler."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if device == "cuda" else flex_attention


class Shared(NamedTuple):
    """P = exp(A0 − row maximum), made once; where the drift is steep, it is left to the fused form."""

    q: Tensor
    k: Tensor
    drift: Drift
    exponential: SharedExponential
    ahead: Mapping[tuple[int, float], Evolution] | None = None  # known evolutions, by (id of a field, t)

    def look_ahead(self, evaluations: Sequence[tuple[Evolving, float]]) -> Shared:
        """With the evolutions at these (field, t): they do not depend on the state, so all are computed together."""
        if not evaluations:
            return self
        b = self.drift.at([field.depth_vector(t) for field, t in evaluations])
        evolutions = zip(evaluations, self.exponential.evolve(b), within_range(b), strict=True)
        return self._replace(ahead={(id(field), t): evolution for (field, t), evolution, exact in evolutions if exact})

    def act(self, b: Tensor, v: Tensor, source: Source) -> Tensor:
        b = b.unsqueeze(2)
        if all(within_range(b)):
            (evolution,) = self.exponential.evolve(b)
            return self.exponential.act(evolution, v)
        return Fused(self.q, self.k, self.drift).act(b.squeeze(2), v, source)

    def move(self, field: Evolving, t: float, v: Tensor, source: Source) -> Tensor:
        known = self.ahead.get((id(field), t)) if self.ahead else None
        if known is not None:
            return self.exponential.act(known, v)
        return self.act(self.drift.of(field, t), v, source)


class Linear(NamedTuple):
    """φ(q), φ(k) of positive random features: linear in length, an approximation."""

    features: Features
    drift: Drift

    def act(self, b: Tensor, v: Tensor, source: Source) -> Tensor:
        return merge_heads(linear_attention(self.features, b, v, source.causal))

    def move(self, field: Evolving, t: float, v: Tensor, source: Source) -> Tensor:
        return self.act(self.drift.of(field, t), v, source)


class Single(NamedTuple):
    """A0 of a single query: in decoding, the softmax itself is the shortest form."""

    scores: Tensor  # [batch, heads, 1, keys], the least number where the query may not look
    drift: Drift

    def act(self, b: Tensor, v: Tensor, source: Source) -> Tensor:
        weights = (self.scores + b.unsqueeze(-2)).softmax(dim=-1)
        if source.mask is not None:
            weights = weights.masked_fill(is_masked(source.mask), 0.0)
        return merge_heads(weights.to(v.dtype) @ v)

    def move(self, field: Evolving, t: float, v: Tensor, source: Source) -> Tensor:
        return self.act(self.drift.of(field, t), v, source)
