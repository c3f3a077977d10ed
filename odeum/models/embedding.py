"""Tokens and positions in, logits out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from odeum.draws import drawing, truncated_normal
from odeum.errors import OdeumError, choose
from odeum.fields.attention import reset
from odeum.fields.base import Rotary
from odeum.fields.constants import cached_constant
from odeum.kernels.autograd import plain_autograd
from odeum.kernels.cross_entropy import cross_entropy
from odeum.models.base import IGNORE, check_labels, exact
from odeum.models.pretrained import RotaryScaling, details


class Positions(nn.Module):
    """Positions of tokens: added to the embedding (sinusoidal, learned) or applied in attention (rotary)."""

    def __init__(
        self,
        kind: str,
        width: int,
        length: int,
        *,
        rotary_base: float = 10_000.0,
        rotary_width: int | None = None,
        rotary_scaling: RotaryScaling | None = None,
    ) -> None:
        super().__init__()
        self.rotary_base, self.rotary_width, self.rotary_scaling = rotary_base, rotary_width, rotary_scaling
        self.kind = choose(kind, ("sinusoidal", "learned", "rotary"), "kind of positions")
        self.length = length
        self.table = nn.Embedding(length, width) if kind == "learned" else None
        if self.table is not None:
            with drawing("positions"):
                truncated_normal(self.table.weight, std=0.02)

    def forward(self, x: Tensor, positions: Tensor, past: int = 0) -> Tensor:
        """`positions` of x lie below its length and `past`, that of what was read before."""
        length = past + x.shape[1]
        if self.table is not None:
            if length > self.length:
                raise OdeumError(f"the sequence has {length} tokens, but the model has {self.length} learned positions")
            return x + self.table(positions)
        if self.kind != "sinusoidal":
            return x
        if not plain_autograd():  # a length in a graph is any length, so no table is made for one
            return x + sinusoid(positions, x.shape[-1]).to(x.dtype)
        return x + nn.functional.embedding(positions, first_sinusoids(length, x)).to(x.dtype)

    def added(self, like: Tensor) -> Tensor | None:
        """The vectors added to [batch, 1, width] at each position up to `length`; None if nothing is added."""
        if self.table is not None:
            return self.table.weight
        return first_sinusoids(self.length, like).to(like.dtype) if self.kind == "sinusoidal" else None

    def rotary(self, positions: Tensor) -> Rotary | None:
        """Rotary positions for the Source of self-attention."""
        if self.kind != "rotary":
            return None
        return Rotary(positions.unsqueeze(-2), self.rotary_base, self.rotary_width, {}, self.rotary_scaling)


def make_positions(settings: Any, width: int) -> Positions:
    """The positions of a text model, in tables of that width."""
    extra = details(settings).attention
    rotary = {name: getattr(extra, name) for name in ("rotary_base", "rotary_width", "rotary_scaling")}
    return Positions(settings.positions, width, settings.length, **rotary)


def lookup(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of the table, or a sentence about the one that is not there."""
    try:
        return torch.embedding(table, ids)
    except IndexError:
        raise _unknown(ids, table.shape[0]) from None


def _unknown(ids: Tensor, vocabulary: int) -> OdeumError:
    wrong = int(ids.max()) if int(ids.max()) >= vocabulary else int(ids.min())
    return OdeumError(f"the token {wrong} is not in the vocabulary (0 to {vocabulary - 1})")


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """[sin ‖ cos] with wavelengths from 2π to 10000 · 2π (Vaswani et al. 2017)."""
    half = (width + 1) // 2
    steps = torch.arange(half, device=positions.device, dtype=torch.float32)
    angles = positions.float().unsqueeze(-1) * torch.exp(steps * (-math.log(10_000.0) / max(half - 1, 1)))
    return torch.cat((angles.sin(), angles.cos()), dim=-1)[..., :width]


def first_sinusoids(length: int, like: Tensor) -> Tensor:
    """A table of at least as many positions: texts of nearly the same length share a table."""
    return sinusoids(max(256, 1 << (length - 1).bit_length()), like.shape[-1], like.device)


@cached_constant
def sinusoids(length: int, width: int, device: torch.device) -> Tensor:
    """The first so many positions: looking them up is cheaper than as many sines."""
    return sinusoid(torch.arange(length, device=device), width)


class TiedEmbedding(nn.Embedding):
    """One matrix for input and output; an nn.Embedding to libraries that look for one."""

    def __init__(self, vocabulary: int, width: int, *, scaled: bool = True, bias: bool = False) -> None:
        super().__init__(vocabulary, width)
        self.scale = math.sqrt(width) if scaled else 1.0
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None
        """of the logits"""

    def reset_parameters(self) -> None:
        with drawing("embedding"):
            nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)

    def forward(self, input: Tensor) -> Tensor:
        rows = lookup(input, self.weight)
        return rows if self.scale == 1.0 else rows * self.scale

    def logits(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)

    def loss(self, x: Tensor, labels: Tensor, smoothing: float = 0.0, chunk: int | None = None) -> Tensor:
        """Mean cross-entropy, `chunk` tokens at a time: as many as its buffer holds, if it is not said."""
        return matrix_loss(x, self.weight, labels, smoothing, chunk, self.bias)


