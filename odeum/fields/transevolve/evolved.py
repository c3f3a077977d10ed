"""TransEvolve (Dutta et al. 2021): attention measured once at a block's start and evolved over depth.

The published scores are A0 + (A1·T)[query axis] + (A2·T)[key axis] + T·A3·T. What is constant along the keys cancels in
the softmax, so only a drift of the keys is left: A(t) = softmax(q kᵀ / √(D/H) + b(t)) with b(t) = k · (W_Q,time T(t)).
A1, A3 and the time columns of W_K do nothing and are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from odeum.errors import OdeumError, choose
from odeum.fields.attention import attend, check_heads, check_mask, hides, merge_heads, reset, rotate, split_heads
from odeum.fields.base import Context, Field, Source
from odeum.fields.constants import remembered
from odeum.fields.derivatives import plain_autograd
from odeum.fields.noise import Dropout, drop
from odeum.fields.transevolve.exponential import Evolution, Shared, largest_spread
from odeum.fields.transevolve.linear import Features, LinearFeatures, linear_attention

FORMS = ("auto", "shared", "fused", "linear")
LARGEST_SHARED = 1 << 30
"""bytes of P up to which `auto` shares the exponential on a CPU"""


class Anchor(NamedTuple):
    """What is measured once a block: tensors, so that an adjoint can differentiate them like weights."""

    q: Tensor  # [batch, heads, queries, D / heads]
    k: Tensor  # [batch, heads, keys, D / heads]
    new: Tensor  # [batch, new keys, D]: the keys, not rotated, whose drift is not cached yet; or k · W_Q,time
    time: Tensor | None  # [D, heads · time width]: W_Q,time, unless `new` holds it already
    shared: Shared | None = None  # P = exp(A0 − row maximum) of the shared exponential
    ahead: Mapping[tuple[int, float], Evolution] | None = None  # known evolutions, by (id of a field, t)
    features: Features | None = None  # φ(q), φ(k) of the linear form
    scores: Tensor | None = None  # A0 of a single query: in decoding, softmax(A0 + b) is the shortest form


class Measure(nn.Module):
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
        anchor = Anchor(q, k, new, self.time.to(new.dtype) if source.cache is None else None)
        if self.features is not None:
            return anchor._replace(features=self.features(q, k, source))
        if q.shape[-2] == 1 and source.cache is not None:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
            if source.mask is not None:
                if source.mask.is_floating_point():
                    scores = scores + source.mask.to(scores.dtype)
                scores = scores.masked_fill(hides(source.mask), torch.finfo(scores.dtype).min)
            return anchor._replace(scores=scores)
        form = self.form_at(q.shape[-2], k.shape[-2], q.shape[0], q.device.type)
        if form == "shared" and _shareable(q, k, source.mask):
            return anchor._replace(shared=Shared.measure(q, k, source.mask, source.causal and q.shape[-2] > 1))
        return anchor

    def form_at(self, queries: int, keys: int | None = None, batch: int = 1, device: str = "cpu") -> str:
        """Which form runs: shared, fused or linear.

        A compiled graph cannot look at the range of the drift, so it always holds the fused form.
        """
        if self.form == "linear":
            return "linear"
        if self.form == "fused" or torch.compiler.is_compiling():
            return "fused"
        if self.form == "shared":
            return "shared"
        size = 4 * batch * self.heads * queries * (keys or queries)
        return "shared" if device in ("cpu", "meta") and size <= LARGEST_SHARED else "fused"

    def _keys(self, x: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """The keys, and what meets T(t): themselves, or k · W_Q,time of the few of a decoding step, to be cached so."""
        k = self._dropped(self.k(x))
        return k, k if source.cache is None else k @ self.time.to(k.dtype)

    def _dropped(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.dropout and self.training else x


class EvolvedAttention(Field):
    """A(t) acting on the state: values are the (normed) state itself, split in heads; there is no W_V."""

    cross = False
    symbol = "G"

    def __init__(self, width: int, heads: int, time_width: int | None = None, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.time_width = time_width or width // heads
        signals = heads * self.time_width
        self.coefficients = nn.Parameter(torch.empty(signals))
        nn.init.uniform_(self.coefficients, -math.sqrt(6.0 / signals), math.sqrt(6.0 / signals))
        self.out = nn.Linear(width, width, bias=False)
        reset(self.out)
        self.dropout = Dropout(dropout)

    def depth_vector(self, t: float) -> Tensor:
        """T(t) = c ⊙ [sin(tπp/64) ‖ cos(tπp/64)], one vector a head."""
        c = self.coefficients
        signal = _signal(c.shape[0], t, torch.promote_types(c.dtype, torch.float32), c.device)
        return (c * signal).view(self.heads, self.time_width)

    def drift(self, t: float, anchor: Anchor) -> Tensor:
        """b(t) = k · (W_Q,time T(t)) of the new keys, [batch, heads, keys]."""
        return _drifts(anchor, [self.depth_vector(t)]).squeeze(2)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        source = context.own
        v, anchor = split_heads(x, self.heads), _anchor(source)
        if source.cache is None:
            moved = self.move(t, anchor, v, source)
        else:
            v, past = source.cache.extend(v, self.drift(t, anchor).unsqueeze(-1))
            moved = self.act(anchor, past.squeeze(-1), v, source)
        return self.dropout(self.out(moved), context.noise)

    def move(self, t: float, anchor: Anchor, v: Tensor, source: Source) -> Tensor:
        """A(t) v, [batch, queries, width], with what is known of A(t) since the block's start."""
        known = anchor.ahead.get((id(self), t)) if anchor.ahead else None
        if anchor.shared is not None and known is not None:
            return anchor.shared.act(known, v)
        return self.act(anchor, self.drift(t, anchor), v, source)

    def act(self, anchor: Anchor, b: Tensor, v: Tensor, source: Source) -> Tensor:
        """A(t) v in the form that the anchor was measured for, [batch, queries, width]."""
        if anchor.features is not None:
            return merge_heads(linear_attention(anchor.features, b, v, source.causal))
        if anchor.scores is not None:
            weights = (anchor.scores + b.unsqueeze(-2)).softmax(dim=-1)
            if source.mask is not None:
                weights = weights.masked_fill(hides(source.mask), 0.0)
            return merge_heads(weights.to(v.dtype) @ v)
        if anchor.shared is not None and all(_gentle(b.unsqueeze(2))):
            return anchor.shared.act(*anchor.shared.evolve(b.unsqueeze(2)), v)
        return fused_attention(anchor, b, v, source)

    def formula(self, x: str) -> str:
        return f"A(t)·{x}"


