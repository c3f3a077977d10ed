"""Causal language modelling."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import platform
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from odeum.decode.choice import Choice
from odeum.errors import OdeumError
from odeum.interop.ctranslate2 import CTranslate2
from odeum.lab.data import corpora
from odeum.lab.data.progress import report_stage
from odeum.lab.data.ragged import Ragged
from odeum.lab.data.splits import mixed, refuse_fold
from odeum.lab.data.understanding import Origins, sample, shortened
from odeum.lab.tasks.base import (
    HELD_OUT,
    UNKNOWN_SAMPLE,
    Batch,
    Groups,
    Task,
    evaluating,
    even_batches,
    generator,
    joined,
    move,
    perplexity,
)
from odeum.lab.tasks.evidence import Evidence
from odeum.lab.tasks.kind import DATA_SETS, SHORTEST_WINDOW, Data
from odeum.lab.tasks.language import LanguageData
from odeum.lab.train.settings import Training
from odeum.models.base import IGNORE
from odeum.models.language import LanguageModel
from odeum.models.settings import PRESETS, Language
from odeum.storage import checksum, expanded
from odeum.tokens import LONGEST_PIECE, Bpe, Listed, Tokens, load_tokens

# sized for a laptop: WikiText-2 below 300 test perplexity in 20 minutes
RECIPES: dict[str, Training] = {
    "wikitext2": Training(epochs=4, batch_size=8, weight_decay=0.1),
    "wikitext103": Training(epochs=1, batch_size=16, weight_decay=0.05),
    "other": Training(epochs=4, batch_size=8, weight_decay=0.1),
}
ADAPTIVE_FROM = 10_000  # a larger vocabulary gets adaptive input and softmax
CHARACTERS_BELOW = 200_000  # bytes of training text; more gets BPE
WINDOWS_AT_ONCE = 16  # windows of an evaluation at once
SAMPLE_LENGTH = 128  # tokens of a window that is looked at
ENOUGH_DOCUMENTS = 32  # effective number of documents from which on windows are grouped by document
BLOCKS = 64  # groups of neighbouring windows, where documents are fewer
_ARTICLE = re.compile(r"(?m)^(?= = [^=\n][^\n]* = $)")  # before the title of an article of WikiText

Sampling = tuple[int, Choice, int, bool]  # number of tokens, how each is drawn, seed, whether a cache is used


class LanguageTask(Task):
    """One long sequence of tokens, read in windows."""

    metric: ClassVar[str] = "perplexity"
    higher_is_better: ClassVar[bool] = False
    quick: int = 64  # windows
    options: LanguageData

    def __init__(
        self,
        name: str,
        options: LanguageData,
        tokens: Tokens,
        length: int,
        streams: dict[str, Tensor] | None = None,
        words: dict[str, int] | None = None,
        source: Sequence[str] = (),
        bytes_of: dict[str, int] | None = None,
    ) -> None:
        super().__init__(name, options, source)
        self.tokens, self.length = tokens, length
        self.streams, self.words = streams or {}, words or {}
        self.bytes_of = bytes_of or {}
        """bytes of each held-out part; empty if the tokens do not spell its text"""
        self.chosen: frozenset[int] | None = None
        """windows of the held-out parts to evaluate, in the order of `windows` (none: all)"""
        self.lines: dict[str, Tensor] = {}
        """lengths of the lines of each part, where an evaluation reads each line alone"""
        self.documents: dict[str, Tensor] = {}
        """length in tokens and number of each document of each part: a file, or an article of WikiText; pieces of one
        document have one number"""
        self.context = length // 2 if options.context is None else options.context
        if not self.context < length:
            raise OdeumError(f"context must be below length {length}, not {self.context}")

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: LanguageData, like: Any = None) -> LanguageTask:
        known = str(data) in DATA_SETS
        origins: Origins = {}
        paths = [expanded(p) for p in (data, *more)]
        if known:
            refuse_fold(options.fold)
            corpus = corpora.named_corpus(str(data), options.megabytes)
        else:
            corpus = corpora.read_corpus(paths, options.fold, origins)
        if options.held_out_megabytes is not None:
            most = round(1e6 * options.held_out_megabytes)
            corpus = {part: texts if part == "train" else _beginning(texts, most) for part, texts in corpus.items()}
        wiki = str(data).startswith("wikitext") if known else corpora.is_tokenised(paths)
        size = sum(map(len, corpus["train"]))
        report_stage("learning the tokens", size if like is None else 0)
        tokens = learn_corpus_tokens(options, corpus["train"], wiki) if like is None else like.tokens
        report_stage("encoding", size)
        none = torch.empty(0, dtype=torch.int32)  # of a file that is too short to be cut into parts
        rows = {
            part: [tokens.stream([each]) if each else none for each in _documents(texts, wiki)]
            for part, texts in corpus.items()
        }
        streams = {part: torch.cat([none, *each]) for part, each in rows.items()}
        words = {part: sum(_words(text) for text in texts) for part, texts in corpus.items() if part != "train"}
        name = str(data) if known else paths[0].resolve().name
        length = min(options.length, len(streams["train"]) // 16, *([] if like is None else [like.length]))
        if length < SHORTEST_WINDOW or any(len(stream) < 2 for stream in streams.values()):
            counts = ", ".join(f"{part} {len(stream)}" for part, stream in streams.items())
            raise OdeumError(
                f"'{data}' contains too little text for a language model: {counts} tokens; at least "
                f"{16 * SHORTEST_WINDOW} to train on and 2 in each other part are needed"
            )
        held = {part: texts for part, texts in corpus.items() if part != "train"}
        spelled = all(_without_blanks([tokens.decode(streams[part].tolist())]) == _without_blanks(texts)
                      for part, texts in held.items())  # fmt: skip
        sizes = {part: sum(len(text.encode()) for text in texts) for part, texts in held.items()} if spelled else {}
        task = cls(name, options, tokens, length, streams, words, [str(p) for p in (data, *more)], sizes)
        task.origins = origins
        task.documents = {
            part: torch.tensor([[len(row), number] for number, row in enumerate(each)]).view(-1, 2)
            for part, each in rows.items()
        }
        if data == "python":
            digest = checksum("".join(itertools.chain(*corpus.values())).encode())[:12]
            task.note(
                f"the text is that of Python {platform.python_version()} (checksum {digest}); others have other text"
            )
        if options.lines:
            task._cut_into_lines(corpus)
        lines = [line for text in corpus["train"][:3] for line in text[:100_000].splitlines() if line.strip()]
        task.examples = tuple(shortened(line) for line in sample(lines))
        return task

    def _cut_into_lines(self, corpus: Mapping[str, Iterable[str]]) -> None:
        """Line up the streams by line; lines of less than two tokens have nothing to predict."""
        most = self.length + (self.tokens.start is None)
        for part, texts in corpus.items():
            encoded = self.tokens.encode_all((line for text in texts for line in text.splitlines()), most)
            rows = Ragged(row for row in encoded if len(row) > 1)
            if not len(rows):
                raise OdeumError(f"the {part} part has no line of two tokens; leave out --data.lines")
            self.streams[part], self.lines[part] = rows.flat, rows.lengths
        self.bytes_of = {}

    def test_on_everything(self) -> None:
        """Put all text into the test part, for a model that was trained on none of it."""
        self.streams["test"] = torch.cat(list(self.streams.values()))
        every = torch.cat(list(self.documents.values()))
        if len({len(each) for each in self.documents.values()}) > 1:  # else each file was cut into the three parts
            every[:, 1] = torch.arange(len(every))
        self.documents["test"] = every
        if self.lines:
            self.lines["test"] = torch.cat(list(self.lines.values()))
        text = self.tokens.decode(self.streams["test"].tolist())
        self.words["test"] = _words(text)
        if self.bytes_of:
            self.bytes_of["test"] = len(text.encode())

    @property
    def has_data(self) -> bool:
        return bool(self.streams)

    def sizes(self) -> dict[str, int]:
        """Number of windows; those of the held-out parts overlap."""
        stride = self.length - self.context
        held = {part: -(-max(1, len(s) - self.context) // stride) for part, s in self.streams.items()}
        held |= {part: len(lengths) for part, lengths in self.lines.items()}
        return held | {"train": len(self.streams["train"]) // self.length}

    def about(self) -> list[str]:
        counts = "/".join(str(len(self.streams[part])) for part in ("train", *HELD_OUT))
        return [f"{counts} tokens, vocabulary {self.tokens.size}, windows of {self.length}"]

    def facts(self) -> dict[str, Any]:
        return {"vocabulary": self.tokens.size, "length": self.length}

    def model(self) -> Language:
        base = PRESETS["language_small"]
        assert isinstance(base, Language)
        embedding = "adaptive" if self.tokens.size > ADAPTIVE_FROM else "tied"
        return dataclasses.replace(base, embedding=embedding, **self.facts())

    def training(self) -> Training:
        return self.with_default_rate(RECIPES.get(self.name, RECIPES["other"]), self.model())

    def identity(self) -> Iterator[Tensor | str]:
        yield self.tokens.to_json()
        yield from self.streams.values()

    def plan(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        """Consecutive windows in random order, with another offset in each epoch."""
        random = generator(seed, epoch)
        offset = torch.randint(0, self.length, (1,), generator=random)
        count = (len(self.streams["train"]) - 1) // self.length - 1
        return [rows * self.length + offset for rows in even_batches(max(1, count), batch_size, random)]

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        places = rows[:, None] + torch.arange(self.length + 1)
        window = self.streams["train"][places.clamp(max=len(self.streams["train"]) - 1)].long()
        return {"input_ids": window[:, :-1].contiguous(), "labels": window[:, 1:].contiguous()}

    def windows(self, split: str, limit: int | None = None) -> Iterator[Batch]:
        """Each token of a part once as a label, with at least `context` tokens before it (Baevski & Auli 2019)."""
        if self.lines:
            yield from self._single_lines(split, limit)
            return
        labels = self.streams[split].long()
        if (start := self.tokens.start) is None:  # the first token follows nothing
            inputs, labels = labels[:-1], labels[1:]
        else:
            inputs = torch.cat([torch.tensor([start]), labels[:-1]])
        begins = self._begins(len(labels))[:limit]
        if self.chosen is not None:
            begins = [begin for number, begin in enumerate(begins) if number in self.chosen]
        whole = [b for b in begins if b + self.length <= len(labels)]
        groups = [whole[i : i + WINDOWS_AT_ONCE] for i in range(0, len(whole), WINDOWS_AT_ONCE)] + [
            [b] for b in begins[len(whole) :]
        ]
        for group in groups:
            places = torch.tensor(group)[:, None] + torch.arange(min(self.length, len(labels) - group[0]))
            target = labels[places].clone()
            target[torch.tensor(group) > 0, : self.context] = IGNORE
            yield {"input_ids": inputs[places], "labels": target}

    def _begins(self, labels: int) -> list[int]:
        """The first label of each window over so many labels."""
        return list(range(0, max(1, labels - self.context), self.length - self.context))

    def _single_lines(self, split: str, limit: int | None) -> Iterator[Batch]:
        """The lines of a part, those of one length together."""
        rows = self.streams[split].long().split(self.lines[split].tolist())
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))[:limit]
        chosen = [row for number, row in enumerate(order) if self.chosen is None or number in self.chosen]
        for _, group in itertools.groupby(chosen, key=lambda row: len(rows[row])):
            for labels in torch.stack([rows[row] for row in group]).split(WINDOWS_AT_ONCE):
                if (start := self.tokens.start) is None:  # the first token follows nothing
                    yield {"input_ids": labels[:, :-1], "labels": labels[:, 1:].contiguous()}
                else:
                    first = torch.full((len(labels), 1), start)
                    yield {"input_ids": torch.cat([first, labels[:, :-1]], 1), "labels": labels.clone()}

    def example_keys(self, split: str) -> list[str]:
        """A hash of each window."""
        self.require_data(split if split in HELD_OUT else None)
        rows = (row for batch in self.windows(split) for row in batch["input_ids"])
        return [checksum(row.contiguous().numpy().tobytes()) for row in rows]

    def example_groups(self, split: str) -> Groups | None:
        """The document of each window, that of its middle label; None where each line is an example.

        Where there are few documents, or most windows lie in a few of them: blocks of neighbouring windows.
        """
        self.require_data(split if split in HELD_OUT else None)
        if self.lines:
            return None
        missing = int(self.tokens.start is None)
        begins = torch.tensor(self._begins(len(self.streams[split]) - missing))
        middle = (begins + (self.context + self.length) // 2 + missing).clamp(max=len(self.streams[split]) - 1)
        lengths, numbers = self.documents[split].unbind(1)
        documents = numbers[torch.searchsorted(lengths.cumsum(0), middle, right=True)]
        counts = documents.bincount().double()
        if float(counts.sum() ** 2 / counts.square().sum()) >= ENOUGH_DOCUMENTS:
            return Groups("documents", documents)
        return Groups(
            "blocks of neighbouring windows", torch.arange(len(begins)) * min(BLOCKS, len(begins)) // len(begins)
        )

    def select(self, split: str, rows: Tensor) -> LanguageTask:
        """A copy whose held-out parts are these windows of a part."""
        new = copy.copy(self)
        new.chosen, new.bytes_of = frozenset(rows.tolist()), {}
        new.streams = {**self.streams, **dict.fromkeys(HELD_OUT, self.streams[split])}
        if self.lines:
            new.lines = {**self.lines, **dict.fromkeys(HELD_OUT, self.lines[split])}
        new.words = {**self.words, **dict.fromkeys(HELD_OUT, self.words.get(split, 0))}
        return new

    def examine(
        self, model: nn.Module, split: str, device: Any = None, limit: int | None = None, single: bool = True
    ) -> tuple[dict[str, float], Evidence | None]:
        """Mean loss per token, perplexity per token and per word, bits per byte, and the mean loss of each window.

        `limit` caps the number of windows. Bits per byte compare models with different tokens; they are left out where
        tokens such as <unk> do not spell the text.
        """
        self.require_data(split)
        each: list[Tensor] = []
        total, count = 0.0, 0
        with evaluating(model, device) as place:
            for batch in self.windows(split, limit):
                scored = int((batch["labels"] != IGNORE).sum())
                batch = move(batch, place)
                if not single or not isinstance(model, LanguageModel):
                    loss = model(**batch, only_loss=True).loss
                else:
                    x, labels = model.hidden(batch["input_ids"]), batch["labels"]
                    loss = model.embedding.loss(x, labels)
                    rows = zip(x.split(1), labels.split(1), strict=True)
                    each.append(torch.stack([model.embedding.loss(*row) for row in rows]).cpu())
                total += loss.item() * scored
                count += scored
        loss = total / count
        words_per_token = self.words[split] / len(self.streams[split])
        scores = {"loss": loss, "perplexity": perplexity(loss), "word_perplexity": perplexity(loss / words_per_token)}
        if split in self.bytes_of:
            scores["bits_per_byte"] = loss / math.log(2) * len(self.streams[split]) / self.bytes_of[split]
        return scores, Evidence(torch.cat(each)) if each else None

    def sample(self, count: int, split: str = "test") -> Batch:
        """Windows of at most 128 tokens, spread evenly over a part."""
        self.require_data(split)
        if self.chosen is not None or self.lines:
            windows = [batch["input_ids"][:, :SAMPLE_LENGTH] for batch in self.windows(split)]
            longest = max(window.shape[1] for window in windows)
            ids = torch.cat([window for window in windows if window.shape[1] == longest])
            return {"input_ids": ids[mixed(len(ids), count)]}
        stream = self.streams[split].long()
        length = min(self.length, SAMPLE_LENGTH, len(stream))
        begins = torch.linspace(0, len(stream) - length, min(count, max(1, len(stream) // length))).long()
        return {"input_ids": stream[begins[:, None] + torch.arange(length)]}

    def as_batch(self, model: nn.Module, inputs: Sequence[Any]) -> Batch:
        """Texts padded on the right, with a mask where lengths differ."""
        batches = [b | {"attention_mask": torch.ones_like(b["input_ids"])} for b in self.input_batches(inputs)]
        if not batches:
            raise OdeumError("there is no input; give at least one")
        batch = joined(batches)
        return batch if not bool(batch["attention_mask"].all()) else {"input_ids": batch["input_ids"]}

    def input_batches(self, inputs: Iterable[str]) -> Iterator[Batch]:
        """One text per batch, without padding."""
        for text in inputs:
            yield {"input_ids": torch.tensor([self._prompt(text)])}

    def predict(
        self,
        model: Any,
        inputs: Iterable[str],
        samples: int = 1,
        stop: Sequence[str] = (),
        max_new_tokens: int = 100,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = 0.95,
        seed: int = 0,
        use_cache: bool = True,
        first: int = 0,
        **_: Any,
    ) -> list[str]:
        """Continuations of each prompt: `samples` of the first, then of the second, and so on.

        A continuation ends before the first `stop` string in it. `first` is the place of the first prompt among all
        that a seed is for.
        """
        _check_samples(samples, max_new_tokens, temperature, stop)
        sampling = (max_new_tokens, Choice(temperature, top_k, top_p).check(), seed, use_cache)
        return [
            self._continuation(model, prompt, (index, sample), sampling, stop)
            for index, prompt in enumerate(inputs, first)
            for sample in range(samples)
        ]

    def stream(
        self,
        model: Any,
        prompt: str,
        sample: int = 0,
        stop: Sequence[str] = (),
        max_new_tokens: int = 100,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = 0.95,
        seed: int = 0,
        use_cache: bool = True,
        first: int = 0,
    ) -> Iterator[str]:
        """The same continuation of one prompt piece by piece, as it is generated; pieces are whole characters."""
        _check_samples(1, max_new_tokens, temperature, stop)
        sampling = (max_new_tokens, Choice(temperature, top_k, top_p).check(), seed, use_cache)
        written, text = "", ""
        for text in self._text_by_token(model, prompt, (first, sample), sampling, stop):
            ready = final_prefix(text, stop)
            if len(ready) > len(written):
                yield ready[len(written) :]
                written = ready
        if len(text) > len(written):
            yield text[len(written) :]

    def _continuation(
        self, model: Any, prompt: str, place: tuple[int, int], sampling: Sampling, stop: Sequence[str]
    ) -> str:
        if not stop:
            return self._joined(prompt, list(self._new_tokens(model, prompt, place, sampling)))
        return deque(self._text_by_token(model, prompt, place, sampling, stop), maxlen=1).pop()

    def _text_by_token(
        self, model: Any, prompt: str, place: tuple[int, int], sampling: Sampling, stop: Sequence[str]
    ) -> Iterator[str]:
        """The continuation after each token, until the first stop string."""
        ids: list[int] = []
        yield ""
        for token in self._new_tokens(model, prompt, place, sampling):
            text = self._joined(prompt, [*ids, token])
            ends = [end for end in (text.find(word) for word in stop) if end >= 0]
            yield text[: min(ends, default=len(text))]
            if ends:
                return
            ids.append(token)

    def _new_tokens(self, model: Any, prompt: str, place: tuple[int, int], sampling: Sampling) -> Iterator[int]:
        """The generated tokens; each prompt and sample has its own random generator."""
        from odeum.decode import stream

        count, choice, seed, use_cache = sampling
        index, sample = place
        key = generator(seed, index, *([sample] if sample else [])).initial_seed()
        if isinstance(model, CTranslate2):
            made = model.stream(self._prompt(prompt), count, choice, key)
        else:
            device = next(model.parameters()).device
            drawn = choice._replace(generator=torch.Generator(device=device).manual_seed(key))._asdict()
            ids = torch.tensor([self._prompt(prompt)], device=device)
            made = map(int, stream(model, ids, max_new_tokens=count, use_cache=use_cache, **drawn))
        for token in made:
            if token in self.tokens.ends:
                return
            yield token

    def _prompt(self, text: str) -> list[int]:
        self.warn_unknown([text[-UNKNOWN_SAMPLE:]])
        encoded = self.tokens.encode(text[-LONGEST_PIECE:])  # of more than a window only the end is read
        ids = [*self.tokens.prefix, *encoded][-self.length :]
        if not ids and self.tokens.start is None:
            raise OdeumError("this model has no start token, so it cannot continue an empty prompt; give a prompt")
        return ids or [self.tokens.start]  # ty: ignore[invalid-return-type]

    def _joined(self, prompt: str, ids: list[int]) -> str:
        text = self.tokens.decode_after(self.tokens.encode(prompt[-LONGEST_PIECE:]), ids)
        apart = not prompt or prompt[-1].isspace() or text[:1].isspace()
        return text if apart else self.tokens.joiner + text

    def format_answer(self, question: str, answer: str) -> str:
        """The prompt with its continuation."""
        return question + answer

    def record(self) -> dict[str, Any]:
        return {"length": self.length}

    def files(self) -> dict[str, bytes]:
        return self.tokens.files()

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> LanguageTask:
        assert isinstance(options, LanguageData)
        return cls(name, options, load_tokens(directory), record["length"])


MOST_GENERATED = 1_000_000
"""most samples, and most tokens per sample"""


def _check_samples(samples: int, tokens: int, temperature: float, stop: Sequence[str]) -> None:
    if not 1 <= samples <= MOST_GENERATED:
        raise OdeumError(f"samples must be at least 1 and at most {MOST_GENERATED:,}, not {samples}")
    if not 0 <= tokens <= MOST_GENERATED:
        raise OdeumError(f"max_new_tokens must be 0 or more and at most {MOST_GENERATED:,}, not {tokens}")
    if samples > 1 and temperature == 0:
        raise OdeumError(f"{samples} samples at temperature 0 would all be the same; give a temperature above 0")
    if isinstance(stop, str) or not all(isinstance(word, str) and word for word in stop):
        raise OdeumError(f"stop must be a list of texts, none of them empty, not {stop!r}")


def final_prefix(text: str, stop: Sequence[str]) -> str:
    """The prefix of a growing text that is final: without an incomplete character or the beginning of a stop string."""
    text = text.rstrip("\N{REPLACEMENT CHARACTER}")
    held = (size for word in stop for size in range(1, len(word)) if text.endswith(word[:size]))
    return text[: len(text) - max(held, default=0)]


def learn_corpus_tokens(options: LanguageData, texts: list[str], wiki: bool) -> Tokens:
    """The vocabulary of the training part."""
    size = sum(map(len, texts))
    kind = options.tokens
    if kind == "auto":
        kind = "words" if wiki else "characters" if size < CHARACTERS_BELOW else "bpe"
    if kind == "bpe":
        lines = (line for text in texts for line in text.split("\n"))
        return Bpe.learn(lines, options.vocabulary or min(8000, max(1000, size // 500)))
    return Listed.learn(kind, texts, options.vocabulary)


def _documents(texts: Iterable[str], articles: bool) -> Iterator[str]:
    """The texts, cut before each title of an article of WikiText if asked; tokens are made line by line either way."""
    for text in texts:
        yield from filter(None, _ARTICLE.split(text)) if articles and text else [text]


def _beginning(texts: list[str], most: int) -> list[str]:
    """Whole lines of the first `most` characters."""
    out: list[str] = []
    for text in texts:
        if len(text) > most:
            text = text[: text.rfind("\n", 0, most) + 1] or text[:most]
        out.append(text)
        most -= len(text)
        if most <= 0:
            break
    return out


def _without_blanks(texts: Iterable[str]) -> str:
    """All texts without white space, which words do not record."""
    return "".join(word for text in texts for word in text.split())


def _words(text: str) -> int:
    """Words and line ends, as the papers count them."""
    return len(text.split()) + text.count("\n")
