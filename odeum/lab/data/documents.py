"""Running text from tables: a text column or the turns of a chat, one document per row. Does not import torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import read_text
from odeum.lab.data.table_files import (
    NUMBER_NAMES,
    Table,
    find_label,
    find_text,
    json_objects,
    look_at_table,
    open_table,
)

TURNS = ("messages", "conversations", "conversation", "dialog", "dialogue", "turns")
"""JSON columns with the turns of a chat"""
SPEAKER, WORDS = ("role", "from", "speaker", "author"), ("content", "value", "text", "utterance")
"""field names of a turn"""
PROMPTS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "input", "output"),
    ("instruction", "output"),
)
"""columns that together form one exchange"""


def is_json(path: Path) -> bool:
    """Whether the file extension is one of JSON."""
    return path.suffix.lower() in (".jsonl", ".json")


def holds_documents(path: Path) -> bool:
    """Whether a table contains running text: a chat, or a text column without a label column."""
    try:
        table = look_at_table(path)
    except OdeumError:  # the reader of that kind of data reports it
        return False
    if table.first is not None and (_turns(table.first) or _exchange(table.first)):
        return True
    columns = find_text(table.head, None)
    numbers = any(name.strip().lower().rpartition(".")[2] in NUMBER_NAMES for name in table.head)
    free = columns is not None and find_label(table.head, None) is None and not numbers
    return free and (len(table.head) == 1 or is_json(path))


def read_documents(path: Path) -> str:
    """The text of all rows; a chat becomes lines `role: words`."""
    table = open_table(path)
    if table.first is not None and (_turns(table.first) or _exchange(table.first)):
        notice(f"'{path}' contains chats: read as running text, one line per turn")
        return "\n\n".join(filter(None, (_chat(item) for _, item in json_objects(path)))) + "\n"
    columns = find_text(table.head, None)
    if columns is None and is_json(path):
        raise OdeumError(
            f"'{path}' has no column of text: its columns are {table.columns()}; name the column of the text "
            "'text', or give messages with role and content"
        )
    if columns is None:
        return read_text(path)
    notice(f"'{path}' is a table: its column '{columns[0]}' is read as running text")
    return "\n\n".join(_texts(table, columns)) + "\n"


def _texts(table: Table, columns: Sequence[str]) -> list[str]:
    places = table.places(columns)
    return [text for number, row in table.checked(places) if (text := table.text(number, row, places))]


def _turns(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The turns of a chat; empty if the row is none."""
    for name in TURNS:
        turns = item.get(name)
        if isinstance(turns, list) and turns and all(isinstance(turn, dict) for turn in turns):
            return turns if any(word in turns[0] for word in WORDS) else []
    return []


def _exchange(item: Mapping[str, Any]) -> tuple[str, ...]:
    return next((names for names in PROMPTS if all(isinstance(item.get(name), str) for name in names)), ())


def _chat(item: Mapping[str, Any]) -> str:
    if turns := _turns(item):
        speakers = [next((str(turn[name]) for name in SPEAKER if name in turn), "") for turn in turns]
        words = [next((_plain(turn[name]) for name in WORDS if name in turn), "") for turn in turns]
        return "\n".join(f"{who}: {what}" if who else what for who, what in zip(speakers, words, strict=True))
    return "\n".join(f"{name}: {item[name]}" for name in _exchange(item) if item[name])


def _plain(value: Any) -> str:
    """The text of a turn; content in several pieces is joined."""
    if isinstance(value, list):
        return " ".join(str(piece.get("text", "")) if isinstance(piece, dict) else str(piece) for piece in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
