"""Methods and solvers by name."""

from __future__ import annotations

from collections.abc import Callable

from odeum.architectures.stepped import Place, Stepped
from odeum.errors import OdeumError, choose
from odeum.integrators import Adjoint, Checkpointed, FixedSteps, Method, Reversible, RungeKutta, Solver
from odeum.integrators.term_by_term import TermByTerm
from odeum.registry.names import METHODS
from odeum.tableaux import Tableau

GRADIENTS: dict[str, Callable[[Solver], Solver]] = {
    "backprop": lambda solver: solver,
    "checkpointed": Checkpointed,
    "adjoint": Adjoint,
    "reversible": Reversible,
}


def make_method(name: str) -> Method:
    """Returns the method of that name; raises `OdeumError` with the known names if there is none."""
    entry = METHODS[name]
    method = RungeKutta(entry) if isinstance(entry, Tableau) else entry()
    if not isinstance(method, Method):
        raise OdeumError(f"the method '{name}' must be made as an odeum.Method, not {type(method).__name__}")
    return method


def tableaux(*, embedded: bool = False) -> dict[str, Tableau]:
    """Returns the methods given by a tableau; `embedded`: only those with an error estimate."""
    known = {name: entry for name, entry in METHODS.items() if isinstance(entry, Tableau)}
    return {name: tableau for name, tableau in known.items() if not embedded or tableau.error is not None}


def with_gradient(name: str, solver: Solver) -> Solver:
    """Wraps the solver in the one that computes this kind of gradient."""
    return GRADIENTS[choose(name, GRADIENTS, "gradient")](solver)


def fixed_solver(settings: Stepped, method: Method | None = None, interval: float = 1.0) -> Solver:
    """Returns a solver with a fixed number of steps per layer, by the method of the settings or the one given."""
    rate = settings.steps if interval == 1.0 else settings.steps / interval
    return with_gradient(settings.gradient, FixedSteps(method or make_method(settings.method), rate))


def tableau(name: str, method: str) -> Tableau:
    """Returns the tableau of a method for the architecture `name`, which steps by Runge–Kutta methods alone."""
    known = tableaux()
    if method not in known:
        raise OdeumError(f"{name} needs a Runge–Kutta method, not '{method}'; use {', '.join(known)}")
    return known[method]


def per_term(name: str, method: str, make: Callable[[int], Method], place: Place) -> Method:
    """Returns one method for the whole field (euler) or one for each term (lie-trotter), each with its own weights.

    `make` gets the index of the sublayer in the stack.
    """
    if method == "euler":
        return make(place.layers[0])
    if method == "lie-trotter":
        count = len(place.field.terms)
        return TermByTerm([make(place.layers[0] * count + term) for term in range(count)])
    raise OdeumError(
        f"{name} takes one evaluation per step, with coefficients per term; use method=lie-trotter or euler, "
        f"not {method}"
    )
