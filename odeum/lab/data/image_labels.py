"""A flat folder of images with file names and classes in labels.csv. Does not import torch."""

from __future__ import annotations

from pathlib import Path, PurePath

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import IMAGE_SUFFIXES, files_below
from odeum.lab.data.numbers import LABELS, labelled_folders
from odeum.lab.data.table_files import FILE_COLUMNS, Table, find_label, open_table


def labelled_groups(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Images by class for each part; empty without a labels.csv."""
    return {part: _groups(sub) for part, sub in labelled_folders(folder).items()}


def _groups(folder: Path) -> dict[str, list[Path]]:
    path = folder / LABELS
    table, file, label = _columns(path)
    groups: dict[str, list[Path]] = {}
    seen: set[Path] = set()
    for number, row in table.checked([file, label]):
        where, name, cell = f"row {number} of '{path}'", PurePath(row[file].strip()), row[label].strip()
        image = folder / name
        if name.is_absolute() or ".." in name.parts or not image.is_file():
            raise OdeumError(f"{where} names '{name}', which is not an image in '{folder}'")
        if image in seen:
            raise OdeumError(f"{where} names '{name}' a second time; name each image once")
        seen.add(image)
        if cell:
            groups.setdefault(cell, []).append(image)
    if not groups:
        raise OdeumError(f"'{path}' names no images with a class; each row must be a file name and a class")
    if others := [p for p in files_below(folder) if p.suffix.lower() in IMAGE_SUFFIXES and p not in seen]:
        notice(f"{len(others)} images that '{path}' does not name were left out, such as '{others[0].name}'")
    return {name: sorted(groups[name]) for name in sorted(groups)}


def _columns(path: Path) -> tuple[Table, int, int]:
    """The table, and the indices of its columns of file names and classes; with or without a header."""
    table = open_table(path)
    if len(table.head) < 2:
        raise OdeumError(f"'{path}' needs a column of file names and one of classes, but has {len(table.head)} columns")
    if any(PurePath(cell.strip()).suffix.lower() in IMAGE_SUFFIXES for cell in table.head):
        table = table.without_header([f"column {i + 1}" for i in range(len(table.head))])
    usual = [i for i, name in enumerate(table.head) if name.strip().lower() in FILE_COLUMNS]
    file = usual[0] if usual else 0
    named = find_label(table.head, None)
    label = table.places([named])[0] if named is not None else len(table.head) - 1
    return table, file, label if label != file else 1 - file if len(table.head) == 2 else len(table.head) - 1
