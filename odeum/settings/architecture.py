"""Which architecture: small frozen dataclasses, and the registries of the names that stand for them and in them.

The names of Odeum's own are registered in `odeum.registry.builtin`, by the functions that anybody may call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from odeum.registry.names import Registry
from odeum.registry.options import COUNT, NOT_NEGATIVE, Range

if TYPE_CHECKING:
    from odeum.fields.base import Field
    from odeum.integrators.base import Method
    from odeum.models.settings import Shape
    from odeum.tableaux import Tableau

METHODS: Registry[Tableau | Callable[[], Method]] = Registry("method")
"""how one layer steps: a tableau of numbers, or what makes a method"""
FIELDS: Registry[Callable[[Shape], Field]] = Registry("field")
"""what a layer may be made of: from a shape to a field"""

MethodName = Annotated[str, METHODS]
FieldName = Annotated[str, FIELDS]
Gradient = Literal["backprop", "checkpointed", "adjoint", "reversible"]
Sharing = Literal["sequence", "cycle"]
NormPlacement = Literal["pre", "shared", "post", "post-sum", "peri", "branch"]
Coefficients = Literal["fixed", "learned", "gated"]
Weights = Literal["constant", "knots", "hyper", "adaln"]
Between = Literal["constant", "linear", "cubic"]


@dataclass(frozen=True)
class Architecture:
    """What every architecture is: a frozen dataclass whose fields are the options of its spelling.

    A sub-class is built by its own method `stack(self, shape, cross)`, which returns the stack of layers; `cross` asks
    for attention to an encoder's memory too.
    """

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """short words for several options at once: `transevolve:full-1`"""


@dataclass(frozen=True)
class Stepped(Architecture):
    """What every layered architecture chooses: how a layer steps and which layers share weights.

    A sub-class says what is stepped through by a method `field(self, shape)`, or `field(self, shape, cross)` if it can
    also attend to an encoder's memory; it is called once for each layer with weights of its own.
    """

    method: MethodName = "lie-trotter"
    """how one layer steps through the field"""
    steps: Annotated[int, COUNT] = 1
    """steps a layer; a trained model may be given another number"""
    independent: Annotated[int | None, COUNT] = None
    """how many layers have weights of their own (none: all)"""
    sharing: Sharing = "sequence"
    """neighbours share (0 0 1 1) or the whole stack repeats (0 1 0 1)"""
    schedule: str | None = None
    """which layers' weights act one after the other, as in 0-5/4-5/6-10 (none: as independent and sharing say)"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the steps"""


@dataclass(frozen=True)
class OverTime(Architecture):
    """What may be chosen where weights can depend on time: one field for all layers, with weights θ(t)."""

    weights: Weights = "constant"
    """constant in a layer; or, over all layers, by knots in time, by a network of the time (hyper), or the norms' alone
    (adaln)"""
    knots: Annotated[int | None, COUNT] = None
    """of weights=knots: how many (none: 4, or as many as layers)"""
    between: Between | None = None
    """of weights=knots: how weights go from knot to knot (none: linear)"""
    rank: Annotated[int | None, Range(above=0, most=1000)] = None
    """of weights=hyper: how many matrices the network mixes into each (none: 4)"""


@dataclass(frozen=True)
class Layered(OverTime, Stepped):
    """A row of layers, each a few steps of a method through attention and feed-forward."""

    form: Literal["plain", "macaron"] = "plain"
    """plain: attention + feed-forward; macaron: ½ feed-forward + attention + ½ feed-forward"""
    norm: NormPlacement = "pre"
    """where the norms stand"""
    attention: FieldName = "attention"
    """the field in the place of attention"""
    feedforward: FieldName = "feed-forward"
    """the field in the place of the feed-forward"""
    interval: Annotated[float, Range(above=0)] = 1.0
    """how long a layer is in time"""
    pace: Literal["fixed", "learned"] = "fixed"
    """learned: each term of each layer is followed for a learned time, the interval at the start"""


@dataclass(frozen=True)
class OdeTransformer(Stepped):
    """Li et al. 2022: a Runge–Kutta step whose field is the increment of a whole layer."""

    method: MethodName = "heun"
    coefficients: Coefficients = "gated"
    """how the stages are mixed"""


@dataclass(frozen=True)
class Sandwich(Architecture):
    """Press et al. 2020: k attentions, n−k whole layers, k feed-forwards."""

    coefficient: Annotated[int, NOT_NEGATIVE] = 2
    """k, the number of layers pulled apart"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the steps"""


@dataclass(frozen=True)
class Continuous(OverTime):
    """One field, whose weights may depend on time, integrated over [0, depth] by an adaptive solver: a neural ODE."""

    method: MethodName = "dopri5"
    """embedded Runge–Kutta pair"""
    rtol: Annotated[float, NOT_NEGATIVE] = 1e-3
    """relative error allowed a step"""
    atol: Annotated[float, NOT_NEGATIVE] = 1e-4
    """absolute error allowed a step"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the solver"""
    adapt: Literal["batch", "sample"] = "batch"
    """whether the batch shares one step, or each sample has its own and is as if alone"""
    evaluations: Annotated[int, COUNT] = 10_000
    """the most of the field in one pass; a field that needs more is told as stiff"""


@dataclass(frozen=True)
class Evolved(Stepped):
    """Dutta et al. 2021, TransEvolve: attention measured once a block and evolved over depth."""

    blocks: Annotated[int, COUNT] = 1
    """how often attention is measured"""
    depth: Annotated[int | None, COUNT] = None
    """layers a block (none: the model's depth divided by blocks)"""
    feedforward: Literal["full", "random"] = "full"
    """dense feed-forward, or random rotations with learned singular values"""
    rotation: Literal["orthogonal", "published"] = "orthogonal"
    """which random matrices: true rotations, or the formula of the released code"""
    attention: Literal["auto", "shared", "fused", "flex", "linear"] = "auto"
    """shared exponential, fused and flex are exact; linear is a random-feature approximation"""
    features: Annotated[int, Range(above=0, most=1_000_000)] = 128
    """random features a head of the linear form"""
    time_width: Annotated[int | None, Range(above=0, most=1_000_000)] = None
    """width of the depth vector a head (none: width / heads)"""
    seed: Annotated[int, Range(least=0, most=2**32 - 1)] = 0
    """of the random matrices"""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        f"{kind}-{blocks}": {"feedforward": kind, "blocks": blocks} for kind in ("full", "random") for blocks in (1, 2)
    }


@dataclass(frozen=True)
class Mixed(Architecture):
    """Layers of several architectures in a row: `parallel*6+rk4*2` is eight layers."""

    parts: tuple[tuple[Architecture, int], ...] = ()
    """each with its number of layers"""


ARCHITECTURES: Registry[Architecture] = Registry("architecture")
"""a dataclass with its defaults for each name; several names may be settings of one class"""
