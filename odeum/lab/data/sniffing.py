"""What a user's paths hold, told by names and first lines, without reading it all; no torch.

Each kind of data names its recogniser, and the kind that was added last is asked first: what is more special comes
later.
"""

from __future__ import annotations

import difflib
import filecmp
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from odeum.errors import OdeumError, choose
from odeum.lab.data.documents import holds_documents
from odeum.lab.data.files import (
    IMAGE_SUFFIXES,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    files_below,
    read_lines,
    refuse_foreign,
    regular,
)
from odeum.lab.data.hub import fetch_any, is_hub_name
from odeum.lab.data.split_names import split_name
from odeum.lab.data.unpacking import plain_files
from odeum.lab.data.unsupported import refuse_unsupported
from odeum.lab.tasks.kind import DATA_SETS, KINDS

MOST_FILES = 5000  # files of a folder that are looked at
LONGEST_LINE = 1 << 20  # characters of a line that are looked at
_SIDES = re.compile(r"(^|[._-])(src|source|tgt|trg|target|[a-z]{2})$")


@dataclass(frozen=True)
class Sniffed:
    """What lies at the paths that were given: one folder, or files."""

    paths: tuple[Path, ...]
    files: tuple[Path, ...]
    """the files themselves, or the first ones of the folder and of the folders in it"""

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one."""
        return self.paths[0] if self.paths[0].is_dir() else None

    @property
    def suffixes(self) -> set[str]:
        """Of all files, in small letters."""
        return {p.suffix.lower() for p in self.files}

    @property
    def top(self) -> list[Path]:
        """The files that were given, or that lie in the folder itself."""
        return [p for p in self.files if p.parent == self.folder] if self.folder else list(self.files)

    def tables(self) -> list[Path]:
        """Among them those that are tables."""
        return [p for p in self.top if p.suffix.lower() in TABLE_SUFFIXES]


def recognise(data: str | Path, *more: str | Path) -> str:
    """The kind of a named set, or of the files at a path, by what they hold: the newest kind that claims them."""
    if not more and str(data) in DATA_SETS:
        return DATA_SETS[str(data)]
    found = sniff(data, *more)
    refuse_unsupported(found)
    if len(found.paths) > 1:
        _refuse_mixture(found)
    kind = next((kind.name for kind in reversed(list(KINDS.values())) if kind.claims(found)), None)
    if kind is None:
        seen = ", ".join(sorted(s for s in found.suffixes if s)) or "nothing"
        raise OdeumError(
            f"'{found.paths[0]}' holds no images, tables or texts that are recognised ({seen}); expected one "
            "sub-folder of images a class, train.csv, or .txt files"
        )
    return kind


def existing(item: str | Path) -> Path:
    """The path, or a sentence that also offers the named set it may have meant."""
    word = str(item)
    if not word:
        raise OdeumError("the name of the data is empty; give a named set or a path ('.' is this folder)")
    path = Path(item).expanduser()
    try:
        there = path.exists()
    except (OSError, ValueError):  # a name longer than any, or with a zero byte
        there = False
    if there:
        return plain_files(path if path.is_dir() else regular(path))
    if os.path.islink(path):  # which, unlike Path's, takes any name
        raise OdeumError(f"'{word}' is a link to '{os.readlink(path)}', which is not there")
    if is_hub_name(word):
        return fetch_any(word)
    if os.sep in word or "." in word:
        raise OdeumError(f"there is no file or folder '{word}'{_namesake(path)}")
    choose(word, DATA_SETS, "data set or path")
    raise OdeumError(f"'{word}' is a named set and stands alone; the others should be files")


def _namesake(path: Path) -> str:
    """What beside it has nearly this name."""
    try:
        there = [entry.name for entry in itertools.islice(os.scandir(path.parent), MOST_FILES)]
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(path.name, there, n=1)
    return f"; did you mean '{path.parent / near[0]}'?" if near else ""


def sniff(*data: str | Path) -> Sniffed:
    """Look at what was given, and refuse in a sentence what no kind of data could be."""
    paths = tuple(existing(item) for item in data)
    if len(paths) == 1 and paths[0].is_dir():
        return Sniffed(paths, tuple(itertools.islice(files_below(paths[0]), MOST_FILES)))
    if folders := [p for p in paths if p.is_dir()]:
        raise OdeumError(f"'{folders[0]}' is a folder; give one folder alone, or several files")
    for path in paths:
        if path.suffix.lower() in IMAGE_SUFFIXES:
            raise OdeumError(f"'{path}' is one image; give the folder that holds one sub-folder of images a class")
        refuse_foreign(path)
    for first, second in itertools.combinations(paths, 2):
        if first.samefile(second):
            same = "given twice" if first == second else f"the same file as '{first}'"
            raise OdeumError(f"'{second}' is {same}, so a model would be tested on what it was trained on")
    return Sniffed(paths, paths)


def _refuse_mixture(found: Sniffed) -> None:
    """Several files are of one kind, or it is not clear what is meant."""
    tables, others = found.tables(), [p for p in found.files if p.suffix.lower() not in TABLE_SUFFIXES]
    if tables and others:
        raise OdeumError(f"'{tables[0]}' is a table and '{others[0]}' is not; give files of one kind")
    texts = [p for p in others if p.suffix.lower() in TEXT_SUFFIXES | {""}]
    rest = [p for p in others if p not in texts]
    if texts and rest:
        raise OdeumError(
            f"'{texts[0]}' and '{rest[0]}' are of two kinds; give texts that all end in .txt, or the two sides of a "
            "translation with endings such as .en and .de"
        )
    for first, second in itertools.combinations([] if found.folder else texts, 2):
        if filecmp.cmp(first, second, shallow=False):
            raise OdeumError(f"'{second}' holds the same as '{first}', byte for byte; give each text once")
    if len(found.files) > 2 and len({p.suffix for p in rest}) > 1:
        names = ", ".join(f"'{p}'" for p in found.files)
        raise OdeumError(
            f"what are {names} to each other? A translation is made of two files such as train.en and train.de (their "
            "test.en and test.de are found beside them); texts to be continued all end in .txt"
        )


# one recogniser a kind


def holds_images(found: Sniffed) -> bool:
    """A folder with an image anywhere in it."""
    return found.folder is not None and bool(found.suffixes & IMAGE_SUFFIXES)


def holds_pairs(found: Sniffed) -> bool:
    """Two files of the same sentences, or a .tsv of two columns that are both free text."""
    if found.folder:
        sides = [
            p
            for p in found.top
            if split_name(p.name) == "train" and p.suffix.lower() not in TABLE_SUFFIXES | TEXT_SUFFIXES
        ]
        if len(sides) == 2:
            return True
    tables = found.tables()
    train = [p for p in tables if split_name(p.name) == "train"] or tables
    if len(train) == 1 and (found.folder or len(tables) == 1):
        return train[0].suffix.lower() == ".tsv" and _looks_parallel(train[0])
    if tables or found.folder or len(found.files) != 2:
        return False
    named = all(_SIDES.search(p.stem.lower()) for p in found.files)
    return named or (len(found.suffixes) == 2 and not found.suffixes & (TEXT_SUFFIXES | {""}))


def holds_labelled_texts(found: Sniffed) -> bool:
    """A table, several of them, or the folders of IMDB."""
    tables = found.tables()
    if tables and all(holds_documents(path) for path in tables):
        return False
    if found.folder is None:
        return len(tables) == len(found.files)
    named = any(split_name(p.name) == "train" for p in tables)
    return named or len(tables) == 1 or (found.folder / "train" / "pos").is_dir()


def holds_text(found: Sniffed) -> bool:
    """Files that are plain text, tables of running text, or a folder with some."""
    tables = found.tables()
    return found.folder is None or bool(found.suffixes & TEXT_SUFFIXES) or any(map(holds_documents, tables))


def _looks_parallel(path: Path) -> bool:
    """Two columns, both free text: a table of translations rather than of labels."""
    refuse_foreign(path)
    lines = itertools.islice((line for line in read_lines(path) if line.strip()), 500)
    rows = [line[:LONGEST_LINE].split("\t") for line in lines]
    if not rows or any(len(row) != 2 for row in rows):
        return False
    distinct = min(len({row[side] for row in rows}) for side in (0, 1))
    words = min(sum(len(row[side].split()) for row in rows) for side in (0, 1))
    return len(rows) > 1 and distinct > len(rows) / 2 and words > 1.5 * len(rows)