class EvolvedCrossAttention(EvolvedAttention):
    """A(t) acting on the memory, normed by this layer; the state is not read: its query is in the anchor."""

    cross = True
    symbol = "C"

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
            moved = self.move(t, anchor, values(), source)
        else:
            v, b = source.cache.constant(lambda: (values(), self.drift(t, anchor)))
            moved = self.act(anchor, b, v, source)
        return self.dropout(self.out(moved), context.noise)

    def formula(self, x: str) -> str:
        return "C(t)·N(M)"


def look_ahead(anchor: Anchor, evaluations: Sequence[tuple[EvolvedAttention, float]]) -> Anchor:
    """The anchor with its evolutions at these (field, t): they do not depend on the state, so all are made at once."""
    if anchor.shared is None or not evaluations:
        return anchor
    b = _drifts(anchor, [field.depth_vector(t) for field, t in evaluations])
    made = zip(evaluations, anchor.shared.evolve(b), _gentle(b), strict=True)
    return anchor._replace(ahead={(id(field), t): evolution for (field, t), evolution, gentle in made if gentle})


def _drifts(anchor: Anchor, depth_vectors: Sequence[Tensor]) -> Tensor:
    """b = k · (W_Q,time T) of the new keys for several T, [batch, heads, depths, keys]."""
    vectors = torch.stack(tuple(depth_vectors)).to(anchor.new.dtype)
    # A row for each depth and head, zero where the other heads are.
    signals = torch.diag_embed(vectors.transpose(1, 2), dim1=1, dim2=2).flatten(2).flatten(0, 1)
    if anchor.time is not None:
        signals = signals @ anchor.time.T
    # From the left: as the right factor, a matrix of so few columns is multiplied several times slower.
    b = (signals @ anchor.new.flatten(0, 1).T).view(*vectors.shape[:2], *anchor.new.shape[:2])
    return b.permute(2, 1, 0, 3)


def fused_attention(anchor: Anchor, b: Tensor, v: Tensor, source: Source) -> Tensor:
    """The drift as one more feature of queries and keys: the fused kernel, no queries × keys tensor."""
    width = anchor.q.shape[-1]
    padded = (max(width + 1, v.shape[-1]) + 7) // 8 * 8
    # The kernel divides by √padded; we want √width, and the drift undivided.
    q = torch.cat(
        (anchor.q * math.sqrt(padded / width), anchor.q.new_full((*anchor.q.shape[:-1], 1), math.sqrt(padded))), -1
    )
    k = torch.cat((anchor.k, b.unsqueeze(-1).to(anchor.k.dtype)), -1)
    q, k = (nn.functional.pad(x, (0, padded - width - 1)) for x in (q, k))
    out = attend(q, k, nn.functional.pad(v.to(q.dtype), (0, padded - v.shape[-1])), source)
    return merge_heads(out[..., : v.shape[-1]])


@remembered
def _signal(size: int, t: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[sin(tπp/64) ‖ cos(tπp/64)] for p = 0, 1, 2 …"""
    p = torch.arange(size - size // 2, device=device, dtype=dtype) * (t * (math.pi / 64.0))
    return torch.cat((p[: size // 2].sin(), p.cos()))


def _anchor(source: Source) -> Anchor:
    if source.anchor is None:
        raise OdeumError("an evolved attention needs an anchor: put its flow inside Anchored")
    return source.anchor


def _shareable(q: Tensor, k: Tensor, mask: Tensor | None) -> bool:
    """Not in half precision, whose exponential underflows at −17, nor where there are no numbers to look at.

    Nor under a learned mask, whose gradient would be a tensor of queries × keys.
    """
    if mask is not None and mask.requires_grad and torch.is_grad_enabled():
        return False
    numbers = q.numel() > 0 and k.numel() > 0 and not isinstance(q, FakeTensor)
    return numbers and q.dtype != torch.float16 and plain_autograd()


def _gentle(b: Tensor) -> list[bool]:
    """At which depths e^b stays far from underflow; with a steep drift the softmax is left to the fused form."""
    if b.device.type == "meta":
        return [True] * b.shape[2]
    low, high = torch.aminmax(b.detach(), dim=-1)
    return ((high - low).amax(dim=(0, 1)) <= largest_spread(b.dtype)).tolist()
