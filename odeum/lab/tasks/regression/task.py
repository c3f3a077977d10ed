"""Regression: one number per text or image.

A model learns targets in units of their spread around their mean, both of the training part; what is measured and
predicted is in the units of the data. RMSE judges, because it is what the squared error learns; lower is better.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.lab.data import image_files, numbers, tables
from odeum.lab.data.image_labels import LABELS, labelled_folders
from odeum.lab.data.splits import LARGEST_PART, hold_out, random_rows
from odeum.lab.data.understanding import Origins, labelled_examples, repeated
from odeum.lab.tasks.base import Batch, Task
from odeum.lab.tasks.checks import note_repeated, note_small_test
from odeum.lab.tasks.evidence import Evidence
from odeum.lab.tasks.image_base import ImageInputTask, check_folder, repeated_images, statistics
from odeum.lab.tasks.kind import Data
from odeum.lab.tasks.regression import ImageRegressionData, RegressionData
from odeum.lab.tasks.text_base import TextSplit, TextTask, cut_length, encode_texts, learn_tokens, subset
from odeum.lab.train.settings import Training
from odeum.models.settings import PRESETS, ImageRegression, Regression
from odeum.storage import expanded
from odeum.tokens import Tokens, load_tokens

TEXT_RECIPE = Training(epochs=10, batch_size=32, learning_rate=2e-3, weight_decay=0.05)
IMAGE_RECIPE = Training(epochs=20, batch_size=64, learning_rate=1e-3, weight_decay=0.05)


class NumberTask(Task):
    """Metrics and units of tasks with numbers; the numbers of its parts are in the units of the data."""

    metric: ClassVar[str] = "rmse"
    higher_is_better: ClassVar[bool] = False
    parts: dict[str, Any]
    centre: float
    """mean of the training numbers"""
    spread: float
    """their standard deviation"""
    scored: Callable[..., Iterator[tuple[Tensor, Tensor]]]
    """yields outputs and numbers of a part, from the base class of the input"""
    apply_head: Callable[..., Iterator[Tensor]]
    """outputs for new inputs, from the same"""

    def learn_units(self, where: str) -> None:
        """Compute mean and standard deviation of the training numbers, and add remarks about baselines."""
        train = self.parts["train"][1]
        self.centre, self.spread = float(train.mean()), float(train.std(correction=0))
        if not math.isfinite(self.spread):
            raise OdeumError(f"the numbers of '{where}' are too large to compute with; use a larger unit")
        if self.spread <= 1e-12 * abs(self.centre) or self.spread == 0:
            raise OdeumError(
                f"all {len(train)} training numbers of '{where}' are {float(train[0]):g}; there is nothing to predict"
            )
        errors = self.parts["test"][1] - self.centre
        self.note(
            f"predicting the training mean, {self.centre:.4g}, for every example gives a test RMSE of "
            f"{_root(errors):.4g} and a test MAE of {float(errors.abs().mean()):.4g}"
        )
        for part in ("valid", "test"):
            if _is_constant(self.parts[part][1]):
                count = len(self.parts[part][1])
                self.note(f"R² is not defined on the {part} part: its {count} numbers do not differ")

    def about(self) -> list[str]:
        return ["a number each", f"mean {self.centre:.4g}, spread {self.spread:.4g}"]

    def standardised(self, values: Tensor) -> Tensor:
        """The values in units of the spread, in single precision."""
        return ((values.double() - self.centre) / self.spread).float()

    def in_data_units(self, outputs: Tensor) -> Tensor:
        """Outputs of a model [batch, 1] in the units of the data."""
        return outputs[:, 0].double().cpu() * self.spread + self.centre

    def examine(
        self, model: nn.Module, split: str, device: Any = None, limit: int | None = None, single: bool = True
    ) -> tuple[dict[str, float], Evidence | None]:
        """RMSE, MAE and R² (left out where the numbers do not differ), and the RMSE of the training mean."""
        scored = list(self.scored(model, split, device, limit))
        outputs = torch.cat([self.in_data_units(output) for output, _ in scored])
        targets = torch.cat([target.cpu() for _, target in scored])
        error = _root(outputs - targets)
        scores = {
            "loss": (error / self.spread) ** 2,
            "rmse": error,
            "mae": float((outputs - targets).abs().mean()),
            "rmse_of_mean": _root(targets - self.centre),
        }
        if not _is_constant(targets):
            scores["r2"] = 1 - (error / _root(targets - targets.mean())) ** 2
        return scores, Evidence(((outputs - targets) / self.spread).square())

    def predict(self, model: nn.Module, inputs: Iterable[Any], **_: Any) -> list[float]:
        """A number for each input."""
        return [value for output in self.apply_head(model, inputs) for value in self.in_data_units(output).tolist()]

    def format_answer(self, question: str, answer: float) -> str:
        return f"{answer:.6g}"

    def as_json(self, answer: float) -> float | None:
        """JSON has no infinity."""
        return answer if math.isfinite(answer) else None

    def record(self) -> dict[str, Any]:
        return {**super().record(), "centre": self.centre, "spread": self.spread}


class RegressionTask(NumberTask, TextTask):
    """Sequences of tokens with one number each."""

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: RegressionData) -> RegressionTask:
        paths = [expanded(p) for p in (data, *more)]
        origins: Origins = {}
        parts, columns = tables.tables_in_parts(
            paths, lambda path: numbers.read_numbers(path, options.text_column, options.label_column), origins
        )
        rows = hold_out(parts, lambda train, count: _tenths(train, count, str(data), options.fold), options.fold)
        rows["test"], note = subset(rows["test"], options.test_examples)
        tokens = learn_tokens(options, [text for text, _ in rows["train"]])
        length = cut_length(options, tokens)
        made = {part: _numbered(rows[part], tokens, length) for part in ("train", "valid", "test")}
        task = cls(paths[0].resolve().name, options, tokens, length, made, [str(p) for p in (data, *more)])
        task.notes += note
        task.columns, task.target_column = columns.text, columns.label
        task.origins, task.examples = origins, labelled_examples([(text, f"{x:g}") for text, x in rows["train"]])
        note_repeated(task, repeated({part: (text for text, _ in some) for part, some in rows.items()}))
        note_small_test(task)
        task.learn_units(str(data))
        return task

    def model(self) -> Regression:
        base = PRESETS["regression_small"]
        assert isinstance(base, Regression)
        return dataclasses.replace(base, **self.facts())

    def training(self) -> Training:
        return TEXT_RECIPE

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        batch = super().collate(rows, random)
        return {**batch, "labels": self.standardised(batch["labels"])}

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> RegressionTask:
        task = cls(name, options, load_tokens(directory), record["length"])
        task.columns = record.get("columns", ())
        task.centre, task.spread = record["centre"], record["spread"]
        return task


class ImageRegressionTask(NumberTask, ImageInputTask):
    """Images of one size with one number each."""

    options: ImageRegressionData  # ty: ignore[incompatible-mutable-override]

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: ImageRegressionData) -> ImageRegressionTask:
        check_folder(more, options.size)
        folder = expanded(data)
        folders = labelled_folders(folder) if folder.is_dir() else {}
        if not folders:
            raise OdeumError(f"'{data}' must be a folder of images with a {LABELS} of file names and numbers")
        labels = {part: numbers.numbered_images(sub, options.label_column) for part, sub in folders.items()}
        image_files.refuse_same_file([file for files, _ in labels.values() for file in files])
        channels, side = image_files.common_shape({"": labels["train"][0]}, options.size, options.fit)
        parts = {
            part: (
                image_files.load_images(files, channels, side, options.fit),
                torch.tensor(values, dtype=torch.float64),
            )
            for part, (files, values) in labels.items()
        }
        image_files.refuse_repeated_part(folder, {part: images for part, (images, _) in parts.items()})
        parts = hold_out(parts, lambda train, count: _picked(train, count, str(data), options.fold), options.fold)
        mean, std = statistics(parts["train"][0])
        task = cls(folder.resolve().name, options, side, mean, std, True, parts, [str(data)])
        shapes = [image_files.header(file).size for files, _ in labels.values() for file in files]
        task.notes += image_files.fit_note(shapes, options.fit)
        task.origins = {part: f"'{sub.name}'" for part, sub in folders.items()}
        files, values = labels["train"]
        task.examples = labelled_examples([(f.name, f"{x:g}") for f, x in zip(files, values, strict=True)])
        note_repeated(task, repeated_images({part: images for part, (images, _) in parts.items()}))
        note_small_test(task)
        task.learn_units(str(data))
        return task

    def model(self) -> ImageRegression:
        base = PRESETS["image_regression_8" if self.size <= 12 else "image_regression_32"]
        assert isinstance(base, ImageRegression)
        return self.sized_for_data(base)

    def training(self) -> Training:
        return IMAGE_RECIPE

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        images, values = (x[rows] for x in self.parts["train"])
        images = images if self.options.augment == "none" else self.augment_lightly(images, random)
        return {"images": self.normalised(images), "labels": self.standardised(values)}

    def format_answer(self, question: str, answer: float) -> str:
        return f"{question}\t{super().format_answer(question, answer)}"

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> ImageRegressionTask:
        assert isinstance(options, ImageRegressionData)
        task = cls(name, options, *(record[k] for k in ("size", "mean", "std", "mirrors")))
        task.centre, task.spread = record["centre"], record["spread"]
        return task


def _root(errors: Tensor) -> float:
    """Root of the mean square."""
    return math.sqrt(float(errors.square().mean()))


def _is_constant(values: Tensor) -> bool:
    return bool((values == values[0]).all())


def _numbered(rows: numbers.Numbered, tokens: Tokens, length: int) -> TextSplit:
    values = torch.tensor([value for _, value in rows], dtype=torch.float64)
    return encode_texts((text for text, _ in rows), tokens, length), values


def _held(count: int, parts: int, where: str, fold: int) -> list[list[int]]:
    return random_rows(count, parts, where, fold, what="examples", fewest=10, largest=LARGEST_PART)


def _tenths(rows: numbers.Numbered, parts: int, where: str, fold: int) -> list[numbers.Numbered]:
    return [[rows[i] for i in indices] for indices in _held(len(rows), parts, where, fold)]


def _picked(part: tuple[Tensor, Tensor], parts: int, where: str, fold: int) -> list[tuple[Tensor, Tensor]]:
    return [(part[0][indices], part[1][indices]) for indices in _held(len(part[1]), parts, where, fold)]
