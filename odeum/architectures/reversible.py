"""Reversible layers: the backward pass recomputes states by running the steps back, so none need to be stored.

Which scheme: `revnet` is the default. It needs one evaluation of each term per layer, does not amplify rounding errors
on the way back and has the smallest growth of the state at the start of training. `momentum` is the only scheme that
contracts where the field does, but its way back multiplies rounding errors by 1/γ per step: 48 layers of Lie–Trotter
are refused in single precision (`method=euler` is possible). `heun` and `leapfrog` are stable for imaginary
eigenvalues only, `coupling` on the negative axis up to 1 − λ. Norms before each branch bound the field, so none
diverges at depth 48 (`benchmarks/memory.py`). `grid` is for `revnet` only: momentum and coupling multiply their state,
which no grid represents exactly; `heun` and `leapfrog` could have one and are not recommended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.momentum import momentum_method
from odeum.architectures.stepped import Gradient, Place
from odeum.errors import OdeumError
from odeum.registry.names import Deferred
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.integrators.base import Method

register.method(
    "reversible-heun",
    Deferred("odeum.integrators", "ReversibleHeun"),
    about="reversible Heun with an auxiliary state: order 2",
    reference="Kidger et al. 2021",
)


@register.architecture(
    "reversible",
    about="reversible layers: activation memory does not grow with depth",
    reference="Gomez et al. 2017, arXiv 1707.04585",
    group="reversible layers",
)
@dataclass(frozen=True)
class Reversible(Layered):
    """Layers that can be run backwards, so that activation memory does not grow with depth."""

    gradient: Gradient = "reversible"
    scheme: Literal["revnet", "momentum", "heun", "leapfrog", "coupling"] = "revnet"
    """how a state and its twin move: revnet (Gomez 2017), momentum (Sander 2021), heun (Kidger 2021), leapfrog, or
    coupling, which makes the step that `method` names reversible (McCallum & Foster 2024)"""
    gamma: Annotated[float | None, Range(above=0, below=1)] = None
    """for scheme=momentum: decay of the velocity per step (default: 0.9)"""
    keep: Annotated[float | None, Range(above=0, most=1)] = None
    """for scheme=coupling: λ, weight of the state in its average with the twin (default: 0.99)"""
    grid: Annotated[int | None, Range(0, 40)] = None
    """for scheme=revnet: fractional bits that states are rounded to, so that the inversion is exact to the bit
    (default: no rounding)"""

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import make_method
        from odeum.integrators import Coupled, Leapfrog, ReversibleHeun, RevNet

        for option, scheme in (("gamma", "momentum"), ("keep", "coupling"), ("grid", "revnet")):
            if (value := getattr(self, option)) is not None and self.scheme != scheme:
                raise OdeumError(f"{option}={value} applies to scheme={scheme} only, but scheme={self.scheme} is set")
        if self.scheme == "coupling":
            return Coupled(make_method(self.method), 0.99 if self.keep is None else self.keep)
        if self.scheme == "momentum":
            return momentum_method(self.method, 0.9 if self.gamma is None else self.gamma)
        if self.method != "lie-trotter":
            raise OdeumError(
                f"scheme={self.scheme} is a step of its own; method={self.method} is for coupling and momentum"
            )
        if self.scheme == "revnet":
            return RevNet(self.grid)
        return ReversibleHeun() if self.scheme == "heun" else Leapfrog()
