"""Functions that register a tableau, a method, a field, an architecture or a kind of task under a name.

The name then works like a built-in one: in `build`, `describe`, `list`, `compare`, `--help` and spellings with options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from dataclasses import Field as DataField
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from odeum.errors import OdeumError
from odeum.registry.names import ARCHITECTURES, FIELDS, METHODS, Architecture
from odeum.registry.options import spelled_options
from odeum.tableaux import Tableau

if TYPE_CHECKING:
    from odeum.fields.base import Field
    from odeum.integrators.base import Method
    from odeum.lab.tasks.kind import Kind
    from odeum.models.settings import Shape

Made = TypeVar("Made", bound=Callable[..., Any])
Options = TypeVar("Options", bound=Architecture | type[Architecture])


HOOKS = ("stack", "field", "method_for", "variants")
"""methods that an architecture's class may define besides its options"""


def tableau(tableau: Tableau, *, about: str = "", reference: str = "") -> Tableau:
    """Register an explicit Runge–Kutta method under the name of its tableau: `parallel:method=ralston`.

    Arguments: the tableau; a line about it for `odeum list`; where it comes from.
    """
    if not isinstance(tableau, Tableau):
        raise OdeumError(f"register.tableau takes an odeum.Tableau, not {tableau!r}")
    METHODS.add(tableau.name, tableau, about=about or _stages(tableau), reference=reference)
    return tableau


def method(name: str, make: Callable[[], Method] | None = None, *, about: str = "", reference: str = "") -> Any:
    """Register a method other than a tableau: a subclass of `Method`, or a function without arguments that returns one.

    Examples:
        >>> odeum.register.method("strang-rk4", lambda: Strang(RungeKutta(RK4)))
        >>> @odeum.register.method("nudged-euler", reference="nobody, 2026")
        ... class NudgedEuler(odeum.Method): ...
    """
    return _adding(METHODS, name, make, about, reference)


def field(name: str, make: Callable[[Shape], Field] | None = None, *, about: str = "", reference: str = "") -> Any:
    """Register a function or class that makes a field from a shape: `parallel:attention=convolution`.

    Examples:
        >>> odeum.register.field("convolution", lambda shape: Convolution(shape.width))
    """
    return _adding(FIELDS, name, make, about, reference)


def architecture(
    name: str, settings: Architecture | None = None, *, about: str = "", reference: str = "", group: str = ""
) -> Any:
    """Register an architecture: decorates a frozen dataclass, or takes an instance with other defaults.

    The dataclass extends `odeum.Stepped` with a method `field(self, shape)` and has options for method, steps, sharing
    and gradient, or extends `odeum.Architecture` with `stack(self, shape, cross)`. Its fields are the options of the
    spelling.

    Args:
        name: the name in spellings.
        settings: an instance with other defaults (default: use as a decorator).
        about: one line for `odeum list` (default: the first line of the docstring).
        reference: where the architecture comes from.
        group: heading in `odeum list`.

    Examples:
        >>> odeum.register.architecture("rk4-post", Layered(method="rk4", norm="post-sum"))
        >>> @odeum.register.architecture("pull", reference="nobody, 2026")
        ... @dataclass(frozen=True)
        ... class Pull(odeum.Stepped): ...
    """

    def add(given: Options) -> Options:
        kind = given if isinstance(given, type) else type(given)
        _check_dataclass(kind)
        item = given() if isinstance(given, type) else given
        for option in spelled_options(kind).values():
            option.check_spelled(getattr(item, option.name), f"{option.name} of {name}")
        ARCHITECTURES.add(name, item, about=about or _first_line(kind), reference=reference, group=group)
        return given

    return add if settings is None else add(settings)


def kind(name: str | Kind, *, like: str | None = None, **parts: Any) -> Kind:
    """Register a kind of task: a complete `Kind`, or a copy of another kind (`like`) with some of its fields replaced.

    `--kind` then accepts the name, `train` and `compare` accept its named data sets, and its runs can be evaluated,
    reported and used for predictions.

    Examples:
        >>> odeum.register.kind("parity", like="classification", options=ParityData, task=ParityTask, sets=("parity",))
        >>> odeum.register.kind(Kind("depth", …))
    """
    kinds = import_module("odeum.lab.tasks.kind")  # tasks belong to the lab, which is imported only where one is added
    if not isinstance(name, str):
        if like is not None or parts:
            raise OdeumError(f"'{name.name}' is a complete kind; change its fields instead of passing options")
        return kinds.add_kind(name)
    if like is None:
        raise OdeumError(
            f"pass like= with the kind that '{name}' extends, or a complete Kind; known: {', '.join(kinds.KINDS)}"
        )
    if "about" not in parts and (line := _first_line(parts.get("task"))):
        parts["about"] = line
    return kinds.add_kind(kinds.like(kinds.KINDS[like], name, **parts))


def _adding(registry: Any, name: str, make: Made | None, about: str, reference: str) -> Any:
    """Add at once, or return a decorator."""

    def add(made: Made) -> Made:
        if not callable(made):
            raise OdeumError(f"the {registry.what} '{name}' must be callable, got {made!r}")
        registry.add(name, made, about=about or _first_line(made), reference=reference)
        return made

    return add if make is None else add(make)


def _check_dataclass(kind: Any) -> None:
    who = getattr(kind, "__name__", repr(kind))
    if not (isinstance(kind, type) and issubclass(kind, Architecture)):
        raise OdeumError(f"the architecture {who} must be a sub-class of odeum.Stepped or odeum.Architecture")
    if "__dataclass_fields__" not in vars(kind) or not is_dataclass(kind):
        raise OdeumError(f"{who} must be a dataclass: write @dataclass(frozen=True) under @odeum.register.architecture")
    if shadowed := [f.name for f in fields(kind) if f.name in HOOKS]:
        raise OdeumError(f"the option {shadowed[0]} of {who} hides the method of that name; choose another name")
    if missing := [f.name for f in fields(kind) if f.init and _has_no_default(f)]:
        raise OdeumError(f"every option of an architecture needs a default, but {missing[0]} of {who} has none")


def _has_no_default(option: DataField) -> bool:
    return option.default is MISSING and option.default_factory is MISSING


def _first_line(thing: Any) -> str:
    text = (getattr(thing, "__doc__", None) or "").strip()
    generated = isinstance(thing, type) and text.startswith(f"{thing.__name__}(")  # what dataclasses write themselves
    return "" if generated else text.partition("\n")[0].rstrip(".")


def _stages(tableau: Tableau) -> str:
    stages = len(tableau.b)
    return f"Runge–Kutta, {stages} {'stage' if stages == 1 else 'stages'}, order {tableau.order}"
