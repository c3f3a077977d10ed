"""Linear attention by positive random features: softmax(q kᵀ + b) v ≈ φ(q) (φ(k)ᵀ (e^b ⊙ v)) / φ(q) (φ(k)ᵀ e^b).

An approximation (FAVOR+, Choromanski et al. 2021), linear in length. In an evolved attention φ(q), φ(k) are made once
a block: only the drift b and the values change with depth.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import Source

CHUNK = 128
"""positions that see each other exactly by their features; before them a running sum stands for the past"""


class Features(NamedTuple):
    """φ(q) and φ(k), [batch, heads, length, features]; hidden keys are zero."""

    q: Tensor
    k: Tensor


class LinearFeatures(nn.Module):
    """φ(x) = exp(w·x − |x|²/2 − maximum) for orthogonal random w, made from a stored seed and never saved."""

    w: Tensor
    seed: Tensor

    def __init__(self, width: int, features: int, seed: int = 0) -> None:
        super().__init__()
        self.width, self.count = width, features
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("w", orthogonal_features(width, features, seed), persistent=False)

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.seed.device.type != "meta":
            fresh = orthogonal_features(self.width, self.count, int(self.seed))
            self.w = fresh.to(device=self.seed.device, dtype=self.w.dtype)

    def forward(self, q: Tensor, k: Tensor, source: Source) -> Features:
        scale = q.shape[-1] ** -0.25
        fq, fk = self._exponent(q * scale), self._exponent(k * scale)
        fq = fq - fq.detach().amax(dim=-1, keepdim=True)
        if source.mask is not None:
            if source.mask.shape[-2] != 1:
                raise OdeumError("the linear form takes masks over keys, not over pairs; use attention=shared or fused")
            fk = fk.masked_fill(~source.mask.transpose(-1, -2), -torch.inf)
        fk = fk - fk.detach().amax(dim=(-1, -2), keepdim=True).clamp_min(torch.finfo(fk.dtype).min)
        return Features(fq.exp(), fk.exp())

    def _exponent(self, x: Tensor) -> Tensor:
        return x @ self.w.to(x.dtype) - 0.5 * x.square().sum(dim=-1, keepdim=True)


def orthogonal_features(width: int, count: int, seed: int) -> Tensor:
    """[width, count]: blocks of orthogonal directions with the lengths of Gaussian vectors."""
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
    return torch.cat(blocks, dim=1)[:, :count].float()


def linear_attention(features: Features, b: Tensor, v: Tensor, causal: bool) -> Tensor:
    """[batch, heads, queries, head width]."""
    e = (b - b.detach().amax(dim=-1, keepdim=True)).exp().unsqueeze(-1).to(v.dtype)
    ev = torch.cat((v * e, e), dim=-1)
    if not causal or features.q.shape[-2] == 1:
        out = features.q @ (features.k.transpose(-1, -2) @ ev)
    else:
        out = _causal(features.q, features.k, ev)
    normaliser = out[..., -1:]
    return out[..., :-1] / (normaliser + (normaliser == 0))


def _causal(q: Tensor, k: Tensor, ev: Tensor) -> Tensor:
    """Chunks see their past as one running sum of φ(k)ᵀ ev and themselves position by position."""
    queries, past = q.shape[-2], k.shape[-2] - q.shape[-2]
    start = k[..., :past, :].transpose(-1, -2) @ ev[..., :past, :]  # what a cache held before the first query
    chunk = min(CHUNK, queries)
    fill = (0, 0, 0, -queries % chunk)
    q, k, ev = (nn.functional.pad(x[..., skip:, :], fill) for x, skip in ((q, 0), (k, past), (ev, past)))
    q, k, ev = (x.unflatten(-2, (-1, chunk)) for x in (q, k, ev))
    sums = (k.transpose(-1, -2) @ ev).cumsum(dim=-3)
    before = torch.cat((torch.zeros_like(sums[..., :1, :, :]), sums[..., :-1, :, :]), dim=-3) + start.unsqueeze(-3)
    out = q @ before + (q @ k.transpose(-1, -2)).tril() @ ev
    return out.flatten(-3, -2)[..., :queries, :]
