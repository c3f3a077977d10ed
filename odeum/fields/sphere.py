"""States and weights on the unit sphere: nGPT (Loshchilov et al. 2024, arXiv 2410.01131).

Weights are stored as they are and normalised at each use, so optimizers, checkpoints, `functional_call` and export see
ordinary parameters. The paper writes the normalised weights back after each step of the optimizer instead.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from odeum.fields.algebra import Wrapper
from odeum.fields.base import Context, Field


def unit(x: Tensor, axis: int = -1) -> Tensor:
    """Returns x / |x| over an axis; zeros, as of a query that sees nothing, stay zeros and have a finite gradient."""
    length = torch.linalg.vector_norm(x, dim=axis, keepdim=True)
    return x / length.masked_fill(length == 0.0, 1.0)


class UnitLinear(nn.Linear):
    """A linear map without bias whose rows or columns have length one, with a gain per output or none.

    The axis of length one is that of the stream: rows of maps that read it, columns of maps that write to it. The
    stored weight is that of the given map, whose rows or columns Glorot's initial values make about as long.
    """

    def __init__(self, linear: nn.Linear, *, reads: bool, gain: float | None = None) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        self.axis = 1 if reads else 0
        self.factor = gain or 1.0
        self.weight = linear.weight
        self.gain = None if gain is None else nn.Parameter(torch.ones(self.out_features))
        """relative to the initial value, which is `factor`"""

    def forward(self, input: Tensor) -> Tensor:
        out = nn.functional.linear(input, unit(self.weight, self.axis))
        return out if self.gain is None else (self.factor * self.gain).to(out.dtype) * out

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {'rows' if self.axis else 'columns'} of length 1"


class UnitHeads(nn.Module):
    """√d s x / |x| for each head of [batch, heads, length, head width] with learned s, 1 at the start.

    With the usual scores q · k / √d these are the paper's √d (s q̂) · (s k̂). The parameter is s / √width, so that under
    Adam s learns √width times as fast as other weights, as in the paper.
    """

    def __init__(self, heads: int, size: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.factor = (size * width) ** 0.5
        # a vector, as no map of features: it does not decay
        self.gain = nn.Parameter(torch.full((heads * size,), width**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        gain = (self.factor * self.gain).to(x.dtype)
        return gain.view(self.heads, 1, -1) * unit(x)


class OnSphere(Wrapper):
    """|α| (f(x) / |f(x)| − x), and a finished step lands on x / |x|: a step with a retraction to the sphere.

    α is learned per feature. The parameter is α / (start √width), so that under Adam α learns start √width times as
    fast as other weights, as in the paper.
    """

    def __init__(self, field: Field, width: int, start: float) -> None:
        super().__init__(field)
        self.factor = start * width**0.5
        self.alpha = nn.Parameter(torch.full((width,), width**-0.5))

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return (self.factor * self.alpha).abs().to(x.dtype) * (unit(self.field(t, x, context)) - x)

    @property
    def projects(self) -> bool:
        return True

    def project(self, x: Tensor) -> Tensor:
        return unit(x)

    def formula(self, x: str) -> str:
        return f"α (N({self.field.formula(x)}) − {f'({x})' if ' ' in x else x})"
