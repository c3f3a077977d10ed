"""Registries: open tables of the names of methods, fields and architectures."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from odeum.errors import OdeumError, choose

if TYPE_CHECKING:
    from torch import nn

    from odeum.fields.base import Field
    from odeum.integrators.base import Method
    from odeum.models.settings import Shape
    from odeum.tableaux import Tableau

T = TypeVar("T")

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered item with its description."""

    item: T
    about: str
    """one line for `odeum list`"""
    reference: str
    """source of the idea: a paper, a person"""
    module: str
    """name of the Python module that registered it"""
    group: str = ""
    """heading in `odeum list`"""


class Registry(Mapping[str, T]):
    """Items by name, in the order of registration.

    Looking up an unknown name raises `OdeumError` with the known names; `get` returns None instead.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        """kind of the items, for messages: "method" """
        self.entries: dict[str, Entry[T]] = {}

    def add(
        self, name: str, item: T, *, about: str = "", reference: str = "", module: str | None = None, group: str = ""
    ) -> T:
        """Register the item and return it.

        Raises `OdeumError` if the name is taken, unless by an earlier definition of the same item (a plugin that is
        loaded twice, a notebook cell that is run again), which is replaced.

        Arguments: the name as spelled on the command line; the item; a line about it; where the idea comes from; the
        module that registers it (default: the caller's); the heading in lists.
        """
        self.check(name, item)
        self.entries[name] = Entry(item, about, reference, module or caller(), group)
        return item

    def check(self, name: str, item: T) -> None:
        """Raise OdeumError if the item cannot be added under that name."""
        what = f"a{'n' if self.what[0] in 'aeiou' else ''} {self.what}"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise OdeumError(
                f"'{name}' cannot be the name of {what}: "
                "use lowercase letters, digits, '-', '_' and '.', starting with a letter or digit"
            )
        existing = self.entries.get(name)
        if existing is not None and not _same(existing.item, item):
            raise OdeumError(f"{what} '{name}' already exists, registered by {existing.module}; choose another name")

    def groups(self) -> dict[str, list[str]]:
        """Returns the names under their headings, both in the order of registration."""
        out: dict[str, list[str]] = {}
        for name, entry in self.entries.items():
            out.setdefault(entry.group, []).append(name)
        return out

    def __getitem__(self, name: str) -> T:
        return self.entries[choose(name, self.entries, self.what)].item

    def get(self, key: object, default: Any = None) -> Any:
        """Returns the item of that name, or the default."""
        return self[str(key)] if key in self else default

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.what}: {', '.join(self)})"


@dataclass(frozen=True)
class Deferred:
    """A function or class that is imported when it is first called, so that its name needs no torch."""

    module: str
    name: str

    def __call__(self, *given: Any) -> Any:
        return getattr(import_module(self.module), self.name)(*given)


def caller(*skipped: str) -> str:
    """The nearest module up the stack that does not register on behalf of others, as those `skipped` do."""
    depth, ours = 1, ("odeum.registry.names", "odeum.registry.register", *skipped)
    while (module := sys._getframe(depth).f_globals.get("__name__", "")) in ours:
        depth += 1
    return module


def _same(one: Any, other: Any) -> bool:
    """Whether two items are equal or stem from one definition: a module that is imported twice makes two classes."""
    return one is other or _identity(one) == _identity(other)


def _identity(item: Any) -> Any:
    if isinstance(item, type) or hasattr(item, "__qualname__"):
        module = sys.modules.get(item.__module__)
        line = item.__code__.co_firstlineno if item.__qualname__.endswith("<lambda>") else None  # all have one name
        return getattr(module, "__file__", None) or item.__module__, item.__qualname__, line
    if dataclasses.is_dataclass(item):
        return _identity(type(item)), tuple(getattr(item, field.name) for field in dataclasses.fields(item))
    return item


@dataclass(frozen=True)
class Architecture:
    """Base class of all architectures: a frozen dataclass whose fields are the options of its spelling."""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """short words for several options at once: `transevolve:full-1`"""

    def stack(self, shape: Shape, cross: bool = False) -> nn.Module:
        """Builds the stack of layers; with `cross` also with attention to an encoder's memory."""
        raise OdeumError(
            f"{type(self).__name__} does not define how it is built; define field(self, shape), as for an "
            "odeum.Stepped, or stack(self, shape, cross)"
        )


@dataclass(frozen=True)
class Mixed(Architecture):
    """Layers of several architectures in a row: `parallel*6+rk4*2` is eight layers."""

    parts: tuple[tuple[Architecture, int], ...] = ()
    """each architecture with its number of layers"""


METHODS: Registry[Tableau | Callable[[], Method]] = Registry("method")
"""how one layer steps: a tableau of numbers, or a function that makes a method"""
FIELDS: Registry[Callable[[Shape], Field]] = Registry("field")
"""fields by name: functions from a shape to a field"""
ARCHITECTURES: Registry[Architecture] = Registry("architecture")
"""the options of each name; several names may share a class of options"""
REGISTRIES: list[Registry[Any]] = [ARCHITECTURES, METHODS, FIELDS]
"""registries whose names a run may need; others are appended where they are made"""
