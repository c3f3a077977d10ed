"""DenseFormer: after each layer a learned average of all states so far (Pagliardini et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators import capabilities
from odeum.integrators.base import Method, get_carry


class Dense(Method):
    """A step of any method without memory, then x ← Σ a_j x_j over the input and the ends of the layers so far.

    At the start the newest state has weight one and the others none. A layer whose weights act at several places has
    the numbers of each: they belong to the depth.
    """

    order = None
    history = "dense"
    splits = False
    divides = False

    def __init__(self, inner: Method, layers: Sequence[int]) -> None:
        super().__init__()
        capabilities.check("dense", inner)
        self.inner = inner
        self.layers = tuple(layers)
        self.rows = nn.ParameterList(torch.eye(layer + 2)[-1].clone() for layer in self.layers)

    def check(self, field: Field) -> None:
        self.inner.check(field)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "dense").state = (x,)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "dense")
        layer = len(carry.state) - 1
        if layer not in self.layers:
            raise OdeumError(
                f"dense has weights for one step in each layer of its stack, but none for step {layer + 1} here; "
                "its steps and layers cannot be changed"
            )
        states = (*carry.state, self.inner.step(field, t, dt, x, context))
        carry.state = states
        row = self.rows[self.layers.index(layer)]
        return reduce(add, (a * state for a, state in zip(row.unbind(), states, strict=True)))

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        return [*self.inner.scheme(field, share), "x ← Σ a_j x_j over the input and the ends of the layers so far"]
