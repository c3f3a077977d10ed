"""Fields whose weights depend on time: dx/dt = f(x; θ(t)), for any f; or through their norms alone."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from odeum.errors import OdeumError
from odeum.fields.algebra import Wrapper
from odeum.fields.base import Context, Field, projects_anywhere
from odeum.fields.bases import Basis, Knots
from odeum.fields.time_features import COUNT_OF_FEATURES, time_features

_SWAPPING = threading.RLock()  # weights are put in for a call: two threads would meet there


class TimedField(Field):
    """A field with the weights θ(t) = Σ φₖ(t) θₖ; the θₖ are the weights of as many fields of one kind.

    The first of the fields is evaluated with θ(t) in the place of its weights. Constant pieces are evaluated as they
    are; which one acts is decided by the middle of the step, not by the time of a stage, which may lie on its edge.
    """

    def __init__(self, versions: Sequence[Field], basis: Basis) -> None:
        super().__init__()
        names = [[name for name, _ in field.named_parameters()] for field in versions]
        if len(versions) != basis.count or (not basis.stepwise and any(row != names[0] for row in names)):
            raise OdeumError(f"the weights over time need {basis.count} fields of one kind")
        if any(projects_anywhere(field) for field in versions):
            raise OdeumError("weights over time have no norm after the step, which knows no time; use norm=pre")
        self.knots = nn.ModuleList(versions)
        self.basis = basis
        self.timed = basis.count > 1

    @property
    def stepwise(self) -> bool:
        """Whether it jumps between steps."""
        return self.basis.stepwise

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        if isinstance(t, Tensor) and t.dim():
            raise OdeumError(
                "weights over time are those of one time, not of one for each sample; use one step for all"
            )
        basis = self.basis
        if isinstance(basis, Knots) and (basis.stepwise or basis.count == 1):
            step = context.step
            return self.knots[basis.piece(t if step is None else step.middle)](t, x, context)
        with _alone():  # also while the weights are read, which are those of the first field too
            return functional_call(self.knots[0], self.weights(t), (t, x, context))

    def weights(self, t: float) -> dict[str, Tensor]:
        """θ(t) by name."""
        versions = [dict(field.named_parameters()) for field in self.knots]
        rows = [[version[name] for version in versions] for name in versions[0]]
        return dict(zip(versions[0], self.basis(t, rows), strict=True))

    def formula(self, x: str) -> str:
        inner: Field = self.knots[0]  # ty: ignore[invalid-assignment]
        return re.sub(r"(?<=\w)\(", "ₜ(", inner.formula("\0")).replace("\0", x)


class AdaptiveNorm(Wrapper):
    """(1 + g) f((1 + s) norm(x) + b), where time and step length make s, b and g: adaLN (Peebles & Xie 2023).

    The last map starts at zero, as PreNorm: no time. Where steps have no given length, it counts as zero.
    """

    timed = True

    def __init__(self, norm: nn.Module, field: Field, width: int, t0: float, t1: float) -> None:
        super().__init__(field)
        if projects_anywhere(field):
            raise OdeumError("adaLN stands before a field, not after the step; use norm=pre or shared")
        self.norm = norm
        self.t0 = t0
        self.t1 = t1
        self.time = nn.Linear(COUNT_OF_FEATURES, width)
        self.length = nn.Linear(COUNT_OF_FEATURES, width, bias=False)
        self.adapt = nn.Linear(width, 3 * width)
        nn.init.zeros_(self.adapt.weight)
        nn.init.zeros_(self.adapt.bias)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        if isinstance(t, Tensor) and t.dim():
            raise OdeumError("adaLN is told one time, not one for each sample; use one step for all")
        span, weight = self.t1 - self.t0, self.time.weight
        length = 0.0 if context.step is None else abs(context.step.length)
        told = self.time(time_features((t - self.t0) / span, weight)) + self.length(
            time_features(length / span, weight)
        )
        scale, shift, gate = self.adapt(nn.functional.silu(told)).chunk(3, dim=-1)
        return (1.0 + gate) * self.field(t, torch.addcmul(shift, 1.0 + scale, self.norm(x)), context)

    def formula(self, x: str) -> str:
        return self.field.formula(f"Nₜ({x})")


def _alone() -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext() if torch.compiler.is_compiling() else _SWAPPING
