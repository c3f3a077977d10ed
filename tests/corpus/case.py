"""One row of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """Words for the command line, in a folder that was prepared, and what must be said."""

    words: tuple[str, ...]
    fragment: str
    prepare: Callable[[Path], object] = lambda folder: None
    title: str = ""
    """of a case that its words alone do not name"""
    again: bool = False
    """whether another case has shown the same of an equal option, or of a setting of this type"""

    @property
    def name(self) -> str:
        """What a failure is called."""
        return f"{self.title} {' '.join(self.words)}".strip()[:120]


def words(line: str, fragment: str, prepare: Callable[[Path], object] = lambda folder: None) -> Case:
    """A case whose words have no blanks inside."""
    return Case(tuple(line.split()), fragment, prepare)
