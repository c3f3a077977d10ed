"""Text classification: which class is a text of?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odeum.data import tables
from odeum.data.ragged import Ragged, by_count, cut_by_tokens
from odeum.data.split_names import PARTS
from odeum.data.splits import hold_out, mixed, shuffled, stratified
from odeum.data.table_files import Columns
from odeum.data.tokens import PAD, UNKNOWN, Bpe, Bytes, Listed, Tokens, load_tokens
from odeum.errors import OdeumError
from odeum.kinds import MODELS, NAMED
from odeum.settings.data import ClassificationData, Data
from odeum.settings.model import Classification
from odeum.settings.training import Training
from odeum.tasks.base import Batch, Classes, Task, evaluating, generator, move, top_classes

# sized for a laptop: a few minutes a run
RECIPES: dict[str, Training] = {
    "imdb": Training(epochs=3, batch_size=32, learning_rate=2e-3, weight_decay=0.05),
    "imdb-bytes": Training(epochs=3, batch_size=16, learning_rate=1e-3, weight_decay=0.05),
    "ag_news": Training(epochs=3, batch_size=64, learning_rate=2e-3, weight_decay=0.05),
    "listops": Training(epochs=10, batch_size=64, learning_rate=2e-3, weight_decay=0.05),
    "other": Training(epochs=10, batch_size=32, learning_rate=2e-3, weight_decay=0.05),
}
LENGTH, BYTES_LENGTH = 256, 1024  # where a text is cut, unless the option says otherwise
CHUNK = 16_384  # padded tokens of an evaluation at once

Part = tuple[Ragged, Tensor]


class ClassificationTask(Classes, Task):
    """Sequences of tokens with one class each."""

    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        options: Data,
        tokens: Tokens,
        classes: list[str],
        length: int,
        parts: dict[str, Part] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, source)
        self.tokens, self.classes, self.length, self.parts = tokens, classes, length, parts or {}
        self.columns: Columns = ()  # of the tables that it was trained on
        if parts:  # a look during the training reads about as many tokens for short and for long texts
            self.quick = int(60_000 / parts["valid"][0].lengths.float().mean().clamp(30, 250))

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: ClassificationData) -> ClassificationTask:
        known = str(data) in NAMED
        paths = [Path(p).expanduser() for p in (data, *more)]
        found = tables.named(str(data), options) if known else tables.files(paths, options)
        if data == "imdb-bytes" and options.tokens == "auto":
            options = dataclasses.replace(options, tokens="bytes")
        labels = sorted({label for _, label in found.parts["train"]}, key=_by_number)
        _check(found.parts, labels, str(data))
        rows = split(found.parts, labels, str(data))
        most = options.test_examples or (5000 if data == "imdb-bytes" else None)
        rows["test"], note = some(rows["test"], most)
        tokens = learn(options, [text for text, _ in rows["train"]])
        length = options.length or (BYTES_LENGTH if isinstance(tokens, Bytes) else LENGTH)
        parts = {part: numbered(some, tokens, labels, length) for part, some in rows.items()}
        classes = [found.names.get(label, label) for label in labels]
        name = str(data) if known else paths[0].resolve().name
        task = cls(name, options, tokens, classes, length, parts, [str(p) for p in (data, *more)])
        task.notes += note
        task.columns = found.columns
        return task

    @property
    def has_data(self) -> bool:
        return bool(self.parts)

    def facts(self) -> dict[str, Any]:
        return {"vocabulary": self.tokens.size, "classes": len(self.classes), "length": self.length}

    def model(self) -> Classification:
        base = MODELS["classification_small"]
        assert isinstance(base, Classification)
        return dataclasses.replace(base, **self.facts())

    def training(self) -> Training:
        return RECIPES.get(self.name, RECIPES["other"])

    def identity(self) -> Iterator[Tensor | str]:
        yield ",".join(self.classes)
        yield self.tokens.to_json()
        for ids, labels in self.parts.values():
            yield ids.flat
            yield ids.lengths
            yield labels

    def plan(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        return by_count(self.parts["train"][0].lengths, batch_size, generator(seed, epoch))

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        return self._batch(self.parts["train"], rows)

    def _batch(self, part: Part, rows: Tensor) -> Batch:
        ids, mask = part[0].padded(rows)
        return {"input_ids": ids, "attention_mask": mask, "labels": part[1][rows]}

    def evaluate(
        self, model: nn.Module, split: str = "valid", device: Any = None, limit: int | None = None
    ) -> dict[str, float]:
        self.need_data(split)
        part = self.parts[split]
        looked_at = mixed(len(part[0]), limit)
        lengths = part[0].lengths[looked_at]
        loss = right = 0.0
        with evaluating(model, device) as place:
            for rows in cut_by_tokens(lengths, lengths.argsort(stable=True), CHUNK):
                batch = move(self._batch(part, looked_at[rows]), place)
                target = batch.pop("labels")
                logits = model(**batch).logits.float()
                loss += F.cross_entropy(logits, target, reduction="sum").item()
                right += (logits.argmax(-1) == target).sum().item()
        return {"loss": loss / len(lengths), "accuracy": right / len(lengths)}

    def predict(self, model: nn.Module, inputs: Iterable[str], top: int = 5, **_: Any) -> list[list[tuple[str, float]]]:
        """The likeliest classes, with probabilities, of texts."""
        ids = Ragged([row or [0] for row in self.tokens.encode_all(inputs, self.length)])
        answers: list[list[tuple[str, float]]] = []
        with evaluating(model) as place:
            for rows in torch.arange(len(ids)).split(32):
                x, mask = ids.padded(rows)
                answers += top_classes(model(x.to(place), attention_mask=mask.to(place)).logits, self.classes, top)
        return answers

    def record(self) -> dict[str, Any]:
        return {"classes": self.classes, "length": self.length, "columns": list(self.columns)}

    def save(self, directory: Path) -> None:
        super().save(directory)
        self.tokens.save(directory)

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> ClassificationTask:
        task = cls(name, options, load_tokens(directory), record["classes"], record["length"])
        task.columns = record.get("columns", ())
        return task


def _by_number(label: str) -> tuple[bool, float, str]:
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (False, number, label) if math.isfinite(number) else (True, 0.0, label)


def _check(parts: dict[str, tables.Rows], labels: list[str], where: str) -> None:
    if len(labels) < 2:
        raise OdeumError(f"'{where}' has only one class, '{labels[0]}'; at least two are needed")
    if len(labels) > max(50, len(parts["train"]) // 3):
        raise OdeumError(
            f"the label column of '{where}' holds {len(labels)} different values in {len(parts['train'])} rows; "
            "it does not look like classes, so name another with --data.label_column"
        )
    for part, rows in parts.items():
        if unseen := sorted({label for _, label in rows} - set(labels)):
            raise OdeumError(
                f"the label '{unseen[0]}' of the {part} part of '{where}' never occurs in its training part"
            )


def split(parts: dict[str, tables.Rows], labels: list[str], where: str) -> dict[str, tables.Rows]:
    """The parts that are not given are held out of the training rows, always the same, with the classes mixed alike."""
    index = {label: i for i, label in enumerate(labels)}

    def cut(rows: tables.Rows, count: int) -> list[tables.Rows]:
        kept = stratified(torch.tensor([index[label] for _, label in rows]), (0.1,) * count, where)
        return [[rows[i] for i in some.tolist()] for some in kept]

    held = hold_out(parts, cut)
    return parts if held is parts else {part: held[part] for part in PARTS}


def some(rows: tables.Rows, most: int | None) -> tuple[tables.Rows, tuple[str, ...]]:
    """A fixed choice of at most so many rows, and what to say about it."""
    if most is None or most >= len(rows):
        return rows, ()
    return [rows[i] for i in shuffled(len(rows))[:most].tolist()], (f"tested on {most} of {len(rows)} test examples",)


def learn(options: ClassificationData, texts: list[str]) -> Tokens:
    """The vocabulary of the training part."""
    if options.tokens == "bytes":
        return Bytes()
    if options.tokens == "bpe":
        return Bpe.learn(texts, options.vocabulary, first=(PAD,))
    return Listed.learn("pieces", texts, options.vocabulary, first=(PAD, UNKNOWN))


def numbered(rows: tables.Rows, tokens: Tokens, labels: list[str], length: int) -> Part:
    index = {label: i for i, label in enumerate(labels)}
    ids = (row or [0] for row in tokens.encode_all((text for text, _ in rows), length))
    return Ragged(ids), torch.tensor([index[label] for _, label in rows])
