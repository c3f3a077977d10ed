"""Tokenizers: words, characters, bytes, or byte-level BPE, learned from the training split."""

from __future__ import annotations

import json
import re
import threading
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.storage import Damaged, read_bytes
from odeum.tokenizer_files import library_errors, read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN, END, PAD = "<unk>", "<eos>", "<pad>"
LONGEST_PIECE = 1 << 16  # characters that are tokenised at once, so that a file of one long line fits
BATCH = 1 << 20  # characters of many lines that are tokenised at once
MOST_CACHED = 1 << 23  # characters of words whose tokens are kept
_BLANK = re.compile(r"(?<=[^\s]) (?=[^\s/])")  # between two words, but not within <br />
PIECES = r"<br />|[^\W_]+(?:'\w+)?|[^\w\s]|_"
"""regular expression of words and punctuation"""


def _words(text: str) -> list[str]:
    """Splits a text in lower case at blanks, which no piece but `<br />` contains; most words come again and again."""
    text = text.lower()
    if "<br />" not in text:
        return text.split()
    first, *others = text.split("<br />")
    return [*first.split(), *(word for other in others for word in ("<br />", *other.split()))]


def _lines(text: str) -> list[str]:
    """Splits at blanks, with <eos> at the end of each line: the word level of the papers."""
    out: list[str] = []
    for line in text.split("\n"):
        out += line.split()
        out.append(END)
    return out[:-1]


def _at_blanks(text: str) -> list[str]:
    """Splits a text at single blanks: the first word with its indent behind a blank, the others, and a line end.

    The first word is "" if white space before the second one keeps it from being a word.
    """
    ended = text[-1:] == "\n" and not text[-2:-1].isspace() and len(text) > 1
    body = text[:-1] if ended else text
    if not body[:1].isspace():
        words = body.split(" ")
    else:
        stripped = body.lstrip()
        words = stripped.split(" ")
        words[0] = body[: len(body) - len(stripped)] + words[0]
    words[0] = "" if len(words) > 1 and words[0][-1:].isspace() else " " + words[0]
    if ended:
        words.append(" \n")
    return words


