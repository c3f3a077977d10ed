"""Which data, and how it is read: one small dataclass a kind of task, and a look at a path to tell its kind."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from odeum.errors import OdeumError, choose


@dataclass(frozen=True)
class ImageData:
    """Pictures, one class each."""

    augment: Literal["none", "light", "deit"] = "light"
    """light: shifted crops and flips (digits: small turns and moves); deit: also RandAugment, mixup, cutmix, erasing"""
    size: int | None = None
    """height and width given to the model (none: the pictures' own, at most 64)"""


@dataclass(frozen=True)
class LanguageData:
    """Running text, to be continued."""

    tokens: Literal["auto", "words", "bpe", "characters"] = "auto"
    """what a token is (auto: words for WikiText, else BPE, or characters where there is little text)"""
    vocabulary: int | None = None
    """most tokens told apart (none: all words, 8000 BPE tokens, all characters)"""
    length: int = 256
    """tokens in a window"""
    context: int | None = None
    """tokens a window of an evaluation repeats from the one before, so that each is scored with context (none: half)"""
    megabytes: float = 2.0
    """of the set `python` only: how much of the installation's text to take"""


@dataclass(frozen=True)
class ClassificationData:
    """Texts, one class each."""

    tokens: Literal["auto", "words", "bpe", "bytes"] = "auto"
    """what a token is (auto: words)"""
    vocabulary: int = 20_000
    """most tokens told apart"""
    length: int | None = None
    """tokens at which a text is cut (none: 256; bytes: 1024)"""
    text_column: str | None = None
    """column of the text, or several joined by + (none: recognised)"""
    label_column: str | None = None
    """column of the class (none: recognised)"""
    test_examples: int | None = None
    """how many of the test examples are used, always the same (none: all; imdb-bytes: 5000)"""


@dataclass(frozen=True)
class ListOpsData:
    """Nested operations on digits (Long Range Arena), generated."""

    min_length: int = 20
    """shortest expression, in tokens"""
    max_length: int = 120
    """longest expression, in tokens"""
    count: int = 20_000
    """training examples; a tenth of it (at most 2000) for validation and for the test"""
    max_depth: int = 10
    """deepest nesting"""
    max_args: int = 10
    """most arguments of an operation"""
    long: bool = False
    """the official numbers: 500 to 2000 tokens, 96,000 examples"""
    seed: int = 0
    """of the generator"""


@dataclass(frozen=True)
class TranslationData:
    """Pairs of sentences."""

    vocabulary: int = 8000
    """tokens of the joint BPE"""
    length: int = 128
    """most tokens in a sentence; longer pairs are left out of the training"""
    test: str | None = None
    """which test part of a named set (multi30k: test_2016_flickr, test_2017_flickr, test_2017_mscoco)"""
    beam: int = 4
    """width of the search behind BLEU"""
    length_penalty: float = 0.6
    """of the search behind BLEU"""


Data = ImageData | LanguageData | ClassificationData | ListOpsData | TranslationData
DATA: dict[str, type[Data]] = {
    "images": ImageData,
    "language": LanguageData,
    "classification": ClassificationData,
    "listops": ListOpsData,
    "translation": TranslationData,
}

_PAIRS = {"multi30k": ("en-de", "en-fr"), "tatoeba": ("en-de", "en-fr"), "wmt14": ("en-de", "en-fr")}
_BOTH_WAYS = [f"{s}-{q}" for s, pairs in _PAIRS.items() for p in pairs for q in (p, "-".join(reversed(p.split("-"))))]
NAMED: dict[str, str] = {
    **dict.fromkeys(("digits", "cifar10", "cifar100", "fashion-mnist"), "images"),
    **dict.fromkeys(("wikitext2", "wikitext103", "python"), "language"),
    **dict.fromkeys(("imdb", "imdb-bytes", "ag_news"), "classification"),
    "listops": "listops",
    **dict.fromkeys(_BOTH_WAYS, "translation"),
}
"""every named set and its kind"""

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
TABLES = {".csv", ".tsv", ".jsonl", ".json"}
TEXTS = {".txt", ".text", ".md", ".tokens", ".raw"}
_SIDES = re.compile(r"(^|[._-])(src|source|tgt|trg|target|[a-z]{2})$")


def recognise(data: str | Path, *more: str | Path) -> str:
    """The kind of a named set, or of the files at a path, by what they hold."""
    if not more and str(data) in NAMED:
        return NAMED[str(data)]
    paths = [existing(item) for item in (data, *more)]
    if len(paths) == 1:
        return _kind_of_folder(paths[0]) if paths[0].is_dir() else _kind_of_file(paths[0])
    if folders := [p for p in paths if p.is_dir()]:
        raise OdeumError(f"'{folders[0]}' is a folder; give one folder alone, or several files")
    suffixes = {p.suffix.lower() for p in paths}
    if suffixes <= TABLES:
        return "classification"
    if tables := [p for p in paths if p.suffix.lower() in TABLES - {".tsv"}]:
        raise OdeumError(f"'{tables[0]}' is a table and the other files are not; give files of one kind")
    named_sides = all(_SIDES.search(p.stem.lower()) for p in paths)
    if len(paths) == 2 and (named_sides or (len(suffixes) == 2 and not suffixes & (TEXTS | {""}))):
        return "translation"
    return "language"


def existing(item: str | Path) -> Path:
    """The path, or a sentence that also offers the named set it may have meant."""
    path = Path(item).expanduser()
    word = str(item)
    if not word:
        raise OdeumError("the name of the data is empty; give a named set or a path ('.' is this folder)")
    if path.exists():
        return path
    if os.sep in word or "." in word:
        raise OdeumError(f"there is no file or folder '{word}'")
    choose(word, NAMED, "data set or path")
    raise OdeumError(f"'{word}' is a named set and stands alone; the others should be files")


def entries(folder: Path) -> list[Path]:
    """What a folder holds, in a fixed order, hidden files left out."""
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and its sub-folders, hidden ones left out."""
    for path in folder.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _kind_of_folder(folder: Path) -> str:
    suffixes = {p.suffix.lower() for p in itertools.islice(files_below(folder), 5000)}
    if suffixes & IMAGES:
        return "images"
    top = [p for p in entries(folder) if p.is_file()]
    if any(p.suffix.lower() in TABLES and p.stem.lower().startswith("train") for p in top):
        return "classification"
    if (folder / "train" / "pos").is_dir():
        return "classification"
    if len([p for p in top if p.name.startswith("train.") and p.suffix.lower() not in TABLES | TEXTS]) == 2:
        return "translation"
    tables = [p for p in top if p.suffix.lower() in TABLES]
    if len(tables) == 1:
        return _kind_of_file(tables[0])
    if suffixes & TEXTS:
        return "language"
    seen = ", ".join(sorted(s for s in suffixes if s)) or "nothing"
    raise OdeumError(
        f"'{folder}' holds no images, tables or texts that are recognised ({seen}); expected one sub-folder of images "
        "a class, train.csv, or .txt files"
    )


def _kind_of_file(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in IMAGES:
        raise OdeumError(f"'{path}' is one image; give the folder that holds one sub-folder of images a class")
    if suffix == ".tsv" and _looks_parallel(path):
        return "translation"
    return "classification" if suffix in TABLES else "language"


def _looks_parallel(path: Path) -> bool:
    """Two columns, both free text: a table of translations rather than of labels."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in itertools.islice(file, 500)]
    if not rows or any(len(row) != 2 for row in rows):
        return False
    distinct = min(len({row[side] for row in rows}) for side in (0, 1))
    words = min(sum(len(row[side].split()) for row in rows) for side in (0, 1))
    return len(rows) > 1 and distinct > len(rows) / 2 and words > 1.5 * len(rows)


def table_rows(file: Iterator[str], suffix: str) -> Iterator[list[str]]:
    """The rows of an open CSV (quoted, comma or semicolon) or TSV (unquoted)."""
    if suffix == ".tsv":
        return (line.rstrip("\r\n").split("\t") for line in file)
    first = next(file, "")
    delimiter = ";" if first.count(";") > first.count(",") else ","
    return csv.reader(itertools.chain([first], file), delimiter=delimiter)
