"""Recognise the kind of data at a path by file names and first lines. Does not import torch.

Each kind names its recogniser. The kind that was registered last is asked first, so special kinds come later.
"""

from __future__ import annotations

import difflib
import filecmp
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from odeum.errors import OdeumError, choose, notice
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
from odeum.lab.data.unsupported import refuse_structured_text, refuse_unsupported
from odeum.lab.tasks.kind import DATA_SETS, KINDS
from odeum.storage import expanded

MOST_FILES = 5000  # largest number of files of a folder that are examined
LONGEST_LINE = 1 << 20  # characters of a line that are examined
_SIDES = re.compile(r"(^|[._-])(src|source|tgt|trg|target|[a-z]{2})$")


@dataclass(frozen=True)
class Sniffed:
    """The files at the given paths: one folder, or files."""

    paths: tuple[Path, ...]
    files: tuple[Path, ...]
    """the given files, or the first ones in the folder and its sub-folders"""

    @property
    def folder(self) -> Path | None:
        """The folder, or None if files were given."""
        return self.paths[0] if self.paths[0].is_dir() else None

    @property
    def suffixes(self) -> set[str]:
        """File extensions in lower case."""
        return {p.suffix.lower() for p in self.files}

    @property
    def top(self) -> list[Path]:
        """The given files, or those directly in the folder."""
        return [p for p in self.files if p.parent == self.folder] if self.folder else list(self.files)

    def tables(self) -> list[Path]:
        """The tables among `top`."""
        return [p for p in self.top if p.suffix.lower() in TABLE_SUFFIXES]


def recognise(data: str | Path, *more: str | Path) -> str:
    """The kind of a named set or of the files at a path: the latest registered kind that recognises them."""
    if not more and str(data) in DATA_SETS:
        return DATA_SETS[str(data)]
    sniffed = sniff(data, *more)
    _refuse_own_folder(sniffed.paths[0])
    refuse_unsupported(sniffed)
    if len(sniffed.paths) > 1:
        _refuse_mixture(sniffed)
    kind = next((kind.name for kind in reversed(list(KINDS.values())) if kind.claims(sniffed)), None)
    if kind is None:
        if len(tables := sniffed.tables()) > 1:
            raise OdeumError(
                f"'{sniffed.paths[0]}' has {len(tables)} tables, such as '{tables[0].name}'; name the training part "
                "train.csv, or give one or two of the files"
            )
        seen = ", ".join(sorted(s or "without suffix" for s in sniffed.suffixes)) or "it is empty"
        raise OdeumError(
            f"'{sniffed.paths[0]}' has no recognised images, tables or texts ({seen}); expected one "
            f"sub-folder of images per class, train.csv, or .txt files{_sides_hint(sniffed)}"
        )
    if kind == "translation":
        refuse_structured_text([p for p in sniffed.files if p.suffix.lower() not in TABLE_SUFFIXES], kind)
    if kind == "language":
        refuse_structured_text([p for p in sniffed.files if _is_running_text(sniffed, p)])
        _note_sub_folders(sniffed)
    return kind


def _sides_hint(sniffed: Sniffed) -> str:
    """The two files of a folder that differ in a language at the end of their names, as the end of a message."""
    sides = [p for p in sniffed.top if _SIDES.search(p.suffix.lower())]
    if len(sides) != 2 or sides[0].stem != sides[1].stem:
        return ""
    return f"; the sides of a translation are given as files: '{sides[0]}' '{sides[1]}'"


def _is_running_text(sniffed: Sniffed, path: Path) -> bool:
    """Whether a language model would read this file as it is."""
    suffix = path.suffix.lower()
    return suffix in TEXT_SUFFIXES or (sniffed.folder is None and suffix not in TABLE_SUFFIXES)


