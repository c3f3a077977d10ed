"""Read tables (CSV, TSV or JSON), for training and for prediction; columns by name or recognised."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import half_characters, read_lines, read_text, regular, rows_of, table_rows
from odeum.lab.data.unsupported import table_hint

TEXT_NAMES = (
    "text sentence review content description comment message document body tweet question headline title input"
)
NUMBER_NAMES = ("target", "y", "number", "value", "score", "rating", "stars", "price", "amount", "label", "labels")
"""usual names of columns with a number to predict"""
LABEL_NAMES = "label labels class category target sentiment polarity topic intent emotion tag y"
PAIR_NAMES = "source src target tgt trg en de fr es it english german french"
FILE_COLUMNS = ("file", "filename", "file_name", "path", "image", "name")
"""usual names of columns with image paths"""
Columns = Sequence[str | int]
"""columns by name, or by index from 0 in a table without header"""


class Understood(NamedTuple):
    """Text and label columns that were recognised in a table."""

    text: Columns = ()
    label: str | int | None = None


@dataclass(frozen=True)
class Table:
    """Header and rows of a table; each row has its number in the file for error messages."""

    path: Path
    head: list[str]
    rows: list[tuple[int, list[str]]]
    headed: bool = True
    """whether the file has a header"""
    nested: Mapping[str, int] = field(default_factory=dict)
    """JSON columns with lists or objects, each with the number of such a row; they cannot be text or label"""
    first: Mapping[str, Any] | None = None
    """the first object of a JSON file"""

    def without_header(self, names: list[str]) -> Table:
        """The table with its first row read as data."""
        return replace(self, head=names, rows=[(1, self.head), *self.rows], headed=False)

    def places(self, names: Sequence[str]) -> list[int]:
        """Indices of columns; raises `OdeumError` for an unknown name."""
        for name in names:
            if name not in self.head:
                raise OdeumError(f"'{self.path}' has no column '{name}'; its columns are {self.columns()}")
            if self.headed and (times := self.head.count(name)) > 1:
                raise OdeumError(f"'{self.path}' has {times} columns named '{name}'; give each a name of its own")
            if name in self.nested:
                raise OdeumError(
                    f"'{name}' in row {self.nested[name]} of '{self.path}' is a list or an object, neither a text nor "
                    "a number; write a single value (lists of labels, that is multi-label data, are not supported)"
                )
        return [self.head.index(name) for name in names]

    def columns(self) -> str:
        """The column names, for an error message."""
        return ", ".join(f"'{name[:40]}'" for name in self.head[:12]) + (" …" if len(self.head) > 12 else "")

    def checked(self, places: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
        """Non-blank rows; raises `OdeumError` for a row with too few or too many columns."""
        most, width = max(places), len(self.head)
        for number, row in self.rows:
            if not any(row):
                continue
            if len(row) <= most or (len(row) > width and any(row[width:])):
                raise OdeumError(
                    f"row {number} of '{self.path}' has {len(row)} columns where {len(self.head)} were expected"
                )
            yield number, row

    def text(self, number: int, row: list[str], places: Sequence[int]) -> str:
        """The text columns of a row, joined by blanks."""
        if len(places) == 1:
            return row[places[0]].strip()
        return " ".join(row[place] for place in places if row[place]).strip()


class Chosen(NamedTuple):
    """Indices of the text and label columns."""

    text: list[int]
    label: int

    def named(self, table: Table) -> Understood:
        """The columns by name, or by index if the table has no header."""
        if not table.headed:
            return Understood(list(self.text), self.label)
        return Understood([table.head[i] for i in self.text], table.head[self.label])


_looked_at: dict[tuple[Path, int, int, int], Table] = {}
"""the last table that was only looked at, by its file and the state of that"""


def look_at_table(path: Path) -> Table:
    """Like `open_table`, for recognisers: the table is kept until it is opened or another file is looked at."""
    key = _state(path)
    if (table := _looked_at.get(key)) is None:
        _looked_at.clear()
        table = _looked_at[key] = _read_table(path)
    return table


def open_table(path: Path) -> Table:
    """Read a table; the format is that of the file extension."""
    table = _looked_at.get(_state(path)) if _looked_at else None
    _looked_at.clear()
    return _read_table(path) if table is None else table


def _state(path: Path) -> tuple[Path, int, int, int]:
    about = regular(path).stat()
    return path.absolute(), about.st_ino, about.st_size, about.st_mtime_ns


def _read_table(path: Path) -> Table:
    if path.suffix.lower() in (".jsonl", ".json"):
        return _json_table(path)
    csv.field_size_limit(sys.maxsize)
    try:
        rows = list(table_rows(iter(rows_of(path)), path.suffix.lower()))
    except csv.Error as error:
        raise OdeumError(f"'{path}' is not a well-formed table: {error}") from None
    head = rows[0] if rows else []
    full = [(i, row) for i, row in enumerate(rows[1:], 2) if any(row)]
    named = len(head) > 1 and find_text(head, None) is not None and find_label(head, None) is not None
    if named and (repeated := [i for i, row in full if row == head]):
        notice(f"row {repeated[0]} of '{path}' repeats the header; {len(repeated)} such rows were left out")
        full = [(i, row) for i, row in full if row != head]
    return Table(path, head, full)


def choose_columns(table: Table, text: str | None, label: str | None) -> tuple[Table, Chosen]:
    """Text and label columns, given or recognised; a table of two columns may have no header."""
    if not table.rows:
        raise OdeumError(f"'{table.path}' has no rows below its first line")
    texts, labels = find_text(table.head, text), find_label(table.head, label)
    if texts is not None and labels is not None:
        if labels in texts:
            raise OdeumError(f"'{labels}' of '{table.path}' cannot be both text and label; name two columns")
        return table, Chosen(table.places(texts), table.places([labels])[0])
    if len(table.head) == 2 and text is None and label is None:
        distinct = [len({row[side] for _, row in table.rows if len(row) == 2}) for side in (0, 1)]
        place = 0 if distinct[0] < distinct[1] else 1
        if any(len(row) == 2 and row[place] == table.head[place] for _, row in table.rows):  # its label comes again
            names = ["label", "text"] if place == 0 else ["text", "label"]
            return table.without_header(names), Chosen([1 - place], place)
    asked = [f"'{x}'" for x in (text, label) if x is not None]
    if asked:
        what = f"no column {' or '.join(asked)}"
    elif texts is not None:
        what = f"no recognised label column beside the text '{'+'.join(texts)}'"
    else:
        what = f"no recognised text{' and label' if labels is None else ''} column"
    rows = [row for _, row in table.rows]
    raise OdeumError(
        f"'{table.path}' has {what}: its columns are {table.columns()}; name them with --data.text_column and "
        f"--data.label_column{'' if asked else _number_hint(table) or table_hint(table.head, rows)}"
    )


def _number_hint(table: Table) -> str:
    """What a column such as `stars` can be read as, as the end of a message."""
    column = usual_column(table.head, NUMBER_NAMES)
    if column is None or find_text(table.head, None) is None:
        return ""
    return f"; --data.label_column {column} reads '{column}' as classes, and --kind regression as numbers"


def find_text(head: list[str], wanted: str | None) -> list[str] | None:
    """Text columns: the given one, several joined by +, or the first with a usual name."""
    if wanted is None:
        usual = usual_column(head, TEXT_NAMES.split())
        return None if usual is None else [usual]
    names = [wanted] if wanted in head else wanted.split("+")
    return names if all(name in head for name in names) else None


def find_label(head: list[str], wanted: str | None) -> str | None:
    """The label column: the given one, or the first with a usual name."""
    if wanted is None:
        return usual_column(head, LABEL_NAMES.split())
    return wanted if wanted in head else None


def looks_like_head(row: list[str]) -> bool:
    """Whether a row contains only usual column names."""
    usual = set(f"{TEXT_NAMES} {LABEL_NAMES} {PAIR_NAMES}".split())
    return bool(row) and all(cell.strip().lower() in usual for cell in row)


def usual_column(head: Sequence[str], names: Iterable[str]) -> str | None:
    """The column with the first of these names; nested fields (`review.body`) match by their last part."""
    inner = {name.strip().lower().rpartition(".")[2]: name for name in reversed(head)}
    lowered = inner | {name.strip().lower(): name for name in reversed(head)}
    return next((lowered[name] for name in names if name in lowered), None)


def _json_table(path: Path) -> Table:
    objects = json_objects(path)
    first = objects[0][1] if objects else None
    objects = [(number, flattened(item) if _holds_objects(item) else item) for number, item in objects]
    head = list(dict.fromkeys(key for names in dict.fromkeys(tuple(item) for _, item in objects) for key in names))
    nested: dict[str, int] = {}
    for number, item in objects:
        for key, value in item.items():
            if isinstance(value, _NESTED):
                nested[key] = number
    above = {key: starts for key in head if (starts := [start for start in _above(key) if start in head])}
    for number, item in objects if above else ():  # an object in a column that has plain values in other rows
        nested |= {start: number for key in item for start in above.get(key, ())}
    rows = [(number, [_cell(item.get(key)) for key in head]) for number, item in objects]
    return Table(path, head, rows, nested=nested, first=first)


_NESTED = (list, dict)


def _holds_objects(item: Mapping[str, Any]) -> bool:
    return any(isinstance(value, dict) for value in item.values())


def flattened(item: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested objects to dotted names: {"review": {"body": x}} has `review.body`."""
    out: dict[str, Any] = {}
    for key, value in item.items():
        name = f"{prefix}{key}"
        out |= flattened(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return out


def _above(name: str) -> Iterator[str]:
    """`a.b.c` -> `a`, `a.b`."""
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts)))


