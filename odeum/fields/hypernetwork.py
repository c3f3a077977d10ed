"""Fields whose weights depend on time: dx/dt = f(x; θ(t)), for any f; or through their norms alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.algebra import Wrapper
from odeum.fields.base import Context, Field, projects_anywhere
from odeum.fields.bases import Basis, Knots
from odeum.fields.substituted import effective_weights, substituted
from odeum.fields.time_features import COUNT_OF_FEATURES, time_features


class TimedField(Field):
    """A field with the weights θ(t) = Σ φₖ(t) θₖ; the θₖ are the weights of as many fields of one kind.

    The θₖ are weights as their modules compute with them, so pruning and parametrizations count. An evaluation at time
    t runs a copy of one field, with θ(t) as its weights: the field that has the largest share at t, whose hooks are
    called. Nothing is written into the fields. Constant pieces are evaluated as they are; which one acts is decided by
    the middle of the step, not by the time of a stage, which may lie on its edge.
    """

    def __init__(self, versions: Sequence[Field], basis: Basis) -> None:
        super().__init__()
        names = [[name for name, _ in field.named_parameters()] for field in versions]
        if len(versions) != basis.count or (not basis.stepwise and any(row != names[0] for row in names)):
            raise OdeumError(f"the weights over time need {basis.count} fields of one kind")
        if any(projects_anywhere(field) for field in versions):
            raise OdeumError("weights over time do not support a norm after the step; use norm=pre")
        self.knots = nn.ModuleList(versions)
        self.names = tuple(names[0])
        self.basis = basis
        self.timed = basis.count > 1

    @property
    def stepwise(self) -> bool:
        """Whether the weights are discontinuous between steps."""
        return self.basis.stepwise

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        if isinstance(t, Tensor) and t.dim():
            raise OdeumError("weights over time need the same time for all samples; use one step size for all")
        basis = self.basis
        if isinstance(basis, Knots) and (basis.stepwise or basis.count == 1):
            step = context.step
            return self.knots[basis.piece(t if step is None else step.middle)](t, x, context)
        weights = self.weights(t)
        return substituted(self.knots[basis.nearest(t)], weights, self.knots[0])(t, x, context)

    def weights(self, t: float) -> dict[str, Tensor]:
        """θ(t) by name."""
        versions = [effective_weights(field) for field in self.knots]
        first = versions[0]
        names = dict.fromkeys((*(name for name in self.names if name in first), *first))
        for number, version in enumerate(versions):
            if differing := version.keys() ^ names.keys():
                raise OdeumError(
                    f"weights that depend on time are combined from {len(versions)} fields of one kind, but "
                    f"{min(differing)} is in knots.0 or knots.{number} alone; change all of them in the same way"
                )
        self._check(first)
        rows = [[version[name] for version in versions] for name in names]
        return dict(zip(names, self.basis(t, rows), strict=True))

    def _check(self, weights: dict[str, Tensor]) -> None:
        """Refuse weights that cannot be combined: quantized ones, and those that a module no longer shows."""
        use = "convert the model to one whose weights do not depend on time first (odeum convert)"
        for name in self.names:
            path, _, leaf = name.rpartition(".")
            if name not in weights and not any(n.startswith(f"{path}.") and n.endswith(f".{leaf}") for n in weights):
                part = type(self.knots[0].get_submodule(path))
                raise OdeumError(
                    f"{name} is hidden in a {part.__module__}.{part.__qualname__}, so weights that depend on time "
                    f"cannot be combined; {use}"
                )
        for name, weight in weights.items():
            # A compiler does not show the type of a weight.
            if not torch.compiler.is_compiling() and type(weight).__module__.partition(".")[0] != "torch":
                raise OdeumError(
                    f"{name} is a {type(weight).__name__}, so weights that depend on time cannot be combined; {use}"
                )

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
            raise OdeumError("adaLN modulates a norm before a field, not one after the step; use norm=pre or shared")
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
            raise OdeumError("adaLN needs the same time for all samples; use adapt=batch")
        span = self.t1 - self.t0
        length = 0.0 if context.step is None else abs(context.step.length)
        embedded = self.time(self._features((t - self.t0) / span, x)) + self.length(self._features(length / span, x))
        scale, shift, gate = self.adapt(nn.functional.silu(embedded)).chunk(3, dim=-1)
        return (1.0 + gate) * self.field(t, torch.addcmul(shift, 1.0 + scale, self.norm(x)), context)

    def _features(self, value: float, x: Tensor) -> Tensor:
        """The time features; a quantized map shows no weight and takes rows."""
        weight: Any = self.time.weight
        return time_features(value, weight) if isinstance(weight, Tensor) else time_features(value, x).unsqueeze(0)

    def formula(self, x: str) -> str:
        return self.field.formula(f"Nₜ({x})")
