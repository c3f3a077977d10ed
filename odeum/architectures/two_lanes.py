"""Two lanes: attention reads one stream, the feed-forward the other, and both write to both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.errors import OdeumError

if TYPE_CHECKING:
    from odeum.integrators.base import Method


@register.architecture(
    "two-lanes", reference="modded-nanogpt #230; parameter-golf #1204", group="multistep and multi-stream methods"
)
@dataclass(frozen=True)
class TwoLanes(Layered):
    """A stream for attention and one for feed-forward."""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import is_feed_forward, per_term
        from odeum.integrators.streams import Lanes

        terms = place.field.terms
        if self.method != "lie-trotter" or len(terms) < 2:
            raise OdeumError(
                f"two-lanes moves attention and feed-forward in turn, each with its own input, not {self.method} on "
                f"{place.field.formula('x')}; use method=lie-trotter and a norm for each term"
            )
        return per_term(
            "two-lanes", self.method, lambda index: Lanes(is_feed_forward(terms[index % len(terms)])), place
        )
