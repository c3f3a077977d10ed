"""Folders of images with file names and labels in labels.csv. Does not import torch."""

from __future__ import annotations

from pathlib import Path, PurePath

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import IMAGE_SUFFIXES, entries, files_below
from odeum.lab.data.split_names import SPLITS, whole_name
from odeum.lab.data.table_files import FILE_COLUMNS, Table, find_label, open_table

LABELS = "labels.csv"


def labelled_folders(folder: Path) -> dict[str, Path]:
    """Folders with a labels.csv: those named train, valid and test, or the folder itself."""
    subs = [p for p in entries(folder) if p.is_dir() and (p / LABELS).is_file()]
    given = {part: p for part in SPLITS for p in subs if whole_name(p.name) == part}
    if "train" in given:
        return given
    return {"train": folder} if (folder / LABELS).is_file() else {}


def open_labels(path: Path, what: str) -> Table:
    """The table of a labels.csv, which needs a column of file names and one of `what`."""
    table = open_table(path)
    if len(table.head) < 2:
        raise OdeumError(f"'{path}' needs a column of file names and one of {what}, but has {len(table.head)} columns")
    return table


def read_labels(table: Table, file: int, label: int) -> dict[Path, tuple[str, str]]:
    """The row and the label of each image that a labels.csv names; other images are left out and counted."""
    folder = table.path.parent
    labels: dict[Path, tuple[str, str]] = {}
    for number, row in table.checked([file, label]):
        where, name = f"row {number} of '{table.path}'", PurePath(row[file].strip())
        image = _with_suffix(folder / name)
        if name.is_absolute() or ".." in name.parts or not image.is_file():
            raise OdeumError(f"{where} names '{name}', which is not an image in '{folder}'; write its path from there")
        if image in labels:
            raise OdeumError(f"{where} names '{name}' a second time; name each image once")
        labels[image] = where, row[label].strip()
    if others := [p for p in files_below(folder) if p.suffix.lower() in IMAGE_SUFFIXES and p not in labels]:
        notice(f"{len(others)} images that '{table.path}' does not name were left out, such as '{others[0].name}'")
    return labels


def _with_suffix(image: Path) -> Path:
    """The path, or that of the only image of this name if its suffix is missing, as in tables of identifiers."""
    if image.suffix.lower() in IMAGE_SUFFIXES or image.is_file():
        return image
    images = [p for suffix in IMAGE_SUFFIXES if (p := image.with_name(image.name + suffix)).is_file()]
    return images[0] if len(images) == 1 else image


def labelled_groups(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Images by class for each part; empty without a labels.csv."""
    return {part: _groups(sub / LABELS) for part, sub in labelled_folders(folder).items()}


def _groups(path: Path) -> dict[str, list[Path]]:
    groups: dict[str, list[Path]] = {}
    for image, (_, label) in read_labels(*_columns(path)).items():
        if label:
            groups.setdefault(label, []).append(image)
    if not groups:
        raise OdeumError(f"'{path}' names no images with a class; each row must be a file name and a class")
    return {name: sorted(groups[name]) for name in sorted(groups)}


def _columns(path: Path) -> tuple[Table, int, int]:
    """The table, and the indices of its columns of file names and classes; with or without a header."""
    table = open_labels(path, "classes")
    if any(PurePath(cell.strip()).suffix.lower() in IMAGE_SUFFIXES for cell in table.head):
        table = table.without_header([f"column {i + 1}" for i in range(len(table.head))])
    usual = [i for i, name in enumerate(table.head) if name.strip().lower() in FILE_COLUMNS]
    file = usual[0] if usual else 0
    named = find_label(table.head, None)
    label = table.places([named])[0] if named is not None else len(table.head) - 1
    return table, file, label if label != file else 1 - file if len(table.head) == 2 else len(table.head) - 1