def _note_sub_folders(sniffed: Sniffed) -> None:
    """Print a notice for texts in several sub-folders, which are often classes."""
    texts = [
        p.relative_to(sniffed.folder) for p in sniffed.files if sniffed.folder and p.suffix.lower() in TEXT_SUFFIXES
    ]
    names = sorted({p.parts[0] for p in texts if len(p.parts) > 1 and split_name(p.parts[0]) is None})
    if len(names) > 1:
        shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        notice(
            f"the texts of the sub-folders {shown} are read as one corpus; if the sub-folders are classes, give a "
            "table of texts and labels"
        )


def _refuse_own_folder(path: Path) -> None:
    """Raise `OdeumError` for the folder of a run or of a comparison, which holds no data."""
    verbs = {"run.json": ("a run", "evaluate"), "comparison.json": ("a comparison", "report")}
    for name, (what, verb) in verbs.items():
        if (path / name).is_file():
            raise OdeumError(f"'{path}' is the folder of {what}, not data; `odeum {verb} {path}` shows its results")


def existing(item: str | Path) -> Path:
    """The path of existing data, unpacked; raises `OdeumError` with suggestions if there is none."""
    word = str(item)
    if not word:
        raise OdeumError("the name of the data is empty; give a named set or a path ('.' for this folder)")
    path = expanded(item)
    try:
        exists = path.exists()
    except (OSError, ValueError):  # the name is too long or contains a zero byte
        exists = False
    if exists:
        return plain_files(path if path.is_dir() else regular(path))
    if os.path.islink(path):  # unlike Path.is_symlink, accepts any name
        raise OdeumError(f"'{word}' is a broken link to '{os.readlink(path)}'")
    if is_hub_name(word):
        return fetch_any(word)
    if re.match(r"[a-z][a-z\d+]+://", word):
        raise OdeumError(f"'{word}' is an address, not a path; download it first, or give a name such as owner/name")
    if os.sep in word or "." in word:
        raise OdeumError(f"there is no file or folder '{word}'{_namesake(path)}")
    choose(word, DATA_SETS, "data set or path")
    raise OdeumError(f"'{word}' is a named set, not a path")


def _namesake(path: Path) -> str:
    """A suggestion of an existing path with a similar name."""
    try:
        names = [entry.name for entry in itertools.islice(os.scandir(path.parent), MOST_FILES)]
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / near[0]}'?" if near else ""


def sniff(*data: str | Path) -> Sniffed:
    """List the files at the paths; raises `OdeumError` for what no kind of data could be."""
    named = next((str(item) for item in data if str(item) in DATA_SETS and not expanded(item).exists()), None)
    if named is not None and len(data) > 1:
        other = next(str(item) for item in data if str(item) != named or data.count(item) > 1)
        dash = "; options begin with two hyphens (--)" if other[:1] in "‐‑‒–—−" else ""
        raise OdeumError(f"'{named}' is a named set and cannot be combined with '{other}'{dash}")
    paths = tuple(existing(item) for item in data)
    if len(paths) == 1 and paths[0].is_dir():
        return Sniffed(paths, tuple(itertools.islice(files_below(paths[0]), MOST_FILES)))
    if folders := [p for p in paths if p.is_dir()]:
        raise OdeumError(f"'{folders[0]}' is a folder; give one folder, or several files")
    for path in paths:
        if path.suffix.lower() in IMAGE_SUFFIXES:
            raise OdeumError(f"'{path}' is one image; give a folder with one sub-folder of images per class")
        refuse_foreign(path)
    for first, second in itertools.combinations(paths, 2):
        if first.samefile(second):
            same = "given twice" if first == second else f"the same file as '{first}'"
            raise OdeumError(f"'{second}' is {same}; give each file once, so that test data is not training data")
    return Sniffed(paths, paths)


