"""What is to be predicted: texts out of tables and plain files, images out of folders; no torch."""

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


class PredictInput(NamedTuple):
    """One text or path, and where it stands if that is a row of a table; or what is wrong with it."""

    text: str
    file: str | None = None
    row: int | None = None
    error: OdeumError | None = None


def image_inputs(names: Sequence[str], column: str | None = None) -> list[PredictInput]:
    """Images as they are given; for a folder all the images in it and in the folders in it; for a table or a plain text
    those that it lists, as seen from where it lies."""
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
        found = sorted(str(p) for p in files_below(path) if p.suffix.lower() in IMAGE_SUFFIXES)
        if not found:
            raise OdeumError(f"the folder '{name}' holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
        return [PredictInput(file) for file in found]
    if path.suffix.lower() not in TABLE_SUFFIXES | TEXT_SUFFIXES:
        return [PredictInput(name)]
    columns = () if column else _file_column(path)
    listed = (item for item in predict_inputs(name, columns, column) if item.text.strip())
    return [item._replace(text=str(path.parent / item.text.strip())) for item in listed]


def _file_column(path: Path) -> Columns:
    """The column of a list that has the paths."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        return ()
    table = open_table(_text_file(str(path)))
    found = next((name for name in table.head if name.strip().lower() in FILE_COLUMNS), None)
    if found is None:
        raise OdeumError(f"which column of '{path}' names the images? Its columns are {table.columns()}; say --column")
    return [found]


def text_inputs(names: Sequence[str], columns: Columns, column: str | None = None) -> Iterator[PredictInput]:
    """The rows and lines of several files; a file that is wrong does not take the others with it."""
    for name in names:
        try:
            yield from predict_inputs(name, columns, column)
        except OdeumError as error:
            yield PredictInput(name, error=error)


def predict_inputs(name: str, columns: Columns, column: str | None = None) -> Iterator[PredictInput]:
    """The rows of a table, or the lines of a plain text, once all of it is known to be right.

    `columns` are those that a run was trained on; `column` overrules them.
    """
    path = _text_file(name)
    if path.suffix.lower() in TABLE_SUFFIXES:
        table, places = _chosen(open_table(path), columns, column)
        for number, row in list(table.checked(places)):
            yield PredictInput(table.text(number, row, places), name, number)
        return
    if column is not None:
        raise OdeumError(
            f"'{name}' is plain text, a text a line; --column is for tables ({', '.join(sorted(TABLE_SUFFIXES))})"
        )
    for look in (True, False):
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                text = decoded(raw, f"line {number} of '{name}'")
                if not look:
                    yield PredictInput(text)


def line_inputs(lines: Iterable[bytes]) -> Iterator[PredictInput]:
    """The lines of standard input; one that is no text is named and left out."""
    for number, raw in enumerate(lines, 1):
        try:
            yield PredictInput(decoded(raw, f"line {number} of standard input"))
        except OdeumError as error:
            yield PredictInput(f"line {number}", error=error)


def whole_file(name: str) -> PredictInput:
    """A file whose whole text is one input, without the line end that editors add."""
    return PredictInput(read_text(_text_file(name)).removesuffix("\n"), name)


def decoded(raw: bytes, where: str) -> str:
    """A line as text, without its end and a byte-order mark."""
    try:
        return raw.decode("utf-8").removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise OdeumError(f"{where} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}") from None


def _text_file(name: str) -> Path:
    path = _unpacked(name)
    if not path.exists():
        raise OdeumError(f"there is no file '{name}'; to give a text itself use --text")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise OdeumError(f"'{name}' is an image, but this run reads texts; give a table, a plain text, or --text")
    refuse_foreign(regular(path))
    return path


def _unpacked(name: str) -> Path:
    """A path, or where the content of a packed one lies: what `train` took."""
    path = Path(name).expanduser()
    return plain_files(path) if path.is_file() else path


def _chosen(table: Table, columns: Columns, column: str | None) -> tuple[Table, list[int]]:
    """The table, its header a row if it has none, and the places of its text."""
    if column is not None:
        return _asked(table, column)
    names = [name for name in columns if isinstance(name, str)]
    if names:
        lowered = {name.strip().lower(): name for name in reversed(table.head)}
        there = [name if name in table.head else lowered.get(name.strip().lower()) for name in names]
        if None not in there:
            return table, table.places([name for name in there if name is not None])
        lost = names[there.index(None)]
        raise OdeumError(
            f"'{table.path}' has no column '{lost}', which the run was trained on: its columns are {table.columns()}; "
            "name the one of the text with --column"
        )
    usual, headed = find_text(table.head, None), looks_like_head(table.head)
    if usual is not None and (headed or not columns):
        return table, table.places(usual)
    if columns:  # the run was trained on tables without a header
        place = [0] if len(table.head) == 1 else [place for place in columns if isinstance(place, int)]
        return (table if headed else _bare(table)), place
    raise OdeumError(
        f"which column of '{table.path}' is the text? Its columns are {table.columns()}; name one with --column"
    )


def _asked(table: Table, column: str) -> tuple[Table, list[int]]:
    found = find_text(table.head, column)
    if found is not None:
        return table, table.places(found)
    if column.isdecimal() and 1 <= int(column) <= len(table.head):  # of a table without a header
        return _bare(table), [int(column) - 1]
    raise OdeumError(
        f"'{table.path}' has no column '{column}': its columns are {table.columns()}; name one of them, or say its "
        "number if the table has no header"
    )


def _bare(table: Table) -> Table:
    return table.without_header([str(i + 1) for i in range(len(table.head))])
