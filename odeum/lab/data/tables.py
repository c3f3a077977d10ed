"""Texts with labels: CSV, TSV, JSONL, IMDB, AG News."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import TABLE_SUFFIXES, entries, read_lines, read_text
from odeum.lab.data.homes import homes, locate
from odeum.lab.data.split_names import split_name
from odeum.lab.data.table_files import Columns, Table, Understood, choose_columns, open_table
from odeum.lab.data.understanding import Origins
from odeum.lab.data.unsupported import refuse_several_labels
from odeum.lab.tasks.classification import ClassificationData

Rows = list[tuple[str, str]]  # text, label
T = TypeVar("T")


@dataclass
class Labelled:
    """What a reader gives: rows of (text, label) a part, and nicer names for the labels if they have any."""

    parts: dict[str, Rows]
    names: dict[str, str]
    columns: Columns = ()
    """where the texts stand in the table: names, or places from 0 if it has no header"""
    label: str | int | None = None
    """where the labels stand in it"""
    origins: Origins = field(default_factory=dict)
    """the files of each part"""


def named_table(name: str, options: ClassificationData) -> Labelled:
    return ag_news(options) if name == "ag_news" else imdb()


def imdb() -> Labelled:
    """Maas et al. 2011: one TSV a part, or the published folder aclImdb."""
    names = {"0": "negative", "1": "positive"}
    for home in homes():
        if (home / "aclImdb" / "train" / "pos").is_dir():
            return Labelled(acl_imdb(home / "aclImdb"), names)
    folder = locate("imdb", "imdb", ["train.tsv", "test.tsv"])
    parts: dict[str, Rows] = {}
    for part in ("train", "test"):
        rows = [line.split("\t", 4) for line in read_lines(folder / f"{part}.tsv")]
        if bad := [i for i, row in enumerate(rows, 1) if len(row) != 5]:
            raise OdeumError(f"line {bad[0]} of '{folder / part}.tsv' should be: label, rating, film, id, text")
        parts[part] = [(row[4], row[0]) for row in rows]
    return Labelled(parts, names)


def acl_imdb(folder: Path) -> dict[str, Rows]:
    """train/pos/*.txt, train/neg/*.txt, and the same for test."""
    parts = {}
    for part in ("train", "test"):
        sides = (("0", folder / part / "neg"), ("1", folder / part / "pos"))
        parts[part] = [(read_text(p), label) for label, sub in sides for p in sorted(sub.glob("*.txt"))]
    return {part: rows for part, rows in parts.items() if rows}


def ag_news(options: ClassificationData) -> Labelled:
    """Class 1 to 4, title, description; the text is both unless text_column says `description` (as Dutta et al.)."""
    folder = locate("ag_news", "ag_news", ["train.csv", "test.csv"])
    columns = ["class", "title", "description"]
    text, label = (options.text_column or "title+description").split("+"), [options.label_column or "class"]
    parts = {}
    for part in ("train", "test"):
        table = open_table(folder / f"{part}.csv").without_header(columns)
        parts[part] = labelled(table, table.places(text), table.places(label)[0])
    return Labelled(parts, {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"})


def read_tables(paths: list[Path], options: ClassificationData) -> Labelled:
    """The folders of IMDB, or tables."""
    if paths[0].is_dir() and (paths[0] / "train" / "pos").is_dir():
        return Labelled(acl_imdb(paths[0]), {"0": "negative", "1": "positive"})
    origins: Origins = {}
    parts, columns = tables_in_parts(paths, lambda path: read_table(path, options), origins)
    return Labelled(parts, {}, columns.text, columns.label, origins)


def tables_in_parts(
    paths: list[Path], read: Callable[[Path], tuple[list[T], Understood]], origins: Origins | None = None
) -> tuple[dict[str, list[T]], Understood]:
    """One table, or several: parts by file name, a second file being the test; and the columns of the training part.

    `read` gives the rows of one file and where its texts and labels stand; `origins` is filled with the files.
    """
    origins = {} if origins is None else origins
    found = [p for p in entries(paths[0]) if p.suffix.lower() in TABLE_SUFFIXES] if paths[0].is_dir() else paths
    if not found:
        raise OdeumError(f"'{paths[0]}' holds no tables ({', '.join(sorted(TABLE_SUFFIXES))})")
    if len(found) == 1:
        rows, columns = read(found[0])
        origins["train"] = f"'{found[0]}'"
        return {"train": rows}, columns
    parts: dict[str, list[T]] = {}
    columns = Understood()
    named = [split_name(path.name) for path in found]
    free = iter([part for part in ("train", "test", "valid") if part not in named])
    for path, part in zip(found, named, strict=True):
        part = part or next(free, None)
        if part is None:
            raise OdeumError(
                f"which part of the data is '{path}'? Of {len(found)} tables, name each train…, valid… or test…"
            )
        rows, there = read(path)
        parts.setdefault(part, []).extend(rows)
        origins[part] = f"{origins[part]} and '{path}'" if part in origins else f"'{path}'"
        columns = there if part == "train" else columns
    if "train" not in parts:
        raise OdeumError(f"none of {', '.join(str(p) for p in found)} is named as the training part (train)")
    for part in parts.keys() - {"train"}:
        _refuse_repetition(part, set(parts[part]), set(parts["train"]), found[0].parent)
    return parts, columns


def _refuse_repetition(part: str, held: set[Any], train: set[Any], where: Path) -> None:
    """A part that is the training part can test nothing; one that lies within it should be known to."""
    if held == train:
        raise OdeumError(f"the {part} part of '{where}' has the rows of its training part, so it can test nothing")
    if held <= train:
        notice(f"all rows of the {part} part of '{where}' are in its training part too, so its score says little")


def read_table(path: Path, options: ClassificationData) -> tuple[Rows, Understood]:
    """The rows of one file as (text, label), and where both stand in it."""
    table, columns = choose_columns(open_table(path), options.text_column, options.label_column)
    return labelled(table, columns.text, columns.label), columns.named(table)


def labelled(table: Table, text: list[int], label: int) -> Rows:
    """The rows that have a label, as (text, label); the others are counted."""
    rows = [(table.text(number, row, text), row[label].strip()) for number, row in table.checked([*text, label])]
    kept = [row for row in rows if row[1]]
    refuse_several_labels((cell for _, cell in kept), str(table.path))
    if lost := len(rows) - len(kept):
        notice(f"rows of '{table.path}' without a label were left out: {lost}")
    if not kept:
        raise OdeumError(f"'{table.path}' has no rows with a label")
    return kept
