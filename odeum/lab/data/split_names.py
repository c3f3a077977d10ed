"""Which part of the data a file or a folder is, told by its name; one recogniser for every kind of data, no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

SPLITS = ("train", "valid", "test")
SPLIT_SPELLINGS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}
_PART_OF = {word: part for part, words in SPLIT_SPELLINGS.items() for word in words}
_LETTER = r"[^\W\d_]"
_WORD = re.compile(
    rf"(?:(?<!{_LETTER})|(?<=[a-z\d])(?=[A-Z]))"  # where a word begins, also within reviewsTrain
    rf"((?i:{'|'.join(sorted(_PART_OF, key=len, reverse=True))}))(?i:set|data)?"
    rf"(?:(?!{_LETTER})|(?<=[a-z])(?=[A-Z]))"
)


def _found(name: str) -> re.Match[str] | None:
    found = list(_WORD.finditer(name))
    return found[0] if len({_PART_OF[match[1].lower()] for match in found}) == 1 else None


def split_name(name: str) -> str | None:
    """`wiki.train.tokens`, `reviews_train2.csv`, `Testset`: the part that is a word of the name.

    A word within a word (`latest`, `testimony`) is none, and a name with the words of two parts says neither.
    """
    found = _found(name)
    return _PART_OF[found[1].lower()] if found else None


def whole_name(name: str) -> str | None:
    """The part whose word is the whole name: a folder `test` is one, a class `test tubes` is not."""
    found = _found(name)
    return split_name(name) if found and found[0] == name else None


def beside(paths: Sequence[Path], part: str) -> list[Path] | None:
    """The files that are called like these but for their part: test.en and test.de beside train.en and train.de."""
    for word in SPLIT_SPELLINGS[part]:
        there = [_renamed(path, word) for path in paths]
        if all(path.is_file() for path in there):
            return there
    return None


def _renamed(path: Path, word: str) -> Path:
    found = _found(path.name)
    return path.with_name(path.name[: found.start(1)] + word + path.name[found.end(1) :]) if found else path
