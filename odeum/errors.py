"""A user's mistake is one sentence; everything else is a bug and keeps its traceback."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

_display_names: dict[str, str] = {}
"""what a user named, by the place where its content lies unpacked"""


def set_display_name(place: object, name: object) -> None:
    """From now on sentences say `name` for what lies at `place`, a file or a folder that a user never saw."""
    _display_names[str(place)] = with_display_names(str(name))


def with_display_names(sentence: str) -> str:
    """A sentence, or a path, with the names that a user knows."""
    for place in sorted(_display_names, key=len, reverse=True):  # a file before the folder that it lies in
        sentence = sentence.replace(place, _display_names[place])
    return sentence


class OdeumError(ValueError):
    """Says, in one sentence, which value is wrong, where, and what would be right."""

    def __init__(self, *sentence: object) -> None:
        super().__init__(*(with_display_names(part) if isinstance(part, str) else part for part in sentence))


class Notice(UserWarning):
    """Nothing is wrong, but a user should know: rows that were left out, lines that were cut."""


def notice(sentence: str) -> None:
    warnings.warn(with_display_names(sentence), Notice, stacklevel=3)


class Diverged(OdeumError):
    """A loss that is not finite, a field too stiff: the user's settings again, but in a comparison it is a result."""


class CutOff(OdeumError):
    """The clock ended a run before its length; its state is saved, and a longer limit continues it."""


def choose(word: str, options: Iterable[str], what: str) -> str:
    """Return `word` if it is one of `options`, else raise a sentence that lists them."""
    known = list(options)
    if word in known:
        return word
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    raise OdeumError(f"unknown {what} '{word}'{hint} known: {', '.join(known)}")