class OutputMatrix(nn.Linear):
    """An output matrix of its own, beside an embedding that it is not tied to."""

    def reset_parameters(self) -> None:
        with drawing("output"):
            reset(self)

    def loss(self, x: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """The mean cross-entropy of the logits."""
        return matrix_loss(x, self.weight, labels, smoothing, bias=self.bias)


def matrix_loss(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float = 0.0,
    chunk: int | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Mean cross-entropy of the logits that an output matrix gives."""
    if bias is not None:
        weight = torch.cat((weight, bias.unsqueeze(1)), dim=1)
        x = torch.cat((x, torch.ones_like(x[..., :1])), dim=-1)
    check_labels(labels, x, weight.shape[0])
    return cross_entropy(x.flatten(0, -2), weight, labels.flatten().long(), smoothing, chunk)


class AdaptiveEmbedding(nn.Module):
    """Adaptive input and softmax, tied (Grave et al. 2017, Baevski & Auli 2019): rare words get fewer features.

    Needs a vocabulary sorted by frequency. Band 0 is the short list; each further band is one class of it.
    """

    factor = 4

    def __init__(self, vocabulary: int, width: int, cutoffs: tuple[int, ...] = ()) -> None:
        super().__init__()
        ends = list(cutoffs) or sorted({vocabulary // 16, vocabulary // 4} - {0})
        if not ends:
            raise OdeumError(f"the adaptive embedding needs a vocabulary of at least 4, not {vocabulary}; use tied")
        if ends != sorted(set(ends)) or not ends[0] > 0 or ends[-1] >= vocabulary:
            raise OdeumError(f"cutoffs {tuple(ends)} must be increasing and below the vocabulary size of {vocabulary}")
        self.bounds = [0, *ends, vocabulary]
        widths = [max(width // self.factor**i, 4) for i in range(len(ends) + 1)]
        sizes = [high - low for low, high in zip(self.bounds[:-1], self.bounds[1:], strict=True)]
        with drawing("embedding"):
            self.tables = nn.ParameterList(
                torch.empty(n, w).normal_(std=w**-0.5) for n, w in zip(sizes, widths, strict=True)
            )
            self.projections = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(w, width)) for w in widths)
            self.classes = nn.Linear(width, len(ends), bias=False)
        self.scale = math.sqrt(width)

    def forward(self, ids: Tensor) -> Tensor:
        """Every band looks at every token and keeps its own: no shape depends on the data."""
        total: Tensor | None = None
        for band, (low, high) in enumerate(zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            inside = ((ids >= low) & (ids < high)).unsqueeze(-1)
            # A token below the first band or above the last stays outside its table, and the lookup raises.
            indices = (ids - low).clamp(min=0 if band else None, max=high - low - 1 if high < self.bounds[-1] else None)
            try:
                rows = nn.functional.embedding(indices, self.tables[band])
            except IndexError:
                raise _unknown(ids, self.bounds[-1]) from None
            part = (rows * inside) @ self.projections[band]
            total = part if total is None else total + part
        assert total is not None
        return total * self.scale

    def _band(self, x: Tensor, band: int) -> Tensor:
        return (x @ self.projections[band].T) @ self.tables[band].T

    def _head(self, x: Tensor) -> Tensor:
        return exact(torch.cat((self._band(x, 0), self.classes(x)), dim=-1)).log_softmax(dim=-1)

    def logits(self, x: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary."""
        head = self._head(x)
        short = self.bounds[1]
        parts = [head[..., :short]]
        for band in range(1, len(self.tables)):
            inside = exact(self._band(x, band)).log_softmax(dim=-1)
            parts.append(inside + head[..., short + band - 1 : short + band])
        return torch.cat(parts, dim=-1)

    def loss(self, x: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Mean negative log-likelihood; each band is computed only where a label falls into it."""
        if smoothing:
            raise OdeumError("label smoothing is not defined for the adaptive softmax; set label_smoothing to 0")
        check_labels(labels, x, self.bounds[-1])
        x, labels = x.flatten(0, -2), labels.flatten().long()
        rows = (labels != IGNORE).nonzero().squeeze(1)
        x, labels = x[rows], labels[rows]
        band_of = torch.bucketize(labels, torch.tensor(self.bounds[1:-1], device=labels.device), right=True)
        short = self.bounds[1]
        target = torch.where(band_of == 0, labels, short + band_of - 1)
        total = -self._head(x).gather(1, target.unsqueeze(1)).sum()
        for band in range(1, len(self.tables)):
            inside = (band_of == band).nonzero().squeeze(1)
            targets, table = labels[inside] - self.bounds[band], self.tables[band]
            total = total + cross_entropy(x[inside] @ self.projections[band].T, table, targets) * inside.numel()
        return total / max(labels.numel(), 1)
