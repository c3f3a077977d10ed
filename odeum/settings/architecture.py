"""Which architecture: a union of small dataclasses, and their short spellings (`parallel:independent=6`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from odeum.errors import OdeumError, choose

Method = Literal[
    "lie-trotter", "strang", "strang-midpoint", "euler", "midpoint", "heun", "rk4", "rk4-38", "bosh3", "dopri5"
]
Gradient = Literal["backprop", "checkpointed", "adjoint"]
Sharing = Literal["sequence", "cycle"]
NormPlacement = Literal["pre", "shared", "post", "post-sum", "peri", "branch"]
Coefficients = Literal["fixed", "learned", "gated"]


@dataclass(frozen=True)
class Stepped:
    """What every layered architecture chooses: how a layer steps and which layers share weights."""

    method: Method = "lie-trotter"
    """how one layer steps through the field"""
    steps: int = 1
    """steps a layer; a trained model may be given another number"""
    independent: int | None = None
    """how many layers have weights of their own (none: all)"""
    sharing: Sharing = "sequence"
    """neighbours share (0 0 1 1) or the whole stack repeats (0 1 0 1)"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the steps"""


@dataclass(frozen=True)
class Layered(Stepped):
    """A row of layers, each a few steps of a method through attention and feed-forward."""

    form: Literal["plain", "macaron"] = "plain"
    """plain: attention + feed-forward; macaron: ½ feed-forward + attention + ½ feed-forward"""
    norm: NormPlacement = "pre"
    """where the norms stand"""


@dataclass(frozen=True)
class OdeTransformer(Stepped):
    """Li et al. 2022: a Runge–Kutta step whose field is the increment of a whole layer."""

    method: Method = "heun"
    coefficients: Coefficients = "gated"
    """how the stages are mixed"""


@dataclass(frozen=True)
class Sandwich:
    """Press et al. 2020: k attentions, n−k whole layers, k feed-forwards."""

    coefficient: int = 2
    """k, the number of layers pulled apart"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the steps"""


@dataclass(frozen=True)
class Continuous:
    """One set of weights integrated over [0, depth] by an adaptive solver: a neural ODE."""

    method: Literal["bosh3", "dopri5"] = "dopri5"
    """embedded Runge–Kutta pair"""
    rtol: float = 1e-3
    """relative error allowed a step"""
    atol: float = 1e-4
    """absolute error allowed a step"""
    gradient: Gradient = "backprop"
    """how the gradient passes through the solver"""


@dataclass(frozen=True)
class Evolved(Stepped):
    """Dutta et al. 2021, TransEvolve: attention measured once a block and evolved over depth."""

    blocks: int = 1
    """how often attention is measured"""
    depth: int | None = None
    """layers a block (none: the model's depth divided by blocks)"""
    feedforward: Literal["full", "random"] = "full"
    """dense feed-forward, or random rotations with learned singular values"""
    rotation: Literal["orthogonal", "published"] = "orthogonal"
    """which random matrices: true rotations, or the formula of the released code"""
    attention: Literal["auto", "shared", "fused", "linear"] = "auto"
    """shared exponential and fused are exact; linear is a random-feature approximation"""
    features: int = 128
    """random features a head of the linear form"""
    time_width: int | None = None
    """width of the depth vector a head (none: width / heads)"""
    seed: int = 0
    """of the random matrices"""


Architecture = Layered | OdeTransformer | Sandwich | Continuous | Evolved

ARCHITECTURES: dict[str, Architecture] = {
    "sequential": Layered(),
    "post-norm": Layered(norm="post"),
    "parallel": Layered(method="euler"),
    "midpoint": Layered(method="midpoint"),
    "rk2": Layered(method="heun"),
    "rk4": Layered(method="rk4"),
    "rk4-38": Layered(method="rk4-38"),
    "macaron": Layered(form="macaron"),
    "strang": Layered(method="strang"),
    "strang-midpoint": Layered(method="strang-midpoint"),
    "sandwich": Sandwich(),
    "ode-transformer": OdeTransformer(),
    "continuous": Continuous(),
    "transevolve": Evolved(),
}

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "transevolve": {
        f"{kind}-{blocks}": {"feedforward": kind, "blocks": blocks} for kind in ("full", "random") for blocks in (1, 2)
    }
}


MAY_BE_ZERO = ("seed", "coefficient", "rtol", "atol")
LARGEST = {"seed": 2**32 - 1}
NUMBERS: dict[type, str] = {int: "a whole number", float: "a number"}