def _refuse_mixture(sniffed: Sniffed) -> None:
    """Raise `OdeumError` for several files of different kinds."""
    tables, others = sniffed.tables(), [p for p in sniffed.files if p.suffix.lower() not in TABLE_SUFFIXES]
    if tables and others:
        raise OdeumError(f"'{tables[0]}' is a table and '{others[0]}' is not; give files of one kind")
    texts = [p for p in others if p.suffix.lower() in TEXT_SUFFIXES | {""}]
    rest = [p for p in others if p not in texts]
    if texts and rest:
        raise OdeumError(
            f"'{texts[0]}' and '{rest[0]}' are of two kinds; give texts that all end in .txt, or the two sides of a "
            "translation with endings such as .en and .de"
        )
    for first, second in itertools.combinations([] if sniffed.folder else texts, 2):
        if filecmp.cmp(first, second, shallow=False):
            raise OdeumError(f"'{second}' has the same content as '{first}'; give each text once")
    if len(sniffed.files) > 2 and len({p.suffix for p in rest}) > 1:
        names = ", ".join(f"'{p}'" for p in sniffed.files)
        raise OdeumError(
            f"{names} do not belong together: give two files such as train.en and train.de for translation "
            "(test.en and test.de beside them are found), or texts that all end in .txt"
        )


# one recogniser per kind


def holds_images(sniffed: Sniffed) -> bool:
    """Whether the path is a folder with an image anywhere in it."""
    return sniffed.folder is not None and bool(sniffed.suffixes & IMAGE_SUFFIXES)


def holds_pairs(sniffed: Sniffed) -> bool:
    """Whether the files are two sides of a translation, or a .tsv of two columns of free text."""
    if sniffed.folder:
        sides = [
            p
            for p in sniffed.top
            if split_name(p.name) == "train" and p.suffix.lower() not in TABLE_SUFFIXES | TEXT_SUFFIXES
        ]
        if len(sides) == 2:
            return True
    tables = sniffed.tables()
    train = [p for p in tables if split_name(p.name) == "train"] or tables
    if len(train) == 1 and (sniffed.folder or len(tables) == 1):
        return train[0].suffix.lower() == ".tsv" and _looks_parallel(train[0])
    if tables or sniffed.folder or len(sniffed.files) != 2:
        return False
    named = all(_SIDES.search(p.stem.lower()) for p in sniffed.files)
    return named or (len(sniffed.suffixes) == 2 and not sniffed.suffixes & (TEXT_SUFFIXES | {""}))


def holds_labelled_texts(sniffed: Sniffed) -> bool:
    """Whether the files are tables, or the folders of IMDB."""
    tables = sniffed.tables()
    if tables and all(holds_documents(path) for path in tables):
        return False
    if sniffed.folder is None:
        return len(tables) == len(sniffed.files)
    named = any(split_name(p.name) == "train" for p in tables)
    return named or len(tables) == 1 or (sniffed.folder / "train" / "pos").is_dir()


def holds_text(sniffed: Sniffed) -> bool:
    """Whether the files are plain text or tables of running text, or a folder with some."""
    tables = sniffed.tables()
    return sniffed.folder is None or bool(sniffed.suffixes & TEXT_SUFFIXES) or any(map(holds_documents, tables))


def _looks_parallel(path: Path) -> bool:
    """Whether a table has two columns that are both free text: translations rather than labels."""
    refuse_foreign(path)
    lines = itertools.islice((line for line in read_lines(path) if line.strip()), 500)
    rows = [line[:LONGEST_LINE].split("\t") for line in lines]
    if rows and all(len(row) == 3 and row[2].startswith("CC-BY") for row in rows):
        notice(f"the third column of '{path}' holds attributions and is not read")
        rows = [row[:2] for row in rows]
    if not rows or any(len(row) != 2 for row in rows):
        return False
    distinct = min(len({row[side] for row in rows}) for side in (0, 1))
    words = min(sum(len(row[side].split()) for row in rows) for side in (0, 1))
    return len(rows) > 1 and distinct > len(rows) / 2 and words > 1.5 * len(rows)