def text_pieces(text: str) -> Iterator[str]:
    """Yields a long text in pieces, cut between words, so that tokens are not split.

    Where there is no blank for very long, the cut falls anywhere.
    """
    begin = 0
    while len(text) - begin > LONGEST_PIECE:
        blank = _BLANK.search(text, begin + LONGEST_PIECE // 2, begin + LONGEST_PIECE)
        end = blank.start() if blank else begin + LONGEST_PIECE
        yield text[begin:end]
        begin = end
    yield text[begin:]


def batched(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yields texts in order, in batches that fit into memory."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) + 64
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_PIECES = re.compile(PIECES)
SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "words": _lines,
    "characters": list,
    "pieces": lambda text: _PIECES.findall(text.lower()),  # words and punctuation, for classification
    "symbols": str.split,
}
JOINERS = {"words": " ", "characters": "", "pieces": " ", "symbols": " "}


class Tokens(ABC):
    """Base class of tokenizers."""

    size: int
    joiner: str = ""
    """text between two tokens when a text is decoded"""

    @abstractmethod
    def encode(self, text: str) -> list[int]: ...

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str: ...

    @abstractmethod
    def to_json(self) -> str: ...

    @abstractmethod
    def token(self, number: int) -> str:
        """Returns the text of one token."""

    def unknown_share(self, text: str) -> float:
        """Returns the fraction of tokens of a text that are not in the vocabulary."""
        return 0.0

    @property
    def start(self) -> int | None:
        """The token before the first one of a text (an end of line), or None."""
        return next(iter(self.encode("\n")), None)

    @property
    def prefix(self) -> list[int]:
        """Tokens before a prompt."""
        return [] if self.start is None else [self.start]

    @property
    def ends(self) -> list[int]:
        """Tokens that end a text."""
        return []

    def decode_after(self, context: list[int], ids: list[int]) -> str:
        """Returns the text of `ids`, which follow the tokens `context`."""
        return self.decode(ids)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Encodes several texts at once."""
        return [self.encode(text) for text in texts]

    def encode_rows(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes several texts at once, end to end. Returns the ids and the number of ids of each text."""
        rows = self.encode_batch(texts)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths

    def encode_all(self, texts: Iterable[str], most: int | None = None) -> Iterator[list[int]]:
        """Yields the first `most` tokens of each text (None: all)."""
        for batch in batched(texts):
            short = iter(self.encode_batch([text for text in batch if len(text) <= LONGEST_PIECE]))
            for text in batch:
                yield next(short)[:most] if len(text) <= LONGEST_PIECE else self._beginning(text, most)

    def _beginning(self, text: str, most: int | None) -> list[int]:
        ids: list[int] = []
        for piece in text_pieces(text):
            ids += self.encode(piece)
            if most is not None and len(ids) >= most:
                break
        return ids[:most]

    def stream(self, texts: Iterable[str]) -> Tensor:
        """Returns all texts as one row of ids, encoded line by line so that large corpora fit into memory."""
        out = array("i")
        lines = (line for text in texts for line in re.split(r"(?<=\n)", text) if line)
        cut = ((line,) if len(line) <= LONGEST_PIECE else text_pieces(line) for line in lines)
        for batch in batched(chain.from_iterable(cut)):
            out.frombytes(self.encode_rows(batch)[0].tobytes())
        return torch.from_numpy(np.frombuffer(out, dtype=np.int32).copy()) if out else torch.empty(0, dtype=torch.int32)

    def files(self) -> dict[str, bytes]:
        """Returns the files that `load_tokens` reads, by name."""
        return {"tokenizer.json": self.to_json().encode()}


class _Known(dict[str, list[int]]):
    """The ids of words, computed at the first use of a word."""

    def __init__(self, tokens: Listed) -> None:
        self.tokens, self.characters = tokens, 0

    def __missing__(self, word: str) -> list[int]:
        ids = self[word] = self.tokens.numbered(self.tokens.split(word))
        self.characters += len(word)
        return ids


class Listed(Tokens):
    """A vocabulary given as a list: words, characters, pieces or symbols."""

    def __init__(self, kind: str, entries: list[str]) -> None:
        self.kind, self.entries, self.size = kind, entries, len(entries)
        self.split, self.joiner = SPLITTERS[kind], JOINERS[kind]
        self.index = {entry: i for i, entry in enumerate(entries)}
        self.unknown = next((self.index[name] for name in (UNKNOWN, "[UNK]") if name in self.index), 0)
        self._known = _Known(self)

    @classmethod
    def learn(cls, kind: str, texts: Iterable[str], largest: int | None, first: tuple[str, ...] = ()) -> Listed:
        """Learns a vocabulary: `first`, then entries by decreasing frequency, as the adaptive softmax needs."""
        counts: Counter[str] = Counter()
        pieces = (piece for text in texts for piece in text_pieces(text))
        if kind == "pieces":
            words = Counter(chain.from_iterable(map(_words, pieces)))
            for word, count in words.items():
                for entry in SPLITTERS[kind](word):
                    counts[entry] += count
        else:
            for piece in pieces:
                counts.update(SPLITTERS[kind](piece))
        if kind in ("words", "characters") and not counts[UNKNOWN]:
            counts[UNKNOWN] = 0
        ranked = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if word not in first]
        if largest is not None and largest < len(first) + 2:
            raise OdeumError(f"vocabulary of {kind} must be at least {len(first) + 2} tokens, got {largest}")
        if largest is not None and len(first) + len(ranked) > largest:
            ranked = ranked[: largest - len(first)]
            if UNKNOWN not in first and UNKNOWN not in ranked:
                ranked[-1] = UNKNOWN
        return cls(kind, [*first, *ranked])

    def encode(self, text: str) -> list[int]:
        if self.kind != "pieces":
            return self.numbered(self.split(text))
        if self._known.characters > MOST_CACHED:
            self._known = _Known(self)
        return list(chain.from_iterable(map(self._known.__getitem__, _words(text))))

    def numbered(self, parts: list[str]) -> list[int]:
        """Returns the ids of entries."""
        get, unknown = self.index.get, self.unknown
        return [get(part, unknown) for part in parts]

    def unknown_share(self, text: str) -> float:
        words = self.split(text)
        return sum(word not in self.index for word in words) / max(1, len(words))

    def decode(self, ids: Iterable[int]) -> str:
        words = [self.entries[i] for i in ids]
        if self.kind == "words":
            return re.sub(r" ?<eos> ?", "\n", self.joiner.join(words))
        return self.joiner.join("\N{REPLACEMENT CHARACTER}" if w == UNKNOWN else w for w in words if w != PAD)

    def token(self, number: int) -> str:
        return self.entries[number]

    def to_json(self) -> str:
        return json.dumps({"odeum": self.kind, "entries": self.entries}, ensure_ascii=False)