def parse(spelling: str | Architecture) -> Architecture:
    """`parallel:independent=6` -> Layered(method="euler", independent=6); a dataclass is checked and returned."""
    if not isinstance(spelling, str):
        return _checked(spelling, type(spelling).__name__)
    name, _, rest = spelling.strip().partition(":")
    base = ARCHITECTURES[choose(name, ARCHITECTURES, "architecture")]
    hints = get_type_hints(type(base))
    changes: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if equals:
            choose(key, hints, f"option of {name}")
            new = {key: _convert(value, hints[key], f"{key} of {name}")}
        elif variants := VARIANTS.get(name):
            new = variants[choose(item, variants, f"variant of {name}")]
        else:
            raise OdeumError(f"'{item}' in '{spelling}' should read key=value; {name} takes: {', '.join(hints)}")
        if twice := changes.keys() & new.keys():
            raise OdeumError(f"'{spelling}' says {' and '.join(sorted(twice))} of {name} twice; say it once")
        changes |= new
    return _checked(dataclasses.replace(base, **changes), name)


def split_spellings(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` -> [`a`, `b:x=1,y=2`, `c`]: an item with = and no name belongs to the one before."""
    out: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        names_itself = ":" in item or item in ARCHITECTURES
        if out and not names_itself and ("=" in item or _is_variant(out[-1], item)):
            out[-1] += ("," if ":" in out[-1] else ":") + item
        else:
            out.append(item)
    return out


def spell(architecture: Architecture) -> str:
    """The shortest spelling that `parse` turns into this architecture."""
    return min(_spellings(architecture), key=len)


def _spellings(architecture: Architecture) -> Iterator[str]:
    """What is to be said beside each name of this kind, and beside each variant that says nothing wrong."""
    values = {field.name: getattr(architecture, field.name) for field in dataclasses.fields(architecture)}
    for name, base in ARCHITECTURES.items():
        if type(base) is not type(architecture):
            continue
        for variant, said in {"": {}, **VARIANTS.get(name, {})}.items():
            if all(values[key] == value for key, value in said.items()):
                rest = {k: v for k, v in values.items() if k not in said and v != getattr(base, k)}
                items = [*filter(None, [variant]), *(f"{k}={'none' if v is None else v}" for k, v in rest.items())]
                yield name + (":" + ",".join(items) if items else "")


def _is_variant(previous: str, item: str) -> bool:
    name, colon, _ = previous.partition(":")
    return bool(colon) and item in VARIANTS.get(name, {})


def _checked(architecture: Architecture, name: str) -> Architecture:
    """The architecture, if each of its values is one that its annotation allows, else a sentence about the first."""
    if not isinstance(architecture, Architecture):
        raise OdeumError(f"an architecture is a spelling or one of the dataclasses, not {architecture!r}")
    for key, hint in get_type_hints(type(architecture)).items():
        value, what = getattr(architecture, key), f"{key} of {name}"
        check_type(value, hint, what)
        if isinstance(value, int | float):
            _check_range(value, key, what)
    return architecture


def check_type(value: Any, hint: Any, what: str) -> None:
    """Refuse a value that is not what a setting's annotation says."""
    kinds = _kinds(hint)
    if value is None and type(None) in get_args(hint):
        return
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple | list) or not all(isinstance(item, Integral) for item in value):
            raise OdeumError(f"{what} should be a tuple of whole numbers, not {value!r}")
    elif isinstance(kinds[0], str):
        choose(str(value), kinds, what)
    elif kinds[0] in NUMBERS:
        if not isinstance(value, Integral if kinds[0] is int else Real) or isinstance(value, bool):
            raise OdeumError(f"{what} should be {NUMBERS[kinds[0]]}, not {value!r}")
    elif kinds[0] is bool and not isinstance(value, bool):
        raise OdeumError(f"{what} should be True or False, not {value!r}")


def _kinds(hint: Any) -> list[Any]:
    """The words of a Literal, or the type of a number."""
    return [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]


def _convert(value: str, hint: Any, what: str) -> Any:
    """Turn an option's text into its annotated type; the sentence names what would be right."""
    kinds = _kinds(hint)
    if isinstance(kinds[0], str):
        return choose(value, kinds, what)
    if value == "none" and type(None) in get_args(hint):
        return None
    try:
        return kinds[0](value)
    except ValueError:
        raise OdeumError(f"{what} should be {NUMBERS[kinds[0]]}, not '{value}'") from None


def _check_range(value: float, key: str, what: str) -> None:
    if not math.isfinite(value) or value < 0 or (value == 0 and key not in MAY_BE_ZERO):
        raise OdeumError(f"{what} should be {'zero or more' if key in MAY_BE_ZERO else 'positive'}, not {value}")
    if value > LARGEST.get(key, math.inf):
        raise OdeumError(f"{what} should be at most {LARGEST[key]}, not {value}")
