"""Exceptions and warnings for user mistakes; any other exception is a bug and keeps its traceback."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

_display_names: dict[str, str] = {}
"""names that the user gave, by the path where their content was unpacked"""


def set_display_name(place: object, name: object) -> None:
    """Show `name` in messages instead of `place`, a temporary file or folder that the user never saw."""
    _display_names[str(place)] = with_display_names(str(name))


def with_display_names(sentence: str) -> str:
    """Returns a message or a path with temporary paths replaced by the names that the user gave."""
    for place in sorted(_display_names, key=len, reverse=True):  # a file before the folder that it lies in
        sentence = sentence.replace(place, _display_names[place])
    return sentence


class OdeumError(ValueError):
    """A user mistake. The message says what is wrong (with the value), where, and what to do."""

    def __init__(self, *sentence: object) -> None:
        super().__init__(*(with_display_names(part) if isinstance(part, str) else part for part in sentence))


class Notice(UserWarning):
    """A warning about something that is not an error, such as rows that were left out or lines that were cut."""


def notice(sentence: str) -> None:
    warnings.warn(with_display_names(sentence), Notice, stacklevel=3)


class Diverged(OdeumError):
    """A loss that is not finite, or a field that is too stiff. In a comparison this counts as a result."""


class CutOff(OdeumError):
    """A run reached its time limit. Its state is saved; a longer limit continues it."""


def choose(word: str, options: Iterable[str], what: str) -> str:
    """Returns `word` if it is one of `options`; raises `OdeumError` with the known options otherwise."""
    known = list(options)
    if word in known:
        return word
    lowered = {option.lower(): option for option in reversed(known)}
    close = difflib.get_close_matches(word.lower(), lowered, n=1)
    hint = f"; did you mean '{lowered[close[0]]}'?" if close else ";"
    raise OdeumError(f"unknown {what} '{word}'{hint} known: {', '.join(known)}")
