"""Linear attention by positive random features: softmax(q kᵀ + b) v ≈ φ(q) (φ(k)ᵀ (e^b ⊙ v)) / φ(q) (φ(k)ᵀ e^b).

An approximation (FAVOR+, Choromanski et al. 2021), linear in length. In an evolved attention φ(q), φ(k) are made once
a block: only the drift b and the values change with depth.

Nothing underflows: a row of φ is divided by its largest feature, which for a query cancels and for a key is added to
b as its level; and e^b is taken relative to the largest b that the query sees, never to one it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import Source

KEYS_AT_ONCE = 128
"""positions that attend pairwise; earlier ones are summarised in a running sum"""
LEAST = 1e-6
"""added to every feature, so that a query and a key never miss each other altogether"""


class Features(NamedTuple):
    """φ(q) and φ(k), [batch, heads, length, features], and the keys' levels, [batch, heads, keys]: −∞ if hidden."""

    q: Tensor
    k: Tensor
    level: Tensor


class LinearFeatures(nn.Module):
    """φ(x) = exp(w·x − |x|²/2) for orthogonal random w, made from a stored seed and never saved."""

    w: Tensor
    seed: Tensor

    def __init__(self, width: int, features: int, seed: int = 0) -> None:
        super().__init__()
        self.width, self.count = width, features
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        w = orthogonal_features(width, features, seed).to(torch.get_default_dtype())
        self.register_buffer("w", w, persistent=False)

    def _draw(self) -> None:
        if self.seed.device.type != "meta":
            fresh = orthogonal_features(self.width, self.count, int(self.seed))
            self.w = fresh.to(device=self.seed.device, dtype=self.w.dtype)

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._draw()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LinearFeatures:
        before = self.w.dtype
        super()._apply(fn, recurse)
        if self.w.dtype != before:
            self._draw()  # as a reload will: a cast of rounded features would be others
        return self

    def forward(self, q: Tensor, k: Tensor, source: Source) -> Features:
        scale = q.shape[-1] ** -0.25
        q, k = q * scale, k * scale
        fq, fk = (x @ self.w.to(x.dtype) for x in (q, k))
        top = fk.amax(dim=-1)
        exact = torch.promote_types(k.dtype, torch.float32)
        level = top.to(exact) - 0.5 * k.to(exact).square().sum(dim=-1)
        if source.mask is not None:
            if source.mask.shape[-2] != 1:
                raise OdeumError(
                    "the linear form supports masks over keys only, not over pairs of query and key; use "
                    "attention=shared or fused"
                )
            keys = source.mask.squeeze(-2)
            level = level + keys.to(exact) if keys.is_floating_point() else level.masked_fill(~keys, -torch.inf)
        fq = (fq - fq.amax(dim=-1, keepdim=True)).exp()
        return Features(fq + LEAST, (fk - top.unsqueeze(-1)).exp() + LEAST, level)


def orthogonal_features(width: int, count: int, seed: int) -> Tensor:
    """[width, count] in float64: blocks of orthogonal directions with the lengths of Gaussian vectors."""
    if torch.get_default_device().type == "meta":
        return torch.empty(width, count)
    generator = torch.Generator("cpu").manual_seed(seed)
    blocks = []
    for _ in range(-(-count // width)):
        g = torch.randn(width, width, generator=generator, dtype=torch.float64, device="cpu")
        directions, _ = torch.linalg.qr(g)
        blocks.append(
            directions * torch.randn(width, width, generator=generator, dtype=torch.float64, device="cpu").norm(dim=0)
        )
    return torch.cat(blocks, dim=1)[:, :count]


def linear_attention(features: Features, b: Tensor, v: Tensor, causal: bool) -> Tensor:
    """[batch, heads, queries, head width]; a query that sees nothing gets zeros."""
    q, k, level = features
    if k.shape[-2] == 0:
        return v.new_zeros(*q.shape[:-1], v.shape[-1])
    b = b + level
    out = _causal(q, k, b, v) if causal and q.shape[-2] > 1 else q @ (k.transpose(-1, -2) @ _weighed(v, b, _top(b)))
    normaliser = out[..., -1:]
    return out[..., :-1] / (normaliser + (normaliser == 0))


def _top(b: Tensor) -> Tensor:
    return b.detach().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(b.dtype).min)


def _weighed(v: Tensor, b: Tensor, top: Tensor) -> Tensor:
    """e^(b − top) ⊙ v, and the weights themselves as one more column."""
    e = (b - top).exp().unsqueeze(-1).to(v.dtype)
    return torch.cat((v * e, e), dim=-1)


def _causal(q: Tensor, k: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Chunks see their past as one running sum of φ(k)ᵀ (e^b ⊙ v) and themselves pair by pair.

    A sum is kept relative to the largest b up to its chunk's end, a query's result relative to the largest that the
    query sees: every exponent is at most zero, and the future changes nothing.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    chunk = min(KEYS_AT_ONCE, keys)
    fill = -keys % chunk
    q = nn.functional.pad(q, (0, 0, keys - queries, 0))  # cached keys precede the first query
    q, k, v = (nn.functional.pad(x, (0, 0, 0, fill)).unflatten(-2, (-1, chunk)) for x in (q, k, v))
    b = nn.functional.pad(b, (0, fill), value=-torch.inf)
    least = torch.finfo(b.dtype).min
    top = b.detach().cummax(dim=-1).values.clamp(min=least)
    b, top = b.unflatten(-1, (-1, chunk)), top.unflatten(-1, (-1, chunk))

    end = top[..., -1]
    decay = (end.unsqueeze(-2) - end.unsqueeze(-1)).tril().exp().tril().to(v.dtype)
    sums = k.transpose(-1, -2) @ _weighed(v, b, end.unsqueeze(-1))
    past = (decay @ sums.flatten(-2)).view_as(sums)
    past = nn.functional.pad(past, (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    fade = (nn.functional.pad(end, (1, 0), value=least)[..., :-1, None] - top).exp().unsqueeze(-1).to(v.dtype)

    later = torch.ones(chunk, chunk, dtype=torch.bool, device=b.device).triu(1)
    pairs = (b.unsqueeze(-2) - top.unsqueeze(-1)).masked_fill(later, -torch.inf).exp().to(v.dtype)
    here = (q @ k.transpose(-1, -2) * pairs) @ nn.functional.pad(v, (0, 1), value=1.0)
    return (fade * (q @ past) + here).flatten(-3, -2)[..., keys - queries : keys, :]
