"""Read texts with labels: CSV, TSV, JSONL, IMDB, AG News."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import TABLE_SUFFIXES, entries, read_lines, read_text
from odeum.lab.data.homes import homes, locate
from odeum.lab.data.split_names import split_name
from odeum.lab.data.table_files import (
    Chosen,
    Columns,
    Table,
    Understood,
    choose_columns,
    find_label,
    look_at_table,
    open_table,
    with_text,
)
from odeum.lab.data.understanding import Origins
from odeum.lab.data.unsupported import refuse_several_labels
from odeum.lab.tasks.classification import ClassificationData

Rows = list[tuple[str, str]]  # text, label
T = TypeVar("T")


@dataclass
class LabelledTexts:
    """Rows of (text, label) by part, and display names of labels."""

    parts: dict[str, Rows]
    names: dict[str, str]
    columns: Columns = ()
    """text columns: names, or indices from 0 without a header"""
    label: str | int | None = None
    """label column"""
    origins: Origins = field(default_factory=dict)
    """the files of each part"""


def named_table(name: str, options: ClassificationData) -> LabelledTexts:
    return ag_news(options) if name == "ag_news" else imdb()


def imdb() -> LabelledTexts:
    """IMDB (Maas et al. 2011): one TSV per part, or the published folder aclImdb."""
    names = {"0": "negative", "1": "positive"}
    for home in homes():
        if (home / "aclImdb" / "train" / "pos").is_dir():
            return LabelledTexts(acl_imdb(home / "aclImdb"), names)
    folder = locate("imdb", "imdb", ["train.tsv", "test.tsv"])
    parts: dict[str, Rows] = {}
    for part in ("train", "test"):
        rows = [line.split("\t", 4) for line in read_lines(folder / f"{part}.tsv")]
        if bad := [i for i, row in enumerate(rows, 1) if len(row) != 5]:
            raise OdeumError(f"line {bad[0]} of '{folder / part}.tsv' must have columns label, rating, film, id, text")
        parts[part] = [(row[4], row[0]) for row in rows]
    return LabelledTexts(parts, names)


def acl_imdb(folder: Path) -> dict[str, Rows]:
    """Read train/pos/*.txt, train/neg/*.txt, and the same for test."""
    parts = {}
    for part in ("train", "test"):
        sides = (("0", folder / part / "neg"), ("1", folder / part / "pos"))
        parts[part] = [(read_text(p), label) for label, sub in sides for p in sorted(sub.glob("*.txt"))]
    return {part: rows for part, rows in parts.items() if rows}


def ag_news(options: ClassificationData) -> LabelledTexts:
    """AG News; the text is title and description, or only text_column=description (as in Dutta et al.)."""
    folder = locate("ag_news", "ag_news", ["train.csv", "test.csv"])
    columns = ["class", "title", "description"]
    text, label = (options.text_column or "title+description").split("+"), [options.label_column or "class"]
    parts = {}
    for part in ("train", "test"):
        table = open_table(folder / f"{part}.csv").without_header(columns)
        parts[part] = labelled(table, table.places(text), table.places(label)[0])
    return LabelledTexts(parts, {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"})


def read_tables(paths: list[Path], options: ClassificationData) -> LabelledTexts:
    """Read the folders of IMDB, or tables."""
    if paths[0].is_dir() and (paths[0] / "train" / "pos").is_dir():
        return LabelledTexts(acl_imdb(paths[0]), {"0": "negative", "1": "positive"})
    origins: Origins = {}
    parts, columns = tables_in_parts(paths, lambda path: read_table(path, options), origins)
    return LabelledTexts(parts, {}, columns.text, columns.label, origins)


def tables_in_parts(
    paths: list[Path], read: Callable[[Path], tuple[list[T], Understood]], origins: Origins | None = None
) -> tuple[dict[str, list[T]], Understood]:
    """Read tables into parts by file name (a second unnamed file is the test part); also returns the columns.

    `read` returns the rows and columns of one file; `origins` is filled with the files of each part.
    """
    origins = {} if origins is None else origins
    files = [p for p in entries(paths[0]) if p.suffix.lower() in TABLE_SUFFIXES] if paths[0].is_dir() else paths
    if not files:
        raise OdeumError(f"'{paths[0]}' has no tables ({', '.join(sorted(TABLE_SUFFIXES))})")
    if len(files) == 1:
        rows, columns = read(files[0])
        origins["train"] = f"'{files[0]}'"
        return {"train": rows}, columns
    parts: dict[str, list[T]] = {}
    columns = Understood()
    if paths[0].is_dir():
        files = _without_others(files)
    named = [split_name(path.name) for path in files]
    free = iter([part for part in ("train", "test", "valid") if part not in named])
    for path, part in zip(files, named, strict=True):
        part = part or next(free, None)
        if part is None:
            raise OdeumError(
                f"'{path}' is not named as a part; of {len(files)} tables, name each train…, valid… or test…"
            )
        rows, understood = read(path)
        parts.setdefault(part, []).extend(rows)
        origins[part] = f"{origins[part]} and '{path}'" if part in origins else f"'{path}'"
        columns = understood if part == "train" else columns
    if "train" not in parts:
        raise OdeumError(
            f"none of {', '.join(str(p) for p in files)} is named as the training part; add 'train' to a file name"
        )
    for part in parts.keys() - {"train"}:
        _refuse_repetition(part, set(parts[part]), set(parts["train"]), files[0].parent)
    return parts, columns


def _without_others(files: list[Path]) -> list[Path]:
    """Tables of a folder without those that are no part: sample_submission.csv and a test.csv without labels."""
    named = {path: split_name(path.name) for path in files}
    train = next((path for path, part in named.items() if part == "train"), None)
    if train is None:
        return files
    label = find_label(look_at_table(train).head, None)
    out = []
    for path, part in named.items():
        if part is None and len(set(named.values()) - {None}) > 1:
            notice(f"'{path}' is named as no part (train, valid or test) and was left out")
        elif part not in (None, "train") and label is not None and label not in look_at_table(path).head:
            notice(f"'{path}' has no column '{label}', so it was not used as the {part} part")
        else:
            out.append(path)
    return out


def _refuse_repetition(part: str, held: set[Any], train: set[Any], where: Path) -> None:
    """Raise `OdeumError` if a held-out part equals the training part; print a notice if it is contained in it."""
    if held == train:
        raise OdeumError(f"the {part} part of '{where}' has the same rows as its training part; give other rows")
    if held <= train:
        notice(
            f"all rows of the {part} part of '{where}' are also in its training part, so its score does not "
            "measure generalisation"
        )


def read_table(path: Path, options: ClassificationData) -> tuple[Rows, Understood]:
    """Rows of one file as (text, label), and its text and label columns."""
    table, columns = choose_columns(open_table(path), options.text_column, options.label_column)
    if options.text_column is None:
        _note_other_texts(table, columns)
    return labelled(table, columns.text, columns.label), columns.named(table)


def _note_other_texts(table: Table, chosen: Chosen) -> None:
    """Print a notice for columns of free text that are not used."""
    rows = [row for _, row in table.rows[:200] if len(row) == len(table.head)]
    others = [
        i
        for i in range(len(table.head))
        if i not in (*chosen.text, chosen.label) and i not in map(table.head.index, table.nested)
    ]
    free = [i for i in others if rows and sum(len(row[i].split()) for row in rows) > 3 * len(rows)]
    if free and table.headed:
        names, used = [table.head[i] for i in free], [table.head[i] for i in chosen.text]
        notice(
            f"'{', '.join(names)}' of '{table.path}' also holds text and is not used; "
            f"--data.text_column {'+'.join([*names, *used])} joins the columns"
        )


def labelled(table: Table, text: list[int], label: int) -> Rows:
    """Rows with a text and a label, as (text, label); the others are left out and counted."""
    rows = [(table.text(number, row, text), row[label].strip()) for number, row in table.checked([*text, label])]
    labelled_rows = [row for row in rows if row[1]]
    refuse_several_labels((cell for _, cell in labelled_rows), str(table.path))
    if lost := len(rows) - len(labelled_rows):
        notice(f"{lost} rows of '{table.path}' without a label were left out")
    if not labelled_rows:
        raise OdeumError(f"'{table.path}' has no rows with a label")
    return with_text(labelled_rows, table.path)
