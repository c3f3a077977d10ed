"""Numbers that tell a network the time: t itself, and sines and cosines of it at many rates."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from odeum.fields.constants import cached_constant

RATES = 16
COUNT_OF_FEATURES = 2 * RATES + 1


def time_features(u: float, like: Tensor) -> Tensor:
    """[u, sin u ω, cos u ω] with 16 rates ω from 10 to 0.1, where u goes from 0 to 1 over the depth.

    DiffEqFormer has rates up to 1000, of which each layer sees one value: between the layers the weights would be
    anything, which neither more layers nor an adaptive solver could follow. Made in double precision, so that a low one
    does not blur the times, and on the CPU, since some devices have none; the kind and device are those of `like`.
    """
    return _features(float(u), like.dtype, like.device)


@cached_constant
def _features(u: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    powers = torch.arange(RATES, device="cpu", dtype=torch.float64) / (RATES - 1)
    angles = 10.0 * u * torch.exp(-math.log(100.0) * powers)
    first = torch.full((1,), u, device="cpu", dtype=torch.float64)
    return torch.cat((first, angles.sin(), angles.cos())).to(dtype).to(device)
