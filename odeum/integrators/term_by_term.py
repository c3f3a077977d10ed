"""One method with its own coefficients for each term of a field."""

from __future__ import annotations

from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, within_evaluation, within_step


class TermByTerm(Method):
    """Lie–Trotter splitting in which each term has a method of its own."""

    def __init__(self, parts: list[Method]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.history = parts[0].history
        self.order = parts[0].order
        self.divides = parts[0].divides

    def check(self, field: Field) -> None:
        if len(field.terms) < 2:
            raise OdeumError(
                f"{self.history} needs several terms to apply one after the other, but {field.formula('x')} is one; "
                "a norm shared by all terms needs method=euler"
            )
        if len(field.terms) != len(self.parts):
            raise OdeumError(
                f"{self.history} has coefficients for {len(self.parts)} terms, but {field.formula('x')} has "
                f"{len(field.terms)}"
            )
        for term, part in zip(field.terms, self.methods, strict=True):
            part.check(term)

    @property
    def methods(self) -> list[Method]:
        """One method per term, in the order of the terms."""
        return list(self.parts)  # ty: ignore[invalid-return-type]

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        context = within_step(field, context, repeats=False)
        for term, part in zip(field.terms, self.methods, strict=True):
            x = part.step(term, t, dt, x, within_evaluation(term, context))
        return x

    def begin(self, x: Tensor, context: Context) -> Tensor:
        return self.methods[0].begin(x, context)

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return self.methods[-1].finish(x, context)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        pairs = zip(field.terms, self.methods, strict=True)
        return [line for term, part in pairs for line in part.scheme(term, share)]
