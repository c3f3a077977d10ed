"""From names to methods, solvers and schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

from odeum.errors import OdeumError, choose
from odeum.fields import Field
from odeum.integrators import Adjoint, Checkpointed, FixedSteps, Method, Reversible, RungeKutta, Solver
from odeum.models.settings import Shape
from odeum.schedules import SCHEDULES, explicit
from odeum.settings.architecture import METHODS, Stepped
from odeum.tableaux import Tableau

GRADIENTS: dict[str, Callable[[Solver], Solver]] = {
    "backprop": lambda solver: solver,
    "checkpointed": Checkpointed,
    "adjoint": Adjoint,
    "reversible": Reversible,
}


def make_method(name: str) -> Method:
    """The method of that name, or a sentence that lists them."""
    entry = METHODS[name]
    method = RungeKutta(entry) if isinstance(entry, Tableau) else entry()
    if not isinstance(method, Method):
        raise OdeumError(f"the method '{name}' should be made as an odeum.Method, not {type(method).__name__}")
    return method


def tableaux(*, embedded: bool = False) -> dict[str, Tableau]:
    """The methods that are numbers alone; `embedded`: only those that estimate their error."""
    found = {name: entry for name, entry in METHODS.items() if isinstance(entry, Tableau)}
    return {name: tableau for name, tableau in found.items() if not embedded or tableau.error is not None}


def with_gradient(name: str, solver: Solver) -> Solver:
    """The solver inside the one that says how the gradient passes."""
    return GRADIENTS[choose(name, GRADIENTS, "gradient")](solver)


def fixed_solver(settings: Stepped, method: Method | None = None, interval: float = 1.0) -> Solver:
    """Steps of a fixed number for each layer, by the method that the settings name unless another is given."""
    rate = settings.steps if interval == 1.0 else settings.steps / interval
    return with_gradient(settings.gradient, FixedSteps(method or make_method(settings.method), rate))


class Place(NamedTuple):
    """Where a method is to step: through which field, in which of the stack's layers, in which sizes."""

    field: Field
    layers: tuple[int, ...]
    shape: Shape


@singledispatch
def make_step(settings: Stepped, place: Place) -> Method:
    """The method of one layer, or of those that share weights; settings with options of their own register theirs."""
    return make_method(settings.method)


def schedule(settings: Stepped, depth: int, independent: int | None = None) -> tuple[int, ...]:
    """Which weights act when."""
    if settings.schedule is not None:
        if settings.independent is not None:
            raise OdeumError(
                f"schedule={settings.schedule} and independent={settings.independent} both say which layers share "
                "weights; say one of them"
            )
        return explicit(settings.schedule, depth)
    share = SCHEDULES[choose(settings.sharing, SCHEDULES, "sharing")]
    return share(depth, independent or settings.independent or depth)
