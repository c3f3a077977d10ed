"""Lagged attention: the attentions of the last layers all read the state that the first of these layers read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.errors import OdeumError
from odeum.registry.options import COUNT

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "lagged-attention", reference="marin #4987; modded-nanogpt", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class LaggedAttention(Layered):
    """Attention of the last layers reads one earlier state."""

    last: Annotated[int | None, COUNT] = None
    """number of last layers whose attentions read the same state (default: 3, or the depth if smaller)"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import is_self_attention
        from odeum.integrators import lagged

        if self.method not in ("lie-trotter", "euler"):
            raise OdeumError(
                f"lagged-attention evaluates each term once; use method=lie-trotter or euler, not {self.method}"
            )
        depth = place.shape.depth
        last = min(3, depth) if self.last is None else self.last
        if last > depth:
            raise OdeumError(f"last={last} of lagged-attention is more than its {depth} layers; use at most {depth}")
        lags = [is_self_attention(term) for term in place.field.terms]
        if not any(lags):
            raise OdeumError(
                f"lagged-attention needs self-attention as a term of its own, and {place.field.formula('x')} has none; "
                "a norm that all terms share hides it: use norm=pre"
            )
        since = (depth - last) * self.interval
        return lagged.LaggedAttention(since, lags, together=self.method == "euler")
