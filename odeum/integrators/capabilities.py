"""Capabilities: one table of which methods, solvers, gradients, memory and shared weights combine.

Methods declare what they are as attributes: `history`, `reversible`, `splitting`, `splits`, `divides`. So do solvers:
`fixed`, `shares_steps`, `keeps_states`. `REFUSED` lists the traits that each use cannot work with, and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from odeum.errors import OdeumError
from odeum.integrators.base import Method

CHECKPOINTED = "use gradient=checkpointed"


class Refused(NamedTuple):
    """A trait that a use cannot work with."""

    trait: str
    reason: str
    remedy: str


def _parts(thing: nn.Module, name: str, default: bool) -> list[bool]:
    """The values of a declaration in the method or solver and in everything inside it."""
    return [getattr(part, name, default) for part in thing.modules()]


def method_of(thing: nn.Module) -> Any:
    """Returns the method of a solver of fixed steps, through solvers around it; anything else is returned as it is."""
    while not isinstance(thing, Method) and (inner := getattr(thing, "solver", None)) is not None:
        thing = inner
    return thing if isinstance(thing, Method) else getattr(thing, "method", thing)


TRAITS: dict[str, Callable[[nn.Module], bool]] = {
    "splitting": lambda thing: any(_parts(thing, "splitting", False)),
    "history": lambda thing: bool(getattr(method_of(thing), "history", None)),
    "history of the whole field": lambda thing: not method_of(thing).splits,
    "learned coefficients": lambda thing: any(True for _ in thing.parameters()),
    "coefficients for each step": lambda thing: not method_of(thing).divides,
    "irreversible": lambda thing: not (getattr(thing, "fixed", False) and method_of(thing).reversible),
    "a step size for each sample": lambda thing: not all(_parts(thing, "shares_steps", True)),
    "states that are not kept": lambda thing: not all(_parts(thing, "keeps_states", True)),
}
"""how a trait is read off the declarations of a method or a solver"""

REFUSED: dict[str, tuple[Refused, ...]] = {
    "gradient=checkpointed": (
        Refused("states that are not kept", "it recomputes from states", "use one kind of gradient"),
    ),
    "gradient=adjoint": (
        Refused("splitting", "it integrates the whole field backwards, a splitting does not", CHECKPOINTED),
        Refused("history", "it forgets the forward pass, and with it earlier layers", CHECKPOINTED),
        Refused("learned coefficients", "it has no gradient for coefficients of a solver", CHECKPOINTED),
        Refused("a step size for each sample", "it needs one step size for all samples", CHECKPOINTED),
    ),
    "gradient=reversible": (
        Refused(
            "irreversible",
            "its steps cannot be run backwards",
            "use the architecture reversible, momentum with gamma above 0, leapfrog, a method such as reversible-heun, "
            f"or {CHECKPOINTED}",
        ),
        Refused("learned coefficients", "it has no gradient for coefficients of a solver", CHECKPOINTED),
    ),
    "the kinetic energy": (
        Refused("states that are not kept", "it is measured between states", "use gradient=backprop or checkpointed"),
    ),
    "a field over all layers (weights=knots, legendre, hyper, adaln)": (
        Refused(
            "learned coefficients",
            "it is one field for any number of layers, the coefficients belong to single layers",
            "use a method without learned coefficients, or weights=constant",
        ),
    ),
    "another number of steps": (
        Refused("coefficients for each step", "each step has its coefficients", "keep the steps it was built with"),
    ),
    "a splitting": (
        Refused(
            "history of the whole field",
            "a splitting moves one term at a time, the history holds values of the whole field",
            "use the method unsplit",
        ),
    ),
    "an injection or an exit": (
        Refused(
            "history",
            "it changes states that the method uses again",
            "use inject=none and exit=0, or a method without history",
        ),
    ),
    "dense": (Refused("history", "dense averages states itself", "use a method without history such as euler"),),
    "residual scalars": (
        Refused("history", "they scale the state that it uses again", "use a method without history such as euler"),
    ),
    "a memory of earlier layers": (
        Refused("history", "it has a history itself", "use a method without history such as euler or rk4"),
    ),
    "a state on the sphere": (
        Refused("history", "it holds states off the sphere", "use a method without history such as lie-trotter"),
    ),
    "coupling": (
        Refused("history", "it makes one-step methods reversible", "use a method without history such as euler or rk4"),
    ),
}


def check(use: str, thing: nn.Module, name: str = "", detail: str = "") -> None:
    """Raises `OdeumError` if the method or solver has a trait that this use cannot work with.

    Arguments: a key of `REFUSED`; the method or solver; its name in the message (default: the method's) and details.
    """
    for trait, reason, remedy in REFUSED[use]:
        if TRAITS[trait](thing):
            more = f" ({detail})" if detail else ""
            named = name or name_of(method_of(thing))
            raise OdeumError(f"{use} cannot be combined with {named}: {reason}; {remedy}{more}")


def name_of(method: Any) -> str:
    """Returns the name of a method or a solver for messages."""
    tableau = getattr(method, "tableau", None)
    kind = re.sub(r"(?<!^)(?=[A-Z])", "-", type(method).__name__).lower()
    return getattr(method, "history", None) or (tableau.name if tableau else kind)
