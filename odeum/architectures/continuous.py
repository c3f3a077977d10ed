"""A neural ODE: one set of weights, integrated over the whole depth by an adaptive solver.

Decoding recomputes the whole prefix, because adaptive steps depend on the data. Prefer fixed steps for language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from odeum import register
from odeum.architectures.stepped import Gradient, MethodName, OverTime
from odeum.errors import choose
from odeum.registry.options import COUNT, NOT_NEGATIVE

if TYPE_CHECKING:
    from torch import nn

    from odeum.fields.base import Field
    from odeum.models.settings import Shape


@register.architecture("continuous", group="continuous depth")
@dataclass(frozen=True)
class Continuous(OverTime):
    """One layer integrated over depth by an adaptive solver."""

    method: MethodName = "dopri5"
    """embedded Runge–Kutta pair"""
    rtol: Annotated[float, NOT_NEGATIVE] = 1e-3
    """relative error tolerance per step"""
    atol: Annotated[float, NOT_NEGATIVE] = 1e-4
    """absolute error tolerance per step"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the solver"""
    adapt: Literal["batch", "sample"] = "batch"
    """one step size for the whole batch, or one per sample"""
    evaluations: Annotated[int, COUNT] = 10_000
    """largest number of field evaluations per pass; a field that needs more is reported as stiff"""

    def stack(self, shape: Shape, cross: bool = False) -> nn.Module:
        """Builds one flow on [0, depth]."""
        from odeum.architectures.parts import (
            attentions,
            feed_forward,
            field_over_time,
            make_norm,
            tableaux,
            with_gradient,
        )
        from odeum.fields.algebra import by_name
        from odeum.flow import Flow, Stack
        from odeum.integrators import Adaptive, AdaptivePerSample

        pairs = tableaux(embedded=True)
        tableau = pairs[choose(self.method, pairs, "method of continuous")]

        def branches() -> dict[str, Field]:
            return by_name(*attentions(shape, cross), feed_forward(shape))

        field = field_over_time(self, branches, "pre", shape)
        kind = AdaptivePerSample if self.adapt == "sample" else Adaptive
        solver = with_gradient(self.gradient, kind(tableau, self.rtol, self.atol, self.evaluations))
        return Stack([Flow(field, solver, 0.0, float(shape.depth))], norm=make_norm(shape))
