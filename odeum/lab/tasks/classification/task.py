"""Text classification."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from odeum.errors import OdeumError
from odeum.lab.data import tables
from odeum.lab.data.progress import report_stage
from odeum.lab.data.split_names import SPLITS
from odeum.lab.data.splits import hold_out, stratified
from odeum.lab.data.understanding import labelled_examples, repeated
from odeum.lab.tasks.classes import Classes, top_classes
from odeum.lab.tasks.classification import ClassificationData
from odeum.lab.tasks.kind import DATA_SETS, Data
from odeum.lab.tasks.text_base import TextSplit, TextTask, cut_length, encode_texts, learn_tokens, subset
from odeum.lab.train.settings import Training
from odeum.models.settings import PRESETS, Classification
from odeum.storage import expanded
from odeum.tokens import Tokens, load_tokens

# sized for a laptop: a few minutes per run
RECIPES: dict[str, Training] = {
    "imdb": Training(epochs=3, batch_size=32, weight_decay=0.05),
    "imdb-bytes": Training(epochs=3, batch_size=16, learning_rate=1e-3, weight_decay=0.05),
    "ag_news": Training(epochs=3, batch_size=64, weight_decay=0.05),
    "listops": Training(epochs=10, batch_size=64, learning_rate=2e-3, weight_decay=0.05),
    "other": Training(epochs=10, batch_size=32, weight_decay=0.05),
}


class ClassificationTask(Classes, TextTask):
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
        parts: dict[str, TextSplit] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, tokens, length, parts, source)
        self.classes = classes

    @classmethod
    def open(
        cls, data: str | Path, *more: str | Path, options: ClassificationData, like: Any = None
    ) -> ClassificationTask:
        known = str(data) in DATA_SETS
        paths = [expanded(p) for p in (data, *more)]
        table = tables.named_table(str(data), options) if known else tables.read_tables(paths, options)
        if data == "imdb-bytes" and options.tokens == "auto":
            options = dataclasses.replace(options, tokens="bytes")
        labels = sorted({label for _, label in table.parts["train"]}, key=_by_number)
        _check(table.parts, labels, str(data))
        rows = split(table.parts, labels, str(data), options.fold)
        most = options.test_examples or (5000 if data == "imdb-bytes" else None)
        rows["test"], note = subset(rows["test"], most)
        size = sum(len(text) for text, _ in rows["train"])
        report_stage("learning the tokens", size if like is None else 0)
        tokens = learn_tokens(options, [text for text, _ in rows["train"]]) if like is None else like.tokens
        report_stage("encoding", size)
        length = cut_length(options, tokens) if like is None else min(like.length, options.length or like.length)
        parts = {part: numbered(part_rows, tokens, labels, length) for part, part_rows in rows.items()}
        classes = [table.names.get(label, label) for label in labels]
        name = str(data) if known else paths[0].resolve().name
        task = cls(name, options, tokens, classes, length, parts, [str(p) for p in (data, *more)])
        task.notes += note
        task.columns, task.target_column = table.columns, table.label
        task.origins = table.origins
        task.examples = labelled_examples([(text, table.names.get(label, label)) for text, label in rows["train"]])
        task.check_data(repeated({part: (text for text, _ in part_rows) for part, part_rows in rows.items()}))
        return task

    def model(self) -> Classification:
        base = PRESETS["classification_small"]
        assert isinstance(base, Classification)
        return dataclasses.replace(base, **self.facts())

    def training(self) -> Training:
        return self.with_default_rate(RECIPES.get(self.name, RECIPES["other"]), self.model())

    def predict(self, model: nn.Module, inputs: Iterable[str], top: int = 5, **_: Any) -> list[list[tuple[str, float]]]:
        """The most likely classes of texts, with probabilities."""
        return [
            answer for logits in self.apply_head(model, inputs) for answer in top_classes(logits, self.classes, top)
        ]

    def record(self) -> dict[str, Any]:
        return {"classes": self.classes, **super().record()}

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
            "they do not look like classes; name another column with --data.label_column, or use --kind "
            "regression if they "
            "are numbers to predict"
        )
    if not any(text.strip() for text, _ in parts["train"]):
        raise OdeumError(f"no row of '{where}' has a text; name another column with --data.text_column")
    for part, rows in parts.items():
        if unseen := sorted({label for _, label in rows} - set(labels)):
            raise OdeumError(
                f"the label '{unseen[0]}' of the {part} part of '{where}' never occurs in its training part; use the "
                "same labels in all parts, or leave that part out"
            )


def split(parts: dict[str, tables.Rows], labels: list[str], where: str, fold: int = 0) -> dict[str, tables.Rows]:
    """Missing parts are held out of the training rows by a fixed stratified split."""
    index = {label: i for i, label in enumerate(labels)}

    def parted(rows: tables.Rows, count: int) -> list[tables.Rows]:
        selected = stratified(torch.tensor([index[label] for _, label in rows]), (0.1,) * count, where, fold=fold)
        return [[rows[i] for i in indices.tolist()] for indices in selected]

    held = hold_out(parts, parted, fold)
    return parts if held is parts else {part: held[part] for part in SPLITS}


def numbered(rows: tables.Rows, tokens: Tokens, labels: list[str], length: int) -> TextSplit:
    index = {label: i for i, label in enumerate(labels)}
    return encode_texts((text for text, _ in rows), tokens, length), torch.tensor([index[label] for _, label in rows])
