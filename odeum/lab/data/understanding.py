"""What was understood of the data, for people: example rows, origins of the parts, examples that repeat; no torch."""

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
"""the file or folder that each part was read from; a part that is missing was cut off the training part"""


def shortened(text: str, longest: int = LONGEST_EXAMPLE) -> str:
    """A text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def sample(rows: Sequence[T]) -> list[T]:
    """The first, a middle and the last row: of a sorted file they are of different classes."""
    places = sorted({0, len(rows) // 2, len(rows) - 1}) if rows else []
    return [rows[place] for place in places][:EXAMPLES]


def labelled_examples(rows: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    """`label | text` for some rows."""
    return tuple(f"{shortened(str(label), 20)} | {shortened(text)}" for text, label in sample(rows))


def repeated(parts: Mapping[str, Iterable[Hashable]]) -> dict[str, int]:
    """How many examples of each other part stand in the training part too."""
    train = set(parts["train"])
    return {part: sum(item in train for item in items) for part, items in parts.items() if part != "train"}


def parts_line(origins: Origins, parts: Sequence[str] = ("train", "valid", "test")) -> str:
    """Where each part came from."""
    names = {"train": "train", "valid": "validation", "test": "test"}
    given = [f"{names[part]} from {origins[part]}" for part in parts if part in origins]
    cut = " and ".join(names[part] for part in parts if part not in origins)
    held = [f"{cut} cut off the training part, the same examples each time"] if cut else []
    return with_display_names("; ".join([*given, *held]))
