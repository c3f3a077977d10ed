"""A flat folder of images with a labels.csv: file names and classes; no torch."""

from __future__ import annotations

from pathlib import Path, PurePath

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import IMAGE_SUFFIXES, files_below
from odeum.lab.data.numbers import LABELS, labelled_folders
from odeum.lab.data.table_files import FILE_COLUMNS, Table, find_label, open_table


def labelled_groups(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """The images of each class for each part; empty where there is no labels.csv."""
    return {part: _groups(sub) for part, sub in labelled_folders(folder).items()}


def _groups(folder: Path) -> dict[str, list[Path]]:
    path = folder / LABELS
    table, file, label = _columns(path)
    found: dict[str, list[Path]] = {}
    seen: set[Path] = set()
    for number, row in table.checked([file, label]):
        where, name, cell = f"row {number} of '{path}'", PurePath(row[file].strip()), row[label].strip()
        image = folder / name
        if name.is_absolute() or ".." in name.parts or not image.is_file():
            raise OdeumError(f"{where} names '{name}', but there is no such image in '{folder}'")
        if image in seen:
            raise OdeumError(f"{where} names '{name}' again; each image has one class")
        seen.add(image)
        if cell:
            found.setdefault(cell, []).append(image)
    if not found:
        raise OdeumError(f"'{path}' names no images with a class; a row is a file name and a class")
    if others := [p for p in files_below(folder) if p.suffix.lower() in IMAGE_SUFFIXES and p not in seen]:
        notice(f"images that '{path}' does not name were left out: {len(others)}, such as '{others[0].name}'")
    return {name: sorted(found[name]) for name in sorted(found)}


def _columns(path: Path) -> tuple[Table, int, int]:
    """The places of file names and classes, with a header or without one."""
    table = open_table(path)
    if len(table.head) < 2:
        raise OdeumError(f"'{path}' needs a column of file names and one of classes; it has {len(table.head)}")
    if any(PurePath(cell.strip()).suffix.lower() in IMAGE_SUFFIXES for cell in table.head):
        table = table.without_header([f"column {i + 1}" for i in range(len(table.head))])
    usual = [i for i, name in enumerate(table.head) if name.strip().lower() in FILE_COLUMNS]
    file = usual[0] if usual else 0
    named = find_label(table.head, None)
    label = table.places([named])[0] if named is not None else len(table.head) - 1
    return table, file, label if label != file else 1 - file if len(table.head) == 2 else len(table.head) - 1
