"""The tokens of pretrained models: other tokens, with those that stand before or after a text."""

from __future__ import annotations

import json
from collections.abc import Iterable

from odeum.data.tokens import Tokens


class Framed(Tokens):
    """Other tokens with one before and one after each text, as a pretrained classifier reads them."""

    def __init__(self, inner: Tokens, first: int, last: int) -> None:
        self.inner, self.first, self.last = inner, first, last
        self.size, self.joiner = inner.size, inner.joiner

    def encode(self, text: str) -> list[int]:
        return [self.first, *self.inner.encode(text), self.last]

    def encode_all(self, texts: Iterable[str], most: int | None = None) -> list[list[int]]:
        inner = self.inner.encode_all(texts, None if most is None else max(1, most - 2))
        return [[self.first, *row, self.last][:most] for row in inner]

    def decode(self, ids: Iterable[int]) -> str:
        return self.inner.decode(i for i in ids if i not in (self.first, self.last))

    def token(self, number: int) -> str:
        return self.inner.token(number)

    def to_json(self) -> str:
        return json.dumps({"odeum": "framed", "first": self.first, "last": self.last, "inner": self.inner.to_json()})


class Delimited(Tokens):
    """Other tokens, with those at which the texts of a pretrained language model begin and end.

    `told` says whether the first one stands before every prompt, as in Llama, or only where nothing else does (GPT-2).
    """

    def __init__(self, inner: Tokens, start: int | None, told: bool, ends: list[int]) -> None:
        self.inner, self.first, self.told, self.last = inner, start, told and start is not None, ends
        self.size, self.joiner = inner.size, inner.joiner

    @property
    def start(self) -> int | None:
        return self.first

    @property
    def prefix(self) -> list[int]:
        return [self.first] if self.told and self.first is not None else []

    @property
    def ends(self) -> list[int]:
        return self.last

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text)

    def encode_some(self, texts: list[str]) -> list[list[int]]:
        return self.inner.encode_some(texts)

    def decode(self, ids: Iterable[int]) -> str:
        return self.inner.decode(ids)

    def decode_after(self, told: list[int], ids: list[int]) -> str:
        """A word has its blank where another one stands before it, so both are read and the first taken away."""
        before, whole = self.inner.decode(told), self.inner.decode([*told, *ids])
        return whole.removeprefix(before) if before and whole.startswith(before) else self.inner.decode(ids)

    def token(self, number: int) -> str:
        return self.inner.token(number)

    def to_json(self) -> str:
        record = {"odeum": "delimited", "start": self.first, "told": self.told, "ends": self.last}
        return json.dumps({**record, "inner": self.inner.to_json()})