def _cell(value: Any) -> str:
    """A JSON value as a cell; null and NaN, which libraries write for missing values, are empty."""
    if isinstance(value, str):
        return value
    return "" if value is None or value != value else str(value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object from its pairs; raises `OdeumError` for a repeated name, of which `json` would keep the last."""
    item = dict(pairs)
    if len(item) < len(pairs):
        names = [name for name, _ in pairs]
        raise OdeumError(f"has the name '{next(name for name in names if names.count(name) > 1)}' twice")
    return item


_decode = json.JSONDecoder(object_pairs_hook=_once).decode  # json.loads would make a decoder for each line


def json_objects(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Objects of a JSON Lines file or of one JSON list, each with its line number or position."""
    whole = read_text(path).lstrip().startswith("[")
    out: list[tuple[int, Any]] = []
    for number, line in enumerate([read_text(path)] if whole else read_lines(path), 1):
        if not line.strip():
            continue
        try:
            item = _decode(line)
        except OdeumError as error:
            raise OdeumError(f"line {number} of '{path}' {error}") from None
        except json.JSONDecodeError as error:
            raise OdeumError(f"line {error.lineno if whole else number} of '{path}' is not JSON: {error.msg}") from None
        except (RecursionError, ValueError):
            raise OdeumError(f"line {number} of '{path}' is not an object with a text and a label") from None
        if "\\u" in line and half_characters(json.dumps(item, ensure_ascii=False)):
            raise OdeumError(
                f"line {number} of '{path}' contains an unpaired surrogate (\\ud800 to \\udfff); remove it"
            )
        out += list(enumerate(item, 1)) if whole else [(number, item)]
    if bad := [number for number, item in out if not isinstance(item, dict)]:
        where = f"item {bad[0]}" if whole else f"line {bad[0]}"
        raise OdeumError(f"'{path}' must have one object with a text and a label per line, but {where} is none")
    return out


Row = TypeVar("Row", bound=tuple[str, object])


def with_text(rows: list[Row], path: Path) -> list[Row]:
    """Rows with a text; the others are left out and counted."""
    full = [row for row in rows if row[0].strip()]
    if lost := len(rows) - len(full):
        notice(f"{lost} rows of '{path}' with an empty text were left out")
    if not full:
        raise OdeumError(f"all texts of '{path}' are empty")
    return full
