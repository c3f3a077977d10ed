"""A TransEvolve block: attention is measured at its start, and its layers run under it.

It contains the layers and is imported before them, so it uses only their interface.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from odeum.fields.base import Context
from odeum.fields.transevolve.evolved_attention import EvolvedAttention
from odeum.fields.transevolve.forms import Anchor, Shared
from odeum.fields.transevolve.measure import Measure


class Body(Protocol):
    """The interface of the stack inside a block."""

    def __call__(self, x: Tensor, context: Context) -> Tensor: ...

    def timed(self) -> Iterator[tuple[Any, float]]: ...

    def trajectory(self, x: Tensor, context: Context) -> Iterator[Tensor]: ...


class Anchored(nn.Module):
    """Measure attention at the start, let the body run under it, norm the end.

    Time starts at 0 in each block. In a stack it acts like a flow of the length of its body.
    """

    def __init__(self, body: Body, norm: nn.Module | None, own: Measure, other: Measure | None = None) -> None:
        super().__init__()
        self.body = body
        self.norm = norm
        self.own = own
        self.other = other

    @property
    def duration(self) -> float:
        """The length of the interval of the body."""
        return float(sum(flow.duration for flow, _ in self.body.timed()))

    def anchor(self, x: Tensor, context: Context) -> Context:
        """The context with the anchor measured at x."""
        own = self._ahead(self.own(x, context.own), cross=False)
        context = context._replace(own=context.own._replace(anchor=own))
        if self.other is None:
            return context
        other = self._ahead(self.other(x, context.other, cross=True), cross=True)
        return context._replace(other=context.other._replace(anchor=other))

    def _ahead(self, anchor: Anchor, *, cross: bool) -> Anchor:
        """With the evolutions at the start of each layer, which most methods need; others are computed when needed."""
        if not isinstance(anchor, Shared) or anchor.drift.time is None:  # in decoding the cache knows them
            return anchor
        return anchor.look_ahead(
            [
                (module, time)
                for flow, time in self.body.timed()
                for module in flow.field.modules()
                if isinstance(module, EvolvedAttention)
                and module.cross == cross
                # Weights that are sharded (FSDP) are whole only while their layer runs.
                and type(module.coefficients) is nn.Parameter
            ]
        )

    def forward(self, x: Tensor, context: Context | None = None, t0: float | None = None) -> Tensor:
        out = self.body(x, self.anchor(x, context or Context()))
        return out if self.norm is None else self.norm(out)

    def trajectory(self, x: Tensor, context: Context | None = None) -> Iterator[Tensor]:
        """The state before the first layer and after each, not normed."""
        yield from self.body.trajectory(x, self.anchor(x, context or Context()))
