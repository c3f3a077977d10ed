"""Keel: post-norm with a highway path of weight α and an inner norm, x ← N(α x + f(N(x))).

A norm does not see the scale, so this is N(x + f(N(x)) / α): a step of length 1 / α that lands on a norm. It is built
so, with the eps of the outer norm divided by α², which makes the two forms equal.

The paper's text was not available beyond abstract and summaries, which give α = L; L is taken to be the number of
sublayers, attentions and feed-forwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.fields.base import Field
    from odeum.models.settings import Shape


@register.architecture("keel", reference="Chen & Wei 2026, arXiv 2601.19895", group="one step per layer")
@dataclass(frozen=True)
class Keel(Layered):
    """Post-norm with a highway path and an inner norm."""

    alpha: Annotated[float | None, Range(above=0)] = None
    """weight of the highway path (default: the number of norms after a step in all layers)"""

    def field(self, shape: Shape, cross: bool = False) -> Field:
        """Returns the pre-norm branches, each or their sum on a highway path."""
        from odeum.architectures.parts import make_method, make_norm, place_norms
        from odeum.fields import Sum
        from odeum.fields.algebra import Highway

        if self.norm != "pre":
            raise OdeumError(f"keel has a norm before and after each branch; leave out norm={self.norm}")
        branches = place_norms(self._branches(shape, cross), "pre", shape, shape.stochastic_depth)
        splits = make_method(self.method).splitting
        alpha = self.alpha or float(shape.depth * (len(branches.terms) if splits else 1))
        outer = replace(shape, norm_eps=shape.norm_eps / alpha**2)

        def highway(field: Field) -> Field:
            return Highway(field, make_norm(outer), alpha)

        if not splits:
            return self._with_learned_steps(highway(branches))
        assert isinstance(branches, Sum)
        return self._with_learned_steps(
            Sum(**{name: highway(term) for name, term in branches.fields.items()})  # ty: ignore[invalid-argument-type]
        )
