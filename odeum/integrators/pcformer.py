"""PCformer: a Runge–Kutta step predicts, a learned average over all states so far corrects (Li et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.algebra import refuse_new_draws
from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, get_carry, within_evaluation, within_step
from odeum.integrators.mixes import Mix
from odeum.integrators.runge_kutta import RungeKutta, evaluate_stages
from odeum.tableaux import Tableau


class PCformer(Method):
    """x̂ = x + Σ α (1 − α)^(o − i) kᵢ over the o stages; y = Σ a_j h_j + a N(x̂); h = N(y + f(y)); x ← Σ c_j h_j + c h.

    The h_j are the input and what each layer before corrected. α begins at ½, the averages with equal weights, as the
    published code's do: it is not the plain stack at the start, and the prediction has no order. A layer whose
    weights act at several places has averages for each: they belong to the depth.
    """

    order = None
    history = "pcformer"
    splits = False
    divides = False

    def __init__(self, tableau: Tableau, layers: Sequence[int], norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.tableau = tableau
        self.used = Mix(tableau).used
        self.layers = tuple(layers)
        self.alpha = nn.Parameter(torch.full((1,), 0.5))  # not a scalar, which FSDP cannot shard
        self.predicted_norm, self.corrected_norm = norm(), norm()
        self.predicted, self.corrected = (
            nn.ParameterList(torch.full((layer + 2,), 1.0 / (layer + 2)) for layer in self.layers) for _ in range(2)
        )

    def check(self, field: Field) -> None:
        super().check(field)
        refuse_new_draws(field)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "pcformer").state = (x,)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "pcformer")
        past: tuple[Tensor, ...] = carry.state
        layer = len(past) - 1
        if layer not in self.layers or dt != 1.0:
            raise OdeumError(
                "pcformer has averages for one step in each of its layers; its steps and layers cannot be changed"
            )
        place = self.layers.index(layer)
        context = within_step(field, context, repeats=True)
        stages = evaluate_stages(self.tableau, self.used, field, t, dt, x, context)
        weights = [self.alpha * (1.0 - self.alpha) ** (self.used - i) for i in range(1, self.used + 1)]
        predicted = self.predicted_norm(x + reduce(add, (w * k for w, k in zip(weights, stages, strict=True))))
        y = _average(self.predicted[place], (*past, predicted))
        corrected = self.corrected_norm(y + field(t + dt, y, within_evaluation(field, context)))
        carry.state = (*past, corrected)
        return _average(self.corrected[place], carry.state)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        *stages, _ = RungeKutta(self.tableau).scheme(field, share)
        return [
            *stages,
            f"y = Σ a_j h_j + a N(x + Σ α (1 − α)^({self.used} − i) k_i), h_j = the input and h of each layer before",
            f"h = N(y + {field.formula('y')})",
            "x ← Σ c_j h_j + c h",
        ]


def _average(row: Tensor, states: tuple[Tensor, ...]) -> Tensor:
    return reduce(add, (a * state for a, state in zip(row.unbind(), states, strict=True)))
