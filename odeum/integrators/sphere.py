"""A stack whose states are on the unit sphere, with an output of the usual scale (nGPT)."""

from __future__ import annotations

from torch import Tensor

from odeum.fields.base import Context, Field
from odeum.fields.sphere import unit
from odeum.integrators import capabilities
from odeum.integrators.base import Method


class FromSphere(Method):
    """A step of any method without history; the first layer begins on x / |x|, the last ends with √width x.

    The fields keep the state on the sphere; entries of the output are about 1, as after a norm.
    """

    history = "sphere"

    def __init__(self, inner: Method) -> None:
        super().__init__()
        capabilities.check("a state on the sphere", inner)
        self.inner = inner
        self.order = inner.order
        self.splitting = inner.splitting

    def check(self, field: Field) -> None:
        self.inner.check(field)

    def begin(self, x: Tensor, context: Context) -> Tensor:
        return unit(x)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        return self.inner.step(field, t, dt, x, context)

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return x.shape[-1] ** 0.5 * x

    def equation(self, field: Field, turns: int = 1) -> str:
        return f"{self.inner.equation(field, turns)} on |x| = 1"

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        return [*self.inner.scheme(field, share), "N(x) = x / |x|; matrices have rows or columns of length 1"]
