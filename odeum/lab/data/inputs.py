"""Inputs of `odeum predict`: texts from tables and text files, images from folders. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from odeum.errors import OdeumError
from odeum.lab.data.files import (
    IMAGE_SUFFIXES,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    files_below,
    read_text,
    refuse_foreign,
    regular,
)
from odeum.lab.data.table_files import FILE_COLUMNS, Columns, Table, find_text, looks_like_head, open_table
from odeum.lab.data.unpacking import plain_files
from odeum.storage import expanded


class PredictInput(NamedTuple):
    """One text or path, with its place if it is a row of a table; or its error."""

    text: str
    file: str | None = None
    row: int | None = None
    error: OdeumError | None = None


def image_inputs(names: Sequence[str], column: str | None = None) -> list[PredictInput]:
    """Image paths; of a folder all images in it and its sub-folders; of a table or a text file those that it lists,
    relative to it."""
    out: list[PredictInput] = []
    for name in names:
        try:
            out += _images(name, column)
        except OdeumError as error:
            out.append(PredictInput(name, error=error))
    return out


def _images(name: str, column: str | None) -> list[PredictInput]:
    path = _unpacked(name)
    if path.is_dir():
        images = sorted(str(p) for p in files_below(path) if p.suffix.lower() in IMAGE_SUFFIXES)
        if not images:
            raise OdeumError(f"the folder '{name}' holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
        return [PredictInput(file) for file in images]
    if path.suffix.lower() not in TABLE_SUFFIXES | TEXT_SUFFIXES:
        if column:
            raise OdeumError(f"--column is for tables, but '{name}' is an image")
        return [PredictInput(name)]
    columns = () if column else _file_column(path)
    listed = (item for item in predict_inputs(name, columns, column) if item.text.strip())
    return [item._replace(text=str(path.parent / item.text.strip())) for item in listed]


def _file_column(path: Path) -> Columns:
    """The column of image paths in a table."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        return ()
    table = open_table(_text_file(str(path)))
    column = next((name for name in table.head if name.strip().lower() in FILE_COLUMNS), None)
    if column is None:
        raise OdeumError(f"'{path}' has no column of image paths among {table.columns()}; name it with --column")
    return [column]


def text_inputs(names: Sequence[str], columns: Columns, column: str | None = None) -> Iterator[PredictInput]:
    """Rows and lines of several files; an error in one file does not stop the others."""
    for name in names:
        try:
            yield from predict_inputs(name, columns, column)
        except OdeumError as error:
            yield PredictInput(name, error=error)


def predict_inputs(name: str, columns: Columns, column: str | None = None) -> Iterator[PredictInput]:
    """Rows of a table or lines of a text file, checked completely before the first is returned.

    `columns` are those that the run was trained on; `column` overrides them.
    """
    path = _text_file(name)
    if path.suffix.lower() in TABLE_SUFFIXES:
        table, places = _chosen(open_table(path), columns, column)
        for number, row in list(table.checked(places)):
            yield PredictInput(table.text(number, row, places), name, number)
        return
    if column is not None:
        raise OdeumError(f"'{name}' is plain text; --column is for tables ({', '.join(sorted(TABLE_SUFFIXES))})")
    for look in (True, False):
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                text = decoded(raw, f"line {number} of '{name}'")
                if not look:
                    yield PredictInput(text)


def line_inputs(lines: Iterable[bytes]) -> Iterator[PredictInput]:
    """Lines of standard input; a line that is not UTF-8 becomes an error."""
    for number, raw in enumerate(lines, 1):
        try:
            yield PredictInput(decoded(raw, f"line {number} of standard input"))
        except OdeumError as error:
            yield PredictInput(f"line {number}", error=error)


def whole_file(name: str) -> PredictInput:
    """The whole content of a file as one input, without a final line end."""
    return PredictInput(read_text(_text_file(name)).removesuffix("\n"), name)


def decoded(raw: bytes, where: str) -> str:
    """Decode a line, without line end and byte-order mark."""
    try:
        return raw.decode("utf-8").removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise OdeumError(f"{where} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}") from None


def _text_file(name: str) -> Path:
    path = _unpacked(name)
    if not path.exists():
        raise OdeumError(f"there is no file '{name}'; use --text to pass a text directly")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise OdeumError(f"'{name}' is an image, but this run reads texts; give a table, a text file, or --text")
    refuse_foreign(regular(path))
    return path


def _unpacked(name: str) -> Path:
    """The path, or the unpacked content of a packed file, as `odeum train` reads it."""
    path = expanded(name)
    return plain_files(path) if path.is_file() else path


def _chosen(table: Table, columns: Columns, column: str | None) -> tuple[Table, list[int]]:
    """The table, without header if it has none, and the indices of its text columns."""
    if column is not None:
        return _asked(table, column)
    names = [name for name in columns if isinstance(name, str)]
    if names:
        lowered = {name.strip().lower(): name for name in reversed(table.head)}
        matches = [name if name in table.head else lowered.get(name.strip().lower()) for name in names]
        if None not in matches:
            return table, table.places([name for name in matches if name is not None])
        lost = names[matches.index(None)]
        raise OdeumError(
            f"'{table.path}' has no column '{lost}', which the run was trained on: its columns are {table.columns()}; "
            "name the text column with --column"
        )
    usual, headed = find_text(table.head, None), looks_like_head(table.head)
    if usual is not None and (headed or not columns):
        return table, table.places(usual)
    if columns:  # the run was trained on tables without a header
        place = [0] if len(table.head) == 1 else [place for place in columns if isinstance(place, int)]
        return (table if headed else _bare(table)), place
    raise OdeumError(f"'{table.path}' has no recognised text column among {table.columns()}; name it with --column")


def _asked(table: Table, column: str) -> tuple[Table, list[int]]:
    columns = find_text(table.head, column)
    if columns is not None:
        return table, table.places(columns)
    if column.isdecimal() and 1 <= int(column) <= len(table.head):  # of a table without a header
        return _bare(table), [int(column) - 1]
    raise OdeumError(
        f"'{table.path}' has no column '{column}': its columns are {table.columns()}; name one of them, or give its "
        "number if the table has no header"
    )


def _bare(table: Table) -> Table:
    return table.without_header([str(i + 1) for i in range(len(table.head))])
