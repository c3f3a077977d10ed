"""Layers whose methods remember: options of the general linear methods, each a row of layers as any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from odeum.registry.options import COUNT, Range
from odeum.settings.architecture import Gradient, Layered, MethodName, Stepped

Scheme = Literal["revnet", "momentum", "heun", "leapfrog", "coupling"]


@dataclass(frozen=True)
class Multistep(Layered):
    """Adams & Bashforth 1883: a step by the field now and at the layers before."""

    method: MethodName = "adams-bashforth"
    order: Annotated[int, Range(least=2, most=4)] = 2
    """as many values of the field are used, all but one remembered"""


@dataclass(frozen=True)
class PredictedMultistep(Layered):
    """Adams & Moulton: a step is foreseen from the layers before and made again with the field at its end."""

    method: MethodName = "adams-moulton"
    order: Annotated[int, Range(least=3, most=4)] = 3
    """as many values of the field are used, all but two remembered"""


@dataclass(frozen=True)
class MomentumLayers(Layered):
    """Sander et al. 2021: a velocity passes from layer to layer; each turns it towards its field."""

    gamma: Annotated[float, Range(least=0, most=1)] = 0.9
    """share of the velocity that is kept, below 1; 0 is the plain stack"""


@dataclass(frozen=True)
class NesterovLayers(Layered):
    """Zimin et al. 2026, YuriiFormer: Nesterov's steps with a velocity, attention and feed-forward in turn."""

    normed: bool = True
    """whether the velocity is normed at each step"""


@dataclass(frozen=True)
class ReversibleLayers(Layered):
    """Layers that can be run backwards, so that the memory for the gradient does not grow with depth."""

    gradient: Gradient = "reversible"
    scheme: Scheme = "revnet"
    """how a state and its twin move: revnet (Gomez 2017), momentum (Sander 2021), heun (Kidger 2021), leapfrog, or
    coupling, which makes the step that `method` names reversible (McCallum & Foster 2024)"""
    gamma: Annotated[float | None, Range(above=0, most=1)] = None
    """of scheme=momentum: share of the velocity that is kept (none: 0.9)"""
    keep: Annotated[float | None, Range(above=0, most=1)] = None
    """of scheme=coupling: λ, share of the state that is kept, the rest is its twin's (none: 0.99)"""
    grid: Annotated[int | None, Range(least=0, most=40)] = None
    """of scheme=revnet: binary digits behind the point that all is rounded to, so that the way back is exact to the bit
    (none: not rounded)"""


@dataclass(frozen=True)
class ImplicitLayers(Layered):
    """The implicit midpoint rule, its equation solved by putting the solution in again."""

    method: MethodName = "implicit-midpoint"
    iterations: Annotated[int, Range(above=0, most=1000)] = 4
    """of each step's equation; each is an evaluation of the field"""


@dataclass(frozen=True)
class DenseLayers(Layered):
    """Pagliardini et al. 2024, DenseFormer: after each layer a learned average of all states so far."""


@dataclass(frozen=True)
class HyperLayers(Layered):
    """Zhu et al. 2024, hyper-connections: n residual streams that each layer reads, writes and mixes."""

    streams: Annotated[int, Range(above=0, most=64)] = 4
    """n; one is the plain stream with learned gains"""
    dynamic: bool = True
    """whether the coefficients depend on the streams too"""


@dataclass(frozen=True)
class ManifoldLayers(Layered):
    """Xie et al. 2025, mHC: hyper-connections whose mixing matrices are doubly stochastic."""

    streams: Annotated[int, Range(least=2, most=64)] = 4
    """residual streams"""
    mixing: Literal["sinkhorn", "permutations"] = "sinkhorn"
    """doubly stochastic by normalising rows and columns in turn, nearly, or as a mean of permutations, exactly"""
    iterations: Annotated[int | None, Range(above=0, most=1000)] = None
    """of mixing=sinkhorn: how often rows and columns are normalised (none: 20)"""


@dataclass(frozen=True)
class AveragedCorrector(Stepped):
    """Li et al. 2024, PCformer: a Runge–Kutta step of whole layers, corrected by an average of all states so far."""

    method: MethodName = "heun"
    """whose stages the prediction is made of"""


@dataclass(frozen=True)
class AttentionResidualLayers(Layered):
    """arXiv 2603.15031, attention residuals: each sublayer attends to what those before it added."""

    block: Annotated[int, COUNT] = 1
    """steps whose sum is one value; more remember less"""