class Bytes(Tokens):
    """UTF-8 bytes after a padding token; every text can be encoded."""

    size = 257

    def encode(self, text: str) -> list[int]:
        return [byte + 1 for byte in text.encode()]

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i - 1 for i in ids if i > 0).decode(errors="replace")

    def token(self, number: int) -> str:
        return chr(number - 1) if number else PAD

    def to_json(self) -> str:
        return json.dumps({"odeum": "bytes"})


class _Words:
    """The tokens of words, numbered: word n has `lengths[n]` of the `ids`, from `starts[n]` on.

    Number 0 stands for a word that cannot be encoded alone, and has no tokens.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.ids, self.lengths, self.starts = np.empty(0, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.characters = 0

    def encode(
        self, split: list[list[str]], texts: list[str], encoded: Callable[[list[str]], list[list[int]]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of texts that `_at_blanks` split, end to end, and the number of ids of each text."""
        words = list(chain.from_iterable(split))
        numbers = np.fromiter(map(self.numbers.get, words, repeat(-1)), np.int64, len(words))
        if (unknown := np.flatnonzero(numbers < 0)).size:
            names = [words[place] for place in unknown.tolist()]
            self._learn(set(names), encoded)
            numbers[unknown] = list(map(self.numbers.__getitem__, names))
        counts = np.fromiter(map(len, split), np.int64, len(split))
        ends = counts.cumsum()
        if not numbers.all():
            whole = np.unique(np.searchsorted(ends, np.flatnonzero(numbers == 0), side="right"))
            is_whole = np.zeros(len(split), bool)
            is_whole[whole] = True
            numbers[np.repeat(is_whole, counts)] = 0
            numbers[(ends - counts)[whole]] = self._add([texts[row] for row in whole.tolist()], encoded)
        lengths = self.lengths[numbers]
        places = np.repeat(self.starts[numbers] - lengths.cumsum() + lengths, lengths) + np.arange(lengths.sum())
        return self.ids[places], np.add.reduceat(lengths, ends - counts)

    def _learn(self, words: set[str], encoded: Callable[[list[str]], list[list[int]]]) -> None:
        """Number words as `_at_blanks` gives them: a blank marks the first one, whose indent belongs to it."""
        alone = [
            word for word in words if word[:1] == " " or (word and not word[0].isspace() and not word[-1].isspace())
        ]
        self.numbers.update(dict.fromkeys(words, 0))
        numbers = self._add([word[1:] if word[0] == " " else " " + word for word in alone], encoded)
        self.numbers.update(zip(alone, numbers.tolist(), strict=True))

    def _add(self, texts: list[str], encoded: Callable[[list[str]], list[list[int]]]) -> np.ndarray:
        """Returns new numbers of these texts."""
        rows = encoded(texts)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        starts = len(self.ids) + lengths.cumsum() - lengths
        self.ids, first = np.concatenate((self.ids, ids)), len(self.lengths)
        self.lengths, self.starts = np.concatenate((self.lengths, lengths)), np.concatenate((self.starts, starts))
        self.characters += sum(map(len, texts))
        return np.arange(first, first + len(texts))


_encoding = threading.Lock()


