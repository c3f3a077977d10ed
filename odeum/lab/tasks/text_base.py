"""Base class of tasks on whole texts: tokens and batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from odeum.lab.data.ragged import Ragged, by_count, cut_by_tokens
from odeum.lab.data.splits import mixed, shuffled
from odeum.lab.tasks.base import Batch, Task, evaluating, generator, move
from odeum.lab.tasks.classification import ClassificationData
from odeum.lab.tasks.kind import Data
from odeum.tokens import PAD, UNKNOWN, Bpe, Bytes, Listed, Tokens

LENGTH, BYTES_LENGTH = 256, 1024  # where a text is cut, unless the option says otherwise
TOKENS_AT_ONCE = 16_384  # padded tokens of an evaluation at once

TextSplit = tuple[Ragged, Tensor]
T = TypeVar("T")


class TextTask(Task):
    """Sequences of tokens with one target each."""

    def __init__(
        self,
        name: str,
        options: Data,
        tokens: Tokens,
        length: int,
        parts: dict[str, TextSplit] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, source)
        self.tokens, self.length, self.parts = tokens, length, parts or {}
        if parts:  # about as many tokens for short and for long texts
            self.quick = int(60_000 / parts["valid"][0].lengths.float().mean().clamp(30, 250))

    @property
    def has_data(self) -> bool:
        return bool(self.parts)

    def sizes(self) -> dict[str, int]:
        return {part: len(labels) for part, (_, labels) in self.parts.items()}

    def facts(self) -> dict[str, Any]:
        return {"vocabulary": self.tokens.size, "length": self.length}

    def identity(self) -> Iterator[Tensor | str]:
        yield self.tokens.to_json()
        for ids, labels in self.parts.values():
            yield ids.flat
            yield ids.lengths
            yield labels

    def plan(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        return by_count(self.parts["train"][0].lengths, batch_size, generator(seed, epoch))

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        return self._batch(self.parts["train"], rows)

    def _batch(self, part: TextSplit, rows: Tensor) -> Batch:
        ids, mask = part[0].padded(rows)
        return {"input_ids": ids, "attention_mask": mask, "labels": part[1][rows]}

    def scored(self, model: nn.Module, split: str, device: Any, limit: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs of the model and targets of a part, batch by batch."""
        self.require_data(split)
        part = self.parts[split]
        looked_at = mixed(len(part[0]), limit)
        lengths = part[0].lengths[looked_at]
        with evaluating(model, device) as place:
            for rows in cut_by_tokens(lengths, lengths.argsort(stable=True), TOKENS_AT_ONCE):
                batch = move(self._batch(part, looked_at[rows]), place)
                target = batch.pop("labels")
                yield model(**batch).logits.float(), target

    def sample(self, count: int, split: str = "test") -> Batch:
        self.require_data(split)
        batch = self._batch(self.parts[split], mixed(len(self.parts[split][0]), count))
        return {key: value for key, value in batch.items() if key != "labels"}

    def input_batches(self, inputs: Iterable[str]) -> Iterator[Batch]:
        texts = list(inputs)
        self.warn_unknown(texts)
        ids = encode_texts(texts, self.tokens, self.length)
        for rows in torch.arange(len(ids)).split(32):
            x, mask = ids.padded(rows)
            yield {"input_ids": x, "attention_mask": mask}

    def apply_head(self, model: nn.Module, inputs: Iterable[str]) -> Iterator[Tensor]:
        """Outputs in the order of the texts, computed in batches of similar length."""
        texts = list(inputs)
        self.warn_unknown(texts)
        ids = encode_texts(texts, self.tokens, self.length)
        batches = cut_by_tokens(ids.lengths, ids.lengths.argsort(stable=True), TOKENS_AT_ONCE) if len(ids) else ()
        outputs, places = [], []
        with evaluating(model) as place:
            for rows in batches:
                x, mask = (item.to(place) for item in ids.padded(rows))
                outputs.append(model(input_ids=x, attention_mask=mask).logits)
                places.append(rows)
        if outputs:
            yield torch.cat(outputs)[torch.cat(places).argsort()]

    def record(self) -> dict[str, Any]:
        return {"length": self.length, "columns": list(self.columns)}

    def files(self) -> dict[str, bytes]:
        return self.tokens.files()


def subset(rows: list[T], most: int | None) -> tuple[list[T], tuple[str, ...]]:
    """A fixed subset of at most `most` rows, and a remark about it."""
    if most is None or most >= len(rows):
        return rows, ()
    return [rows[i] for i in shuffled(len(rows))[:most].tolist()], (f"tested on {most} of {len(rows)} test examples",)


def learn_tokens(options: ClassificationData, texts: list[str]) -> Tokens:
    """The vocabulary of the training part."""
    if options.tokens == "bytes":
        return Bytes()
    if options.tokens == "bpe":
        return Bpe.learn(texts, options.vocabulary, first=(PAD,))
    return Listed.learn("pieces", texts, options.vocabulary, first=(PAD, UNKNOWN))


def cut_length(options: ClassificationData, tokens: Tokens) -> int:
    """Number of tokens at which a text is cut."""
    return options.length or (BYTES_LENGTH if isinstance(tokens, Bytes) else LENGTH)


def encode_texts(texts: Iterable[str], tokens: Tokens, length: int) -> Ragged:
    """Texts as rows of token ids, none longer than `length` and none empty."""
    return Ragged(row or [0] for row in tokens.encode_all(texts, length))
