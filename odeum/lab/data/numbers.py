"""Recognise and read texts and images with a number each; errors name what is not a number."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import IMAGE_SUFFIXES
from odeum.lab.data.image_labels import LABELS, labelled_folders, open_labels, read_labels
from odeum.lab.data.sniffing import Sniffed, holds_images, holds_labelled_texts
from odeum.lab.data.split_names import split_name
from odeum.lab.data.table_files import (
    FILE_COLUMNS,
    LABEL_NAMES,
    NUMBER_NAMES,
    Chosen,
    Table,
    Understood,
    choose_columns,
    find_label,
    find_text,
    look_at_table,
    open_table,
    usual_column,
    with_text,
)

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

Numbered = list[tuple[str, float]]  # text, number


def is_number(cell: str) -> bool:
    """Whether a cell is a finite decimal number."""
    return bool(_NUMBER.fullmatch(cell.strip())) and math.isfinite(float(cell))


_WITH_COMMA = re.compile(r"[+-]?[0-9]{1,3}(\.[0-9]{3})+,[0-9]+|[+-]?[0-9]+,[0-9]+")


def with_points(cells: Sequence[str]) -> list[str]:
    """A column of numbers with decimal commas (3,5 or 1.234,56), rewritten with points.

    If every comma is followed by three digits they may be thousands separators; such columns are left unchanged.
    """
    stripped = [cell.strip() for cell in cells]
    commas = [cell for cell in stripped if "," in cell]
    if not commas:
        return list(cells)
    fits = all(_WITH_COMMA.fullmatch(cell) if "," in cell else is_number(cell) or not cell for cell in stripped)
    if not fits or all(len(cell.rpartition(",")[2]) == 3 and "." not in cell for cell in commas):
        return list(cells)
    return [cell.replace(".", "").replace(",", ".") if "," in cell else cell for cell in stripped]


def number(cell: str, where: str) -> float:
    """The number in a cell; raises `OdeumError` with its place if it is not a finite number."""
    if is_number(cell):
        return float(cell)
    text = cell.strip()[:40]
    comma = "; write a decimal point, and no thousands separator" if is_number(text.replace(",", ".", 1)) else ""
    raise OdeumError(f"{where} holds '{text}', which is not a finite number{comma}")


# tables of texts


def read_numbers(path: Path, text: str | None, label: str | None) -> tuple[Numbered, Understood]:
    """The rows of a table as (text, number), and their columns; rows without a number are left out and counted."""
    table, texts, place = _columns(open_table(path), text, label)
    rows: Numbered = []
    lost = 0
    checked = list(table.checked([*texts, place]))
    for (row_number, row), cell in zip(checked, with_points([row[place] for _, row in checked]), strict=True):
        if not cell.strip():
            lost += 1
            continue
        where = f"row {row_number} of '{path}', column '{table.head[place]}',"
        rows.append((table.text(row_number, row, texts), number(cell, where)))
    if lost:
        notice(f"{lost} rows of '{path}' without a number were left out")
    if not rows:
        raise OdeumError(f"'{path}' has no rows with a number")
    return with_text(rows, path), Chosen(texts, place).named(table)


def _columns(table: Table, text: str | None, label: str | None) -> tuple[Table, list[int], int]:
    """Text and number columns of a table; a table of two columns may have no header."""
    if len(table.head) == 2 and text is None and label is None:
        numbers = [is_number(cell) for cell in table.head]
        if any(numbers) and not all(numbers):
            place = numbers.index(True)
            names = ["number", "text"] if place == 0 else ["text", "number"]
            return table.without_header(names), [1 - place], place
    texts = find_text(table.head, text)
    wanted = label or usual_column([name for name in table.head if name not in (texts or ())], NUMBER_NAMES)
    table, chosen = choose_columns(table, text, wanted)
    return table, chosen.text, chosen.label


def holds_numbered_texts(sniffed: Sniffed) -> bool:
    """Whether the label column of tables holds too many different numbers to be classes.

    Prints a notice where numbers are read as classes although they could be targets of a regression.
    """
    tables = sniffed.tables()
    if not tables or not holds_labelled_texts(sniffed):
        return False
    path = next((p for p in tables if split_name(p.name) == "train"), tables[0])
    try:
        table = look_at_table(path)
        table, _, place = _columns(table, None, usual_column(table.head, LABEL_NAMES.split()))
        cells = with_points([row[place].strip() for _, row in table.checked([place]) if row[place].strip()])
    except OdeumError:  # the reader of the file reports it
        return False
    if not cells or not all(map(is_number, cells)):
        return False
    column = table.head[place]
    if many_different(cells):
        notice(f"column '{column}' of '{path}' holds {len(set(cells))} different numbers: read as numbers to predict")
        return True
    if len(set(cells)) > 2:
        found = not table.headed or find_label(table.head, None) == column
        how = "read as classes" if found else f"read as classes with --data.label_column {column}"
        some = ", ".join(sorted(set(cells), key=lambda cell: (float(cell), cell))[:5])
        notice(
            f"column '{column}' of '{path}' holds {len(set(cells))} different numbers ({some} …): {how}; "
            "use --kind regression to predict them as numbers"
        )
    return False


def many_different(cells: Sequence[str]) -> bool:
    """Whether there are too many different numbers to be classes; the limit is lower if some are not integers."""
    distinct = {float(cell) for cell in cells}
    enough = 50 if all(value == math.floor(value) for value in distinct) else 10
    return len(distinct) > max(enough, len(cells) // 3)


# folders of images


def _label_columns(path: Path, label: str | None) -> tuple[Table, int, int]:
    """The table, and the indices of its columns of file names and numbers; with or without a header."""
    table = open_labels(path, "numbers")
    if label is None and len(table.head) == 2 and is_number(table.head[1]):
        table = table.without_header(["file", "number"])
    place = table.places([label or usual_column(table.head[1:], NUMBER_NAMES) or table.head[-1]])[0]
    others = [name for i, name in enumerate(table.head) if i != place]
    return table, table.places([usual_column(others, (*FILE_COLUMNS, "id")) or others[0]])[0], place


def numbered_images(folder: Path, label: str | None = None) -> tuple[list[Path], list[float]]:
    """Images named in labels.csv with their numbers."""
    table, file, place = _label_columns(folder / LABELS, label)
    column = f"column '{table.head[place]}',"
    numbers = {
        image: number(cell, f"{where}, {column}") for image, (where, cell) in read_labels(table, file, place).items()
    }
    if not numbers:
        raise OdeumError(f"'{table.path}' names no images; each row must be a file name and a number")
    return list(numbers), list(numbers.values())


def holds_numbered_images(sniffed: Sniffed) -> bool:
    """Whether a folder of images has a labels.csv of numbers; raises `OdeumError` if they may be classes."""
    if not holds_images(sniffed) or sniffed.folder is None:
        return False
    folders = labelled_folders(sniffed.folder)
    if not folders:
        return False
    path = folders["train"] / LABELS
    table, file, place = _label_columns(path, None)
    whole = [row for _, row in table.rows if len(row) > max(file, place)]
    cells = [row[place].strip() for row in whole]
    images = any((path.parent / row[file].strip()).suffix.lower() in IMAGE_SUFFIXES for row in whole)
    if not images or not is_number(cells[0]):  # class names
        return False
    if many_different([cell for cell in cells if is_number(cell)]):
        notice(f"'{path}' names a number for each image: read as numbers to predict")
        return True
    raise OdeumError(
        f"'{path}' holds {len(set(cells))} different numbers; use --kind image-regression to predict "
        "them as numbers, or put the images of each class into a sub-folder and use --kind images"
    )