class Bpe(Tokens):
    """Byte-level BPE of the `tokenizers` library; every text can be encoded and decoded exactly."""

    def __init__(self, tokenizer: Tokenizer, size: int = 0) -> None:
        self.tokenizer = tokenizer
        self.size = max(size, tokenizer.get_vocab_size())
        self._words = _Words()

    @classmethod
    def learn(cls, texts: Iterable[str], size: int, first: tuple[str, ...] = (), prefix_space: bool = False) -> Bpe:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
        tokenizer.decoder = decoders.ByteLevel()
        if size < 256 + len(first):
            raise OdeumError(f"vocabulary of BPE must be at least {256 + len(first)}, one token per byte, got {size}")
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(first),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator((piece for text in texts for piece in text_pieces(text)), trainer)
        return cls(tokenizer)

    def encode(self, text: str) -> list[int]:
        with library_errors():
            return self.tokenizer.encode(text, add_special_tokens=False).ids

    def unknown_share(self, text: str) -> float:
        unknown = getattr(self.tokenizer.model, "unk_token", None)
        number = None if unknown is None else self.tokenizer.token_to_id(unknown)
        ids = [] if number is None else self.encode(text)
        return sum(token == number for token in ids) / max(1, len(ids))

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        if not self._by_words or not texts:
            return self._encoded(texts)
        ids, lengths = self.encode_rows(texts)
        flat, ends = ids.tolist(), lengths.cumsum().tolist()
        return [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]

    def encode_rows(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes several texts at once: where that gives the same tokens by words, since most words repeat."""
        if not self._by_words or not texts:
            return super().encode_rows(texts)
        split = list(map(_at_blanks, texts))
        with _encoding:
            if self._words.characters > MOST_CACHED:
                self._words = _Words()
            return self._words.encode(split, texts, self._encoded)

    @cached_property
    def _by_words(self) -> bool:
        """Whether the tokens of a text are those of its words, one after the other.

        They are if byte-level BPE alone makes them: its pieces begin at every single blank between two words.
        """
        content = json.loads(self.tokenizer.to_str())
        pieces, model = content["pre_tokenizer"] or {}, content["model"]
        alone = (pieces.get("type"), pieces.get("add_prefix_space")) == ("ByteLevel", False)
        alone &= pieces.get("use_regex", False) and content["normalizer"] is None and not model.get("dropout")
        for token in content["added_tokens"]:
            alone &= not (token["lstrip"] or token["rstrip"] or any(map(str.isspace, token["content"])))
        return alone

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        with library_errors():
            return [e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        with library_errors():
            return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def token(self, number: int) -> str:
        return self.tokenizer.id_to_token(number) or ""

    def to_json(self) -> str:
        return self.tokenizer.to_str()


def load_tokens(directory: Path) -> Tokens:
    """Loads the tokenizer that `Tokens.files` describes from a directory."""
    path = directory / "tokenizer.json"
    if not path.exists():
        raise OdeumError(f"'{directory}' has no tokenizer.json, so it is not a complete run of Odeum")
    try:
        return _tokens(read_bytes(path).decode("utf-8"), path)
    except OdeumError:
        raise
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise Damaged(f"'{path}' is damaged: it is not a tokenizer ({error})") from None


def _tokens(text: str, path: Path) -> Tokens:
    content = json.loads(text)
    if content.get("odeum") == "framed":
        return Framed(_tokens(content["inner"], path), int(content["first"]), int(content["last"]))
    if content.get("odeum") == "delimited":
        start, ends = content["start"], [int(end) for end in content["ends"]]
        inner = _tokens(content["inner"], path)
        return Delimited(inner, None if start is None else int(start), bool(content["told"]), ends)
    if content.get("odeum") == "bytes":
        return Bytes()
    if "odeum" in content:
        entries = content["entries"]
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise ValueError("its entries are not strings")
        return Listed(content["odeum"], entries)
    return Bpe(*read_tokenizer(text, path))


class Framed(Tokens):
    """Wraps tokens with one token before and one after each text, as pretrained classifiers expect."""

    def __init__(self, inner: Tokens, first: int, last: int) -> None:
        self.inner, self.first, self.last = inner, first, last
        self.size, self.joiner = inner.size, inner.joiner

    def encode(self, text: str) -> list[int]:
        return [self.first, *self.inner.encode(text), self.last]

    def unknown_share(self, text: str) -> float:
        return self.inner.unknown_share(text)

    def encode_rows(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes several texts at once, end to end. Returns the ids and the number of ids of each text."""
        rows = self.encode_batch(texts)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths

    def encode_all(self, texts: Iterable[str], most: int | None = None) -> Iterator[list[int]]:
        for row in self.inner.encode_all(texts, None if most is None else max(1, most - 2)):
            yield [self.first, *row, self.last][:most]

    def decode(self, ids: Iterable[int]) -> str:
        return self.inner.decode(i for i in ids if i not in (self.first, self.last))

    def token(self, number: int) -> str:
        return self.inner.token(number)

    def to_json(self) -> str:
        return json.dumps({"odeum": "framed", "first": self.first, "last": self.last, "inner": self.inner.to_json()})


class Delimited(Tokens):
    """Wraps tokens with the start and end tokens of a pretrained language model.

    `told` (the key in saved files) is whether the start token precedes every prompt, as in Llama, or only an empty one
    (GPT-2).
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

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return self.inner.encode_batch(texts)

    def unknown_share(self, text: str) -> float:
        return self.inner.unknown_share(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self.inner.decode(ids)

    def decode_after(self, context: list[int], ids: list[int]) -> str:
        """Decodes both parts and removes the first, so that the blank between two words is kept."""
        prefix, text = self.inner.decode(context), self.inner.decode([*context, *ids])
        return text.removeprefix(prefix) if prefix and text.startswith(prefix) else self.inner.decode(ids)

    def token(self, number: int) -> str:
        return self.inner.token(number)

    def to_json(self) -> str:
        record = {"odeum": "delimited", "start": self.first, "told": self.told, "ends": self.last}
        return json.dumps({**record, "inner": self.inner.to_json()})
