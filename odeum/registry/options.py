"""Checks of the values that the annotations of settings allow, in one place with one form of message.

`WHAT must be EXPECTED, got VALUE`: "steps of rk4 must be a positive integer, got 0".
"""

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

SEPARATORS = ",:=+*"


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes, as an annotation: `streams: Annotated[int, Range(2, 8)] = 4`."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    """lower bound that is excluded itself"""
    below: float | None = None
    """upper bound that is excluded itself"""

    def holds(self, value: float) -> bool:
        """Whether the number lies within all bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def expected(self, number: type) -> str:
        """Describes the numbers within: "a positive integer", "a number from 0 to below 1"."""
        noun = "integer" if number is int else "number"
        article = "an" if number is int else "a"
        if self in (Range(above=0), Range(least=1)) and (self.above == 0 or number is int):
            return f"a positive {noun}"
        if self == Range(least=0):
            return f"a non-negative {noun}"
        low = f"above {self.above}" if self.above is not None else None
        high = f"below {self.below}" if self.below is not None else None
        if self.least is not None:
            if self.most is None and high is None:
                return f"{article} {noun} of at least {self.least}"
            return f"{article} {noun} from {self.least} to {high or self.most}"
        if self.most is not None:
            high = f"at most {self.most}"
        return " ".join([article, noun, *filter(None, [" and ".join(filter(None, [low, high]))])])

    def check(self, value: Any, what: str, number: type = int) -> None:
        """Raises `OdeumError` unless the value is a number of this type within the range."""
        wanted = Integral if number is int else Real
        if not isinstance(value, wanted) or isinstance(value, bool) or not self.holds(value):
            raise OdeumError(f"{what} must be {self.expected(number)}, got {value!r}")
        if not math.isfinite(value):
            raise OdeumError(f"{what} must be a finite number, got {value!r}")


COUNT = Range(above=0)
NOT_NEGATIVE = Range(least=0)
ANY = Range()
FRACTION = Range(least=0, below=1)


@dataclass(frozen=True)
class Option:
    """One field of a dataclass of settings: how its text is read and which values it takes."""

    name: str
    hint: Any
    """its type, without annotations"""
    names: Mapping[str, Any] | None = None
    """the registry whose names are its values"""
    range: Range = ANY

    @property
    def kinds(self) -> list[Any]:
        """The words that it may be, or its type."""
        return list(self.names) if self.names is not None else _kinds(self.hint)

    @property
    def optional(self) -> bool:
        """Whether it may be None."""
        return type(None) in get_args(self.hint)

    @property
    def expected(self) -> str:
        """Describes the values that it takes."""
        kind = self.kinds[0]
        if kind in (int, float):
            return self.range.expected(kind)
        return {bool: "true or false", str: "a text"}.get(kind) or f"{getattr(kind, '__name__', kind)}(…)"

    def check(self, value: Any, what: str) -> None:
        """Raises `OdeumError` if the annotation does not allow the value."""
        if value is None and self.optional:
            return
        kind = self.kinds[0]
        if get_origin(self.hint) is tuple:
            if not isinstance(value, tuple | list) or not all(isinstance(item, Integral) for item in value):
                raise OdeumError(f"{what} must be a tuple of integers, got {value!r}")
        elif isinstance(kind, str):
            choose(str(value), self.kinds, what)
        elif kind in (int, float):
            self.range.check(value, what, kind)
        elif not isinstance(kind, type) or not isinstance(value, kind):
            raise OdeumError(f"{what} must be {self.expected}, got {value!r}")
        elif dataclasses.is_dataclass(kind):
            for inner in options(kind).values():
                inner.check(getattr(value, inner.name), f"{what}.{inner.name}")

    def check_spelled(self, value: Any, what: str) -> None:
        """The same for an option of an architecture, whose text must fit into a spelling."""
        self.check(value, what)
        if self.kinds != [str] or value is None:
            return
        if not value or value != value.strip() or {*value} & {*SEPARATORS} or (self.optional and value == "none"):
            raise OdeumError(
                f"{what} must be a text without {' '.join(SEPARATORS)} and surrounding spaces, got {value!r}"
            )

    def convert(self, text: str, what: str) -> Any:
        """Reads the text of a spelling as the annotated type."""
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
            raise OdeumError(f"{what} must be {self.expected}, got '{text}'") from None


@lru_cache(maxsize=256)  # asked whenever a model is built, and reading annotations takes milliseconds
def options(settings: type) -> Mapping[str, Option]:
    """Returns the options of a dataclass, read off its annotations."""
    try:
        hints = get_type_hints(settings, include_extras=True)
    except NameError as error:
        raise OdeumError(f"the annotations of {settings.__name__} cannot be read: {error}") from None
    result = {}
    for field in fields(settings):  # ty: ignore[invalid-argument-type]
        hint, extras = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
        names = next((extra for extra in extras if isinstance(extra, Mapping)), None)
        bounds = next((extra for extra in extras if isinstance(extra, Range)), ANY)
        result[field.name] = Option(field.name, hint, names, bounds)
    return MappingProxyType(result)


@lru_cache(maxsize=256)
def spelled_options(settings: type) -> Mapping[str, Option]:
    """Returns the options of an architecture; raises `OdeumError` if a spelling could not hold one."""
    for option in options(settings).values():
        kinds = _kinds(option.hint)
        if not kinds or not (all(isinstance(kind, str) for kind in kinds) or kinds in ([int], [float], [bool], [str])):
            raise OdeumError(
                f"the option {option.name} of {settings.__name__} must be int, float, bool, str or a Literal of words "
                f"(or one of them | None), got {getattr(option.hint, '__name__', option.hint)}"
            )
    return options(settings)


def check_options(settings: Any, of: str = "") -> None:
    """Raises `OdeumError` about the first value that its annotation does not allow; `of` follows its name."""
    for option in options(type(settings)).values():
        option.check(getattr(settings, option.name), f"{option.name}{of}")


def _kinds(hint: Any) -> list[Any]:
    """The words of a Literal, or the type."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    return [word for kind in kinds for word in (get_args(kind) if get_origin(kind) is Literal else (kind,))]
