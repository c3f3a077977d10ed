"""Recognise the part (train, valid or test) from the name of a file or folder. Does not import torch."""

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
    rf"(?:(?<!{_LETTER})|(?<=[a-z\d])(?=[A-Z]))"  # beginning of a word, also within reviewsTrain
    rf"((?i:{'|'.join(sorted(_PART_OF, key=len, reverse=True))}))(?i:set|data)?"
    rf"(?:(?!{_LETTER})|(?<=[a-z])(?=[A-Z]))"
)


def _found(name: str) -> re.Match[str] | None:
    matches = list(_WORD.finditer(name))
    return matches[0] if len({_PART_OF[match[1].lower()] for match in matches}) == 1 else None


def split_name(name: str) -> str | None:
    """The part that is a word of the name, as in `wiki.train.tokens`, `reviews_train2.csv` or `Testset`.

    None if it is only within another word (`latest`, `testimony`), or if there are words of two parts.
    """
    match = _found(name)
    return _PART_OF[match[1].lower()] if match else None


def whole_name(name: str) -> str | None:
    """The part if its word is the whole name: a folder `test`, but not a class `test tubes`."""
    match = _found(name)
    return split_name(name) if match and match[0] == name else None


def beside(paths: Sequence[Path], part: str) -> list[Path] | None:
    """Files of another part with otherwise equal names: test.en and test.de beside train.en and train.de."""
    for word in SPLIT_SPELLINGS[part]:
        files = [_renamed(path, word) for path in paths]
        if all(path.is_file() for path in files):
            return files
    return None


def _renamed(path: Path, word: str) -> Path:
    match = _found(path.name)
    return path.with_name(path.name[: match.start(1)] + word + path.name[match.end(1) :]) if match else path
