"""Which architecture: a union of small dataclasses, and their short spellings (`parallel:independent=6`)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from odeum.errors import OdeumError, choose

Method = Literal["lie-trotter", "strang", "strang-midpoint", "euler", "midpoint", "heun", "rk4", "rk4-38", "bosh3", "dopri5"]
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


def parse(spelling: str | Architecture) -> Architecture:
    """`parallel:independent=6` -> Layered(method="euler", independent=6)."""
    if not isinstance(spelling, str):
        return spelling
    name, _, rest = spelling.partition(":")
    base = ARCHITECTURES[choose(name, ARCHITECTURES, "architecture")]
    hints = get_type_hints(type(base))
    changes: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            variants = VARIANTS.get(name, {})
            if not variants:
                raise OdeumError(f"'{item}' in '{spelling}' should read key=value; {name} takes: {', '.join(hints)}")
            changes |= variants[choose(item, variants, f"variant of {name}")]
        else:
            choose(key, hints, f"option of {name}")
            changes[key] = _convert(value, hints[key], f"{key} of {name}")
    return dataclasses.replace(base, **changes)


def split_spellings(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` -> [`a`, `b:x=1,y=2`, `c`]: an item with = and no name belongs to the one before."""
    out: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        if out and ":" not in item and item not in ARCHITECTURES and ("=" in item or ":" in out[-1] and _is_variant(out[-1], item)):
            out[-1] += ("," if ":" in out[-1] else ":") + item
        else:
            out.append(item)
    return out


def _is_variant(previous: str, item: str) -> bool:
    return item in VARIANTS.get(previous.partition(":")[0], {})


def spell(architecture: Architecture) -> str:
    """The shortest spelling that `parse` turns into this architecture."""
    best = ""
    for name, base in ARCHITECTURES.items():
        if type(base) is not type(architecture):
            continue
        changed = [
            f"{f.name}={getattr(architecture, f.name)}"
            for f in dataclasses.fields(base)
            if getattr(base, f.name) != getattr(architecture, f.name)
        ]
        candidate = name + (":" + ",".join(changed) if changed else "")
        if not best or len(candidate) < len(best):
            best = candidate
    return best


def _convert(value: str, hint: Any, what: str) -> Any:
    """Turn an option's text into its annotated type; the sentence names what would be right."""
    options = [a for a in (get_args(hint) or (hint,)) if a is not type(None)]
    if all(isinstance(o, str) for o in options):
        return choose(value, options, what)
    if value == "none" and type(None) in get_args(hint):
        return None
    kind = options[0]
    try:
        number = kind(value)
    except ValueError:
        raise OdeumError(f"{what} should be {'a whole number' if kind is int else 'a number'}, not '{value}'") from None
    if number < 0 or number == 0 and what.partition(" ")[0] not in ("seed", "coefficient", "atol", "rtol"):
        raise OdeumError(f"{what} should be positive, not '{value}'")
    return number
