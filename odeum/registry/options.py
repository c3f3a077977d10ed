"""Whether a setting's value is one that its annotation allows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from numbers import Integral, Real
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from odeum.errors import OdeumError, choose

NUMBERS: dict[type, str] = {int: "a whole number", float: "a number"}
SEPARATORS = ",:=+*"


@dataclass(frozen=True)
class Range:
    """Which numbers an option takes, as an annotation: `strength: Annotated[float, Range(least=0)] = 0.1`."""

    least: float | None = None
    above: float | None = None
    """like least, but the end itself is left out"""
    most: float | None = None

    def check(self, value: float, what: str) -> None:
        """Refuse a number outside the range."""
        if self.least is not None and not value >= self.least:
            raise OdeumError(
                f"{what} should be {f'{self.least} or more' if self.least else 'zero or more'}, not {value}"
            )
        if self.above is not None and not value > self.above:
            raise OdeumError(f"{what} should be {f'above {self.above}' if self.above else 'positive'}, not {value}")
        if self.most is not None and not value <= self.most:
            raise OdeumError(f"{what} should be at most {self.most}, not {value}")


COUNT = Range(above=0)
NOT_NEGATIVE = Range(least=0)


@dataclass(frozen=True)
class Option:
    """One field of an architecture's dataclass: how its text is read and which values it takes."""

    name: str
    hint: Any
    """its type, without what is annotated"""
    names: Mapping[str, Any] | None = None
    """the registry its value is a name of"""
    range: Range | None = None

    @property
    def kinds(self) -> list[Any]:
        """The names it may be, or its type."""
        return list(self.names) if self.names is not None else _kinds(self.hint)

    @property
    def optional(self) -> bool:
        """Whether it may be none."""
        return type(None) in get_args(self.hint)

    def check(self, value: Any, what: str) -> None:
        """Refuse a value that the annotation does not allow."""
        if value is None and self.optional:
            return
        if self.names is not None:
            choose(str(value), self.names, what)
            return
        check_type(value, self.hint, what)
        if isinstance(value, Real) and not isinstance(value, bool):
            if self.range is not None:
                self.range.check(value, what)
            if not math.isfinite(value):
                raise OdeumError(f"{what} should be a finite number, not {value}")
        if self.kinds == [str]:
            self._check_text(value, what)

    def _check_text(self, value: Any, what: str) -> None:
        """Refuse a text that a spelling could not hold."""
        split = not isinstance(value, str) or any(letter in value for letter in SEPARATORS) or value != value.strip()
        if split or not value or (self.optional and value == "none"):
            raise OdeumError(
                f"{what} should be a text without {' '.join(SEPARATORS)} and blanks around it, not {value!r}"
            )

    def convert(self, text: str, what: str) -> Any:
        """The text of a spelling as the annotated type; the sentence names what would be right."""
        if text == "none" and self.optional:
            return None
        kind = self.kinds[0]
        if isinstance(kind, str):
            return choose(text, self.kinds, what)
        if kind is bool:
            return choose(text.lower(), ("true", "false"), what) == "true"
        try:
            return kind(text)
        except ValueError:
            raise OdeumError(f"{what} should be {NUMBERS[kind]}, not '{text}'") from None


@lru_cache(maxsize=256)  # asked whenever a model is built, and reading annotations takes milliseconds
def options(settings: type) -> Mapping[str, Option]:
    """The options of a dataclass, generated from its annotations; a sentence about one that no spelling could hold."""
    try:
        hints = get_type_hints(settings, include_extras=True)
    except NameError as error:
        raise OdeumError(f"the annotations of {settings.__name__} cannot be read: {error}") from None
    out = {}
    for field in fields(settings):  # ty: ignore[invalid-argument-type]
        hint, extras = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
        names = next((extra for extra in extras if isinstance(extra, Mapping)), None)
        option = Option(field.name, hint, names, next((extra for extra in extras if isinstance(extra, Range)), None))
        kinds = _kinds(hint)
        if not kinds or not (all(isinstance(kind, str) for kind in kinds) or kinds in ([int], [float], [bool], [str])):
            raise OdeumError(
                f"the option {field.name} of {settings.__name__} should be int, float, bool, str or a Literal of words "
                f"(or one of them | None), not {getattr(hint, '__name__', hint)}"
            )
        out[field.name] = option
    return MappingProxyType(out)


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
    elif dataclasses.is_dataclass(kinds[0]):
        if not isinstance(value, kinds[0]):
            raise OdeumError(f"{what} should be {kinds[0].__name__}(…), not {value!r}")
        for name, inner in get_type_hints(kinds[0]).items():
            check_type(getattr(value, name), inner, f"{what}.{name}")
    elif kinds[0] is bool and not isinstance(value, bool):
        raise OdeumError(f"{what} should be True or False, not {value!r}")


def _kinds(hint: Any) -> list[Any]:
    """The words of a Literal, or the type of a number."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    return [word for kind in kinds for word in (get_args(kind) if get_origin(kind) is Literal else (kind,))]
