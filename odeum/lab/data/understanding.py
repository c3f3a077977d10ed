"""Summaries of how data was read: example rows, files of the parts, repeated examples. Does not import torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from odeum.errors import with_display_names

T = TypeVar("T")
LONGEST_EXAMPLE = 70
"""characters of an example that are shown"""
EXAMPLES = 3
"""examples that are shown"""

Origins = dict[str, str]
"""file or folder of each part; a missing part was held out of the training part"""


def shortened(text: str, longest: int = LONGEST_EXAMPLE) -> str:
    """A text on one line, truncated to `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def sample(rows: Sequence[T]) -> list[T]:
    """The first, a middle and the last row, which are of different classes in a sorted file."""
    places = sorted({0, len(rows) // 2, len(rows) - 1}) if rows else []
    return [rows[place] for place in places][:EXAMPLES]


def labelled_examples(rows: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    """`label | text` for some rows."""
    return tuple(f"{shortened(str(label), 20)} | {shortened(text)}" for text, label in sample(rows))


def repeated(parts: Mapping[str, Iterable[Hashable]]) -> dict[str, int]:
    """Number of examples of each held-out part that are in the training part too."""
    train = set(parts["train"])
    return {part: sum(item in train for item in items) for part, items in parts.items() if part != "train"}


def parts_line(origins: Origins) -> str:
    """One line about the origin of each part."""
    names = {"train": "train", "valid": "validation", "test": "test"}
    given = [f"{names[part]} from {origins[part]}" for part in names if part in origins]
    cut = " and ".join(names[part] for part in names if part not in origins)
    held = [f"{cut} held out of the training part by a fixed split"] if cut else []
    return with_display_names("; ".join([*given, *held]))
