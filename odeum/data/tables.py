"""Texts with labels: CSV, TSV, JSONL, IMDB, AG News."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odeum.data.files import TABLES, entries, read_lines, read_text, rows_of, table_rows
from odeum.data.homes import homes, locate
from odeum.data.split_names import split_name
from odeum.errors import OdeumError, notice
from odeum.settings.data import ClassificationData

TEXT_NAMES = (
    "text sentence review content description comment message document body tweet question headline title input"
)
LABEL_NAMES = "label labels class category target sentiment polarity topic intent emotion tag y"
Rows = list[tuple[str, str]]  # text, label


@dataclass
class Labelled:
    """What a reader gives: rows of (text, label) a part, and nicer names for the labels if they have any."""

    parts: dict[str, Rows]
    names: dict[str, str]


def named(name: str, options: ClassificationData) -> Labelled:
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
        path = folder / f"{part}.csv"
        parts[part] = _pick(path, columns, enumerate(_reader(path), 1), text, label)
    return Labelled(parts, {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"})


def files(paths: list[Path], options: ClassificationData) -> Labelled:
    """One table, or several: parts by file name, a second file being the test."""
    if paths[0].is_dir() and (paths[0] / "train" / "pos").is_dir():
        return Labelled(acl_imdb(paths[0]), {"0": "negative", "1": "positive"})
    found = [p for p in entries(paths[0]) if p.suffix.lower() in TABLES] if paths[0].is_dir() else paths
    if len(found) == 1:
        return Labelled({"train": read_table(found[0], options)}, {})
    parts: dict[str, Rows] = {}
    named = [split_name(path.name) for path in found]
    free = iter([part for part in ("train", "test", "valid") if part not in named])
    for path, part in zip(found, named, strict=True):
        part = part or next(free, None)
        if part is None:
            raise OdeumError(
                f"which part of the data is '{path}'? Of {len(found)} tables, name each train…, valid… or test…"
            )
        parts.setdefault(part, []).extend(read_table(path, options))
    if "train" not in parts:
        raise OdeumError(f"none of {', '.join(str(p) for p in found)} is named as the training part (train)")
    return Labelled(parts, {})


def read_table(path: Path, options: ClassificationData) -> Rows:
    """The rows of one file as (text, label)."""
    if path.suffix.lower() in (".jsonl", ".json"):
        return _read_jsonl(path, options)
    rows = _reader(path)
    head = next(rows, [])
    rest = [(i, row) for i, row in enumerate(rows, 2) if any(row)]
    if not rest:
        raise OdeumError(f"'{path}' has no rows below its first line")
    found = _columns(head, options)
    if found is None and len(head) == 2 and options.text_column is None and options.label_column is None:
        distinct = [len({row[side] for _, row in rest if len(row) == 2}) for side in (0, 1)]
        label = 0 if distinct[0] < distinct[1] else 1
        if any(len(row) == 2 and row[label] == head[label] for _, row in rest):  # no header: its label comes again
            columns = ["label", "text"] if label == 0 else ["text", "label"]
            return _pick(path, columns, [(1, head), *rest], ["text"], ["label"])
    if found is None:
        raise OdeumError(_missing(path, head, options))
    return _pick(path, head, rest, *found)


def _reader(path: Path) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)
    try:
        yield from table_rows(iter(rows_of(path)), path.suffix.lower())
    except csv.Error as error:
        raise OdeumError(f"'{path}' is not a well-formed table: {error}") from None


def _columns(head: list[str], options: ClassificationData) -> tuple[list[str], list[str]] | None:
    """The names of the text and label columns, given or recognised."""
    lowered = {name.strip().lower(): name for name in reversed(head)}

    def given(wanted: str | None, known: str, several: bool) -> list[str] | None:
        if wanted is not None:
            names = [wanted] if wanted in head or not several else wanted.split("+")
            return names if all(name in head for name in names) else None
        return next(([lowered[name]] for name in known.split() if name in lowered), None)

    label = given(options.label_column, LABEL_NAMES, several=False)
    text = given(options.text_column, TEXT_NAMES, several=True)
    return None if text is None or label is None else (text, label)


def _missing(path: Path, head: list[str], options: ClassificationData) -> str:
    seen = ", ".join(f"'{name[:40]}'" for name in head[:12])
    asked = [f"'{x}'" for x in (options.text_column, options.label_column) if x is not None]
    what = f"no column {' or '.join(asked)}" if asked else "no recognised text and label column"
    return f"'{path}' has {what}: its columns are {seen}; name them with text_column and label_column"


def _pick(
    path: Path, head: list[str], rows: Iterable[tuple[int, list[str]]], text: list[str], label: list[str]
) -> Rows:
    for name in (*text, *label):
        if name not in head:
            raise OdeumError(f"'{path}' has no column '{name}'; its columns are {', '.join(head)}")
    places, place = [head.index(name) for name in text], head.index(label[0])
    out: Rows = []
    skipped = 0
    for number, row in rows:
        if not any(row):
            continue
        if len(row) <= max(*places, place) or any(row[len(head) :]):
            raise OdeumError(f"row {number} of '{path}' has {len(row)} columns where {len(head)} were expected")
        if row[place].strip():
            out.append((" ".join(row[i] for i in places).strip(), row[place].strip()))
        else:
            skipped += 1
    return _counted(path, out, skipped)


def _counted(path: Path, rows: Rows, skipped: int) -> Rows:
    if skipped:
        notice(f"rows of '{path}' without a label were left out: {skipped}")
    if not rows:
        raise OdeumError(f"'{path}' has no rows with a label")
    return rows


def _read_jsonl(path: Path, options: ClassificationData) -> Rows:
    objects = _objects(path)
    head = list(dict.fromkeys(key for item in objects[:100] for key in item))
    found = _columns(head, options)
    if found is None:
        raise OdeumError(_missing(path, head, options))
    text, (label,) = found
    rows = [(" ".join(str(item[t]) for t in text if item.get(t) is not None), item.get(label)) for item in objects]
    kept = [(t, str(v).strip()) for t, v in rows if v is not None and str(v).strip()]
    return _counted(path, kept, len(rows) - len(kept))


def _objects(path: Path) -> list[dict[str, Any]]:
    """An object a line, or one list of objects."""
    whole = read_text(path).lstrip().startswith("[")
    out = []
    for number, line in enumerate([read_text(path)] if whole else read_lines(path), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except json.JSONDecodeError as error:
            raise OdeumError(f"line {error.lineno if whole else number} of '{path}' is not JSON: {error.msg}") from None
        out += item if whole else [item]
    if not all(isinstance(item, dict) for item in out):
        raise OdeumError(f"'{path}' should hold objects with a text and a label, one a line")
    return out
