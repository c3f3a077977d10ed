"""Warnings about data that can be read but may not tell what its reader hopes."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from odeum.lab.tasks.base import Task

FEWEST_PER_CLASS = 10
"""training examples of a class below which a warning is given"""
SMALLEST_TEST = 100
"""test examples below which a warning is given"""
MISSING = ("nan", "null", "n/a", "<na>")
"""names of missing values in tables"""
MOST_PAIRS = 3
"""pairs of similar class names that are shown"""
REPEATED_SHARE = 0.01
"""share of examples of a part that may be in the training part without a warning"""


def note_repeated(task: Task, repeated: Mapping[str, int]) -> None:
    """Warn of validation or test examples that are in the training part too."""
    names = {"valid": "validation"}
    for part, count in repeated.items():
        size = task.sizes().get(part, 0)
        if count > REPEATED_SHARE * size:
            task.note(
                f"{count} of {size} {names.get(part, part)} examples are in the training part too, so the score "
                "overstates performance on new data"
            )


def note_small_test(task: Task) -> None:
    """Warn of a small test part."""
    size = task.sizes().get("test", SMALLEST_TEST)
    if size < SMALLEST_TEST:
        worth = f": one example is worth {100 / size:.2g} points of accuracy" if task.metric == "accuracy" else ""
        task.note(f"the test part has only {size} examples{worth}")


def similar_names(classes: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ only in case, blanks, the form of a number or of Unicode."""
    seen: dict[object, str] = {}
    out = []
    for name in classes:
        key: object = "".join(unicodedata.normalize("NFKC", name).casefold().split())
        with contextlib.suppress(ValueError):
            key = float(name)
        if (first := seen.setdefault(key, name)) != name:
            out.append((first, name))
    return out[:MOST_PAIRS]


def note_classes(task: Task, classes: Sequence[str], train: Tensor, test: Tensor) -> None:
    """Warn of classes with few training examples, and of a test part of one class."""
    counts = train.bincount(minlength=len(classes)).tolist()
    few = [(name, count) for name, count in zip(classes, counts, strict=True) if count < FEWEST_PER_CLASS]
    if few:
        name, count = min(few, key=lambda pair: pair[1])
        task.note(
            f"{len(few)} of {len(classes)} classes have fewer than {FEWEST_PER_CLASS} training examples, such as "
            f"'{name}' ({count})"
        )
    for first, second in similar_names(classes):
        task.note(f"'{first}' and '{second}' are two classes; use one name if they mean the same")
    if missing := [name for name in classes if name.strip().lower() in MISSING]:
        task.note(f"'{missing[0]}' is read as a class; remove these rows if it stands for a missing label")
    present = test.unique()
    if len(present) == 1:
        task.note(
            f"the test part has only one class, '{classes[int(present)]}', so its accuracy is meaningless; use a test "
            "part with all classes"
        )
