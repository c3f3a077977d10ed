"""Adaptive step sizes, chosen from the estimated error."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from odeum.errors import Diverged, OdeumError
from odeum.fields.algebra import randomness
from odeum.fields.base import Context, Field, projects_anywhere
from odeum.integrators.base import Solver, energy_of_step, forbid_draws
from odeum.integrators.diagnostics import Diagnostic
from odeum.integrators.mixes import combine
from odeum.integrators.runge_kutta import evaluate_stages
from odeum.kernels.autograd import in_make_fx, in_vmap
from odeum.tableaux import DOPRI5, Tableau

DATA = "an adaptive solver's steps depend on the data"
FIXED = "use fixed steps, such as rk4:steps=2"


class Adaptive(Solver):
    """An embedded Runge–Kutta pair with adaptive steps; `evaluations` is the cost of the last solve.

    All samples of a batch share one step size, so the result of a sample depends, within the tolerance, on the others
    and, in a causal model, on later positions. Each step waits for the device, since its length depends on the error
    before.
    """

    evaluations = Diagnostic[int](0)

    def __init__(
        self, tableau: Tableau = DOPRI5, rtol: float = 1e-3, atol: float = 1e-4, max_evaluations: int = 10_000
    ) -> None:
        super().__init__()
        if tableau.error is None:
            raise OdeumError(f"{tableau.name} has no error estimate to adapt by; use bosh3 or dopri5")
        if not (rtol >= 0 and atol >= 0 and 0 < rtol + atol < math.inf):
            raise OdeumError(f"an adaptive solver needs a positive tolerance, not rtol={rtol}, atol={atol}")
        self.tableau = tableau
        self.rtol = rtol
        self.atol = atol
        self.max_evaluations = max_evaluations

    def check(self, field: Field) -> None:
        if noisy := randomness(field):
            raise OdeumError(
                f"an adaptive solver needs a field without randomness, but there is {noisy}; "
                "set dropout and stochastic_depth to 0 or use fixed steps"
            )
        if any(getattr(part, "stepwise", False) for _, part in field.named_modules()):
            raise OdeumError(
                "an adaptive solver needs weights that are continuous in time; use between=linear or "
                "cubic, or fixed steps"
            )
        if projects_anywhere(field):
            raise OdeumError("an adaptive solver cannot put a norm after its steps; use norm=pre")

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        self._begin(field, x, context)
        if not x.numel():
            return x
        direction = 1.0 if t1 >= t0 else -1.0
        t, evaluations = t0, 1
        with forbid_draws(field, "an adaptive solver"):
            first: Tensor | None = field(t, x, context)
        assert first is not None
        dt = self._first_step(field, t1 - t0, x, first)
        while direction * (t1 - t) > 1e-12 * abs(t1 - t0):
            last = direction * (t + dt - t1) >= -1e-9 * abs(t1 - t0)
            if last:
                dt = t1 - t
            stages = evaluate_stages(self.tableau, len(self.tableau.b), field, t, dt, x, context, first)
            evaluations += len(stages) - (first is not None)
            y = x + dt * weighted_sum(self.tableau.b, stages)
            error = self._error(field, dt, x, y, stages)
            if not math.isfinite(error):
                raise Diverged(f"the field is not finite at t = {t:.4g}; a smaller learning rate or a norm may help")
            if error <= 1.0:
                if self.moved is not None:
                    self.moved.append(energy_of_step(x, y, dt, context))
                # The last stage of a pair such as dopri5 is the first of the next step; others evaluate it then.
                t, x, first = (t1 if last else t + dt), y, stages[-1] if self.tableau.first_same_as_last else None
            else:
                first = stages[0]
            dt *= min(5.0, max(0.2, 0.9 * (error or 1e-10) ** (-1.0 / self.tableau.error_order)))
            if evaluations > self.max_evaluations or abs(dt) < 1e-10 * abs(t1 - t0):
                raise self._stiff(t, t1, evaluations)
        self.evaluations = evaluations
        return x

    def _begin(self, field: Field, x: Tensor, context: Context) -> None:
        if field.training:
            self.check(field)
        if torch.compiler.is_dynamo_compiling():
            torch._dynamo.graph_break(msg=f"{DATA}, so it cannot be one graph; compile without fullgraph, or {FIXED}")
        elif in_vmap() or in_make_fx() or x.is_meta or isinstance(x, FakeTensor) or torch.compiler.is_compiling():
            raise OdeumError(f"{DATA}, which vmap, make_fx, torch.export, fake and meta tensors do not show; {FIXED}")
        if context.own.cache is not None:
            raise OdeumError("an adaptive solver's steps depend on the data, so it cannot decode with a cache")

    def _stiff(self, t: float, t1: float, evaluations: int) -> Diverged:
        self.evaluations = evaluations
        return Diverged(
            f"the adaptive solver spent {evaluations} evaluations and reached t = {t:.4g} of {t1:g}; "
            f"the field is stiff for rtol={self.rtol:g}, atol={self.atol:g}: loosen them or use fixed steps"
        )

    @torch.no_grad()
    def _error(self, field: Field, dt: float, x: Tensor, y: Tensor, stages: list[Tensor]) -> float:
        assert self.tableau.error is not None
        scale = self.atol + self.rtol * torch.maximum(field.observe(x).abs(), field.observe(y).abs())
        return _rms(dt * field.observe(weighted_sum(self.tableau.error, stages)) / scale)

    @torch.no_grad()
    def _first_step(self, field: Field, span: float, x: Tensor, first: Tensor) -> float:
        """Returns a step whose Euler change is about 1 % of the state (Hairer, Nørsett & Wanner, II.4)."""
        scale = self.atol + self.rtol * field.observe(x).abs()
        size, speed = _rms(field.observe(x) / scale), _rms(field.observe(first) / scale)
        guess = 0.01 * size / speed if size > 1e-5 and speed > 1e-5 else 0.1 * abs(span)
        return math.copysign(min(guess, abs(span)), span)

    def extra_repr(self) -> str:
        return f"{self.tableau.name}, rtol={self.rtol:g}, atol={self.atol:g}"


def weighted_sum(weights: tuple[float, ...], stages: list[Tensor]) -> Tensor:
    """Returns Σ wᵢ kᵢ."""
    total = combine(weights, stages)
    assert total is not None
    return total


def _rms(x: Tensor) -> float:
    return float(x.to(widest_dtype(x.device)).pow(2).mean().sqrt())


def widest_dtype(device: torch.device) -> torch.dtype:
    """Returns the widest floating dtype of a device: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
