"""The implicit midpoint rule, solved by fixed-point iteration."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.algebra import refuse_new_draws
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, refuse_projecting_terms, within_evaluation, within_step
from odeum.integrators.diagnostics import Diagnostic
from odeum.integrators.runge_kutta import projected_step
from odeum.kernels.autograd import plain_autograd

RESIDUAL_LIMIT = 0.1
"""relative residual above which a step is reported as unsolved"""


class ImplicitMidpoint(Method):
    """k = f(t + dt/2, x + dt/2 k), x + dt k: order 2, and stable wherever the field contracts.

    k is computed by `iterations` fixed-point iterations from k = f(t, x), which converge where dt/2 times the Lipschitz
    constant of the field is below one. `residual` is the relative difference of the last two iterates in the last
    step, measured without waiting for the device.
    """

    order = 2
    residual = Diagnostic[float | None](None)
    stability = "stable where the field contracts, as far as the iteration converges: dt/2 |∂f/∂x| below 1"

    def __init__(self, iterations: int = 4) -> None:
        super().__init__()
        if iterations < 1:
            raise OdeumError(f"the implicit midpoint needs at least one iteration, not {iterations}")
        self.iterations = iterations

    def check(self, field: Field) -> None:
        refuse_projecting_terms(field, "implicit-midpoint", splits=False)
        refuse_new_draws(field)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        context = within_step(field, context, repeats=True)
        k = field(t, x, within_evaluation(field, context))
        before = k
        for _ in range(self.iterations):
            before, k = k, field(t + dt / 2, x + (dt / 2) * k, within_evaluation(field, context))
        if type(k) is Tensor and plain_autograd():
            with torch.no_grad():
                self.residual = (k - before).norm() / k.norm().clamp_min(torch.finfo(k.dtype).tiny)
        return field.project(x + k if dt == 1.0 else x + dt * k)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        half = "" if share == 1.0 else f"{share:g} "
        return [
            f"k = {field.formula(f'x + 1/2 {half}dt k')}, {self.iterations} times from k = {field.formula('x')}",
            projected_step(field, f"x + {half}dt k"),
        ]

    def extra_repr(self) -> str:
        return f"iterations={self.iterations}"


def fixed_point_residual(model: nn.Module) -> float | None:
    """The largest residual of the implicit steps that each layer made last; None where there are none."""
    residuals = (part.residual for part in model.modules() if isinstance(part, ImplicitMidpoint))
    return max((residual for residual in residuals if residual is not None), default=None)
