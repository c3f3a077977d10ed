"""Base class of tasks: data, batches, metrics, default settings and prediction."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from odeum.decode.common import Evaluation
from odeum.errors import OdeumError, choose, notice
from odeum.lab.data.ragged import Ragged
from odeum.lab.data.table_files import Columns
from odeum.lab.data.understanding import Origins, parts_line, shortened
from odeum.lab.tasks.evidence import Evidence
from odeum.lab.tasks.kind import DATA_SETS, Data, kind_of_task
from odeum.lab.train.rates import RateRule
from odeum.lab.train.settings import Training
from odeum.models.settings import Model
from odeum.storage import checksum, expanded, make_directory, write_bytes, write_json

Batch = dict[str, Tensor]
HELD_OUT = ("valid", "test")
UNKNOWN_SAMPLE = 2000  # characters of a text that are checked for unknown tokens


class Groups(NamedTuple):
    """Which examples belong together: they are not independent of each other."""

    unit: str
    """the kind of group, in the plural"""
    numbers: Tensor
    """the group of each example, in the order of `example_keys`"""


class Task(ABC):
    """Data with its metrics, prediction and default settings.

    `open_task` makes one from data; one from `load_task` can predict, but has no data.
    """

    metric: ClassVar[str]
    """the metric that models are compared by, one of the keys of `evaluate`"""
    higher_is_better: ClassVar[bool]
    columns: Columns = ()  # columns of the input in a table
    target_column: str | int | None = None  # column of the target in a table
    taken_over: bool = False  # whether tokens, or size and normalisation of images, are those of another task
    quick: int = 1000  # examples of a quick evaluation during training

    def __init__(self, name: str, options: Data, source: Sequence[str] = ()) -> None:
        self.name = name
        self.options = options
        # absolute, so that a run finds its data again from any folder
        self.source = tuple(s if s in DATA_SETS else str(expanded(s).resolve()) for s in source)
        self.notes: tuple[str, ...] = ()  # remarks for the report
        self.origins: Origins = {}  # the files of each part; empty for named sets
        self.examples: tuple[str, ...] = ()  # some examples of the training part, as people read them
        self._unchecked = 256  # number of further texts that are checked for unknown tokens

    @classmethod
    @abstractmethod
    def open(cls, data: str | Path, *more: str | Path, options: Any) -> Task:
        """The task of a named set or of the files at a path."""

    @property
    def kind(self) -> str:
        """The name of the kind this task belongs to."""
        return kind_of_task(type(self)).name

    def note(self, sentence: str) -> None:
        """Add a remark for the report, once."""
        self.notes += () if sentence in self.notes else (sentence,)

    def sizes(self) -> dict[str, int]:
        """Number of examples in the parts train, valid and test; empty if not known."""
        return {}

    def about(self) -> list[str]:
        """Further facts about the data for `summary`: classes, vocabulary, languages."""
        return []

    def summary(self) -> str:
        """One line about how the data was read, so that a misreading is noticed before training."""
        columns = "+".join(map(_column, self.columns)) if self.target_column is not None else ""
        read = [f"text = {columns}, label = {_column(self.target_column)}"] if columns else []
        sizes = self.sizes()
        rows = [f"{'/'.join(str(sizes[part]) for part in ('train', *HELD_OUT))} examples"] if sizes else []
        return f"{self.name} ({self.kind}): " + ", ".join([*read, *self.about()[:1], *rows, *self.about()[1:]])

    def understood(self) -> list[str]:
        """The summary, and below it classes with their counts, origins of the parts and some examples."""
        lines = [self.summary(), *(f"  {line}" for line in self.details())]
        if self.origins:
            lines.append(f"  parts: {parts_line(self.origins)}")
        heads = ["  examples: ", *["            "] * len(self.examples)]
        return [*lines, *(f"{head}{example}" for head, example in zip(heads, self.examples, strict=False))]

    def details(self) -> list[str]:
        """Lines below the summary: classes with their counts."""
        return []

    # defaults

    @abstractmethod
    def model(self) -> Model:
        """Default model settings, sized for the data and a laptop."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Model settings that the data decides, such as the number of classes."""

    @abstractmethod
    def training(self) -> Training:
        """Default training settings for the default model."""

    @property
    def _rule(self) -> RateRule | None:
        rule = kind_of_task(type(self)).rates
        return None if rule is None or self.name in rule.exceptions else rule

    @property
    def rate_rule(self) -> RateRule | None:
        """The rule of the kind for default learning rates, unless `training` has a rate of its own."""
        recipe = self.training()
        return self._rule if recipe == self.with_default_rate(recipe, self.model()) else None

    def with_default_rate(self, training: Training, model: Model) -> Training:
        """The settings with the learning rate of the rule for this model, if the kind has one for this set."""
        if self._rule is None:
            return training
        width = training.base_width if training.parametrization == "completep" else model.width
        return dataclasses.replace(training, learning_rate=self._rule.at(width))

    def fit(self, model: Model) -> Model:
        """The model settings with those replaced that the data decides."""
        needed = kind_of_task(type(self)).settings
        if not isinstance(model, needed):
            raise OdeumError(f"{self.name} needs a {needed.__name__} model, not a {type(model).__name__} one")
        return dataclasses.replace(model, **self.facts())

    # training

    @property
    @abstractmethod
    def has_data(self) -> bool:
        """Whether the data is loaded; False for a task from `load_task`."""

    @abstractmethod
    def identity(self) -> Iterator[Tensor | str]:
        """Tensors and strings that the fingerprint is computed from."""

    def fingerprint(self) -> str:
        """Short hash of the data and its preprocessing, by which runs are matched."""
        self.require_data()
        digest = hashlib.blake2b(digest_size=8)
        digest.update(f"{self.name} {self.options}".encode())
        for part in self.identity():
            digest.update(part.encode() if isinstance(part, str) else part.contiguous().numpy().tobytes())
        return digest.hexdigest()

    @abstractmethod
    def plan(self, epoch: int, batch_size: int, seed: int) -> Sequence[Any]:
        """The examples of each batch of an epoch; a pure function of its arguments."""

    @abstractmethod
    def collate(self, rows: Any, random: torch.Generator) -> Batch:
        """One batch, with its augmentation drawn from `random`."""

    def steps_per_epoch(self, batch_size: int) -> int:
        self.require_data()
        return len(self.plan(0, batch_size, 0))

    def examples_per_step(self, batch_size: int, model: Model) -> float:
        """Cost of a batch in examples of full length; a small data set may not fill a batch."""
        return len(self.plan(0, batch_size, 0)[0])

    def batches(self, epoch: int, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start` on; none depends on earlier ones, so resuming is immediate."""
        self.require_data()
        for index, rows in enumerate(self.plan(epoch, batch_size, seed)):
            if index >= start:
                yield self.collate(rows, generator(seed, epoch, index))

    @abstractmethod
    def examine(
        self, model: nn.Module, split: str, device: Any = None, limit: int | None = None, single: bool = True
    ) -> tuple[dict[str, float], Evidence | None]:
        """Loss and metrics on a part of the data, and the losses of single examples.

        `limit` caps the number of examples. A task for which losses of single examples cost extra computes them only if
        `single` is true; a task without them returns None in their place.
        """

    def evaluate(
        self, model: nn.Module, split: str = "valid", device: Any = None, limit: int | None = None
    ) -> dict[str, float]:
        """Loss and metrics of `examine` alone."""
        return self.examine(model, split, device, limit, single=False)[0]

    def test_on_everything(self) -> None:
        """Put all examples into the test part, for a model that was trained on none of them."""
        parts: Any = getattr(self, "parts", {})
        columns = zip(*(self._part(split) for split in ("train", *HELD_OUT)), strict=True)
        merged = tuple(Ragged.join(c) if isinstance(c[0], Ragged) else torch.cat(c) for c in columns)
        parts["test"] = merged if isinstance(parts["test"], tuple) else merged[0]

    def example_keys(self, split: str) -> list[str]:
        """A hash of the content of each example of a part, in the order that `select` counts in."""
        part = self._part(split)
        columns = [
            (row.contiguous().numpy().tobytes() for row in (column.flat.split(column.lengths.tolist())))
            if isinstance(column, Ragged)
            else (row.contiguous().numpy().tobytes() for row in column)
            for column in part
        ]
        return [checksum(b"|".join(cells)) for cells in zip(*columns, strict=True)]

    def example_groups(self, split: str) -> Groups | None:
        """The examples of a part that belong together, such as windows of one document; None if all are independent."""
        return None

    def select(self, split: str, rows: Tensor) -> Task:
        """A copy of this task whose held-out parts hold only these examples of a part."""
        chosen = tuple(c.select(rows) if isinstance(c, Ragged) else c[rows] for c in self._part(split))
        new = copy.copy(self)
        parts: Any = getattr(self, "parts", {})
        only = chosen if isinstance(parts[split], tuple) else chosen[0]
        new.parts = {**parts, **dict.fromkeys(HELD_OUT, only)}  # ty: ignore[missing-attribute]
        return new

    def _part(self, split: str) -> tuple[Any, ...]:
        """The columns of a part: ids and labels, sources and targets, or lines alone."""
        self.require_data(split if split in HELD_OUT else None)
        part = getattr(self, "parts", {}).get(split)
        columns = part if isinstance(part, tuple) else (part,)
        if not all(isinstance(column, Ragged | Tensor) for column in columns):
            raise OdeumError(
                f"a {self.kind} task does not define its single examples; it needs `example_keys`, `select` and "
                "`test_on_everything`"
            )
        return columns

    def require_data(self, split: str | None = None) -> None:
        """Raise OdeumError if the data is not loaded, or `split` is no held-out part."""
        if not self.has_data:
            raise OdeumError(f"the task '{self.name}' was loaded without its data; open it again to train or evaluate")
        if split is not None:
            choose(split, HELD_OUT, "part of the data")

    # prediction

    def prepare(self, item: Any) -> Any:
        """Read one input of `predict`; raises OdeumError if it cannot be read."""
        return item

    def input_batches(self, inputs: Iterable[Any]) -> Iterator[Batch]:
        """New inputs as batches for the model, in order."""
        raise OdeumError(f"a {self.kind} task does not define how new inputs become batches of its model")

    def sample(self, count: int, split: str = "test") -> Batch:
        """Up to `count` examples of a held-out part as one batch of the model's arguments, without labels."""
        raise OdeumError(f"a {self.kind} task does not define how a sample of its data becomes a batch; give an input")

    def as_batch(self, model: nn.Module, inputs: Sequence[Any]) -> Batch:
        """New inputs as one batch of the model's arguments, in order."""
        batches = list(self.input_batches(inputs))
        if not batches:
            raise OdeumError("there is no input; give at least one")
        return joined(batches)

    def warn_unknown(self, texts: Sequence[str]) -> None:
        """Print a notice, once per task, if most tokens of one of its first texts are not in the vocabulary."""
        tokens: Any = getattr(self, "tokens", None)
        texts = texts[: self._unchecked] if tokens is not None else ()
        self._unchecked -= len(texts)
        for text in texts:
            if (share := tokens.unknown_share(text[:UNKNOWN_SAMPLE])) > 0.5:
                self._unchecked = 0
                remedy = "; separate symbols by blanks" if getattr(tokens, "kind", None) == "symbols" else ""
                notice(f"{share:.0%} of the tokens of '{shortened(text)}' are unknown to the tokenizer{remedy}")
                return

    def token_names(self, ids: Iterable[int]) -> list[str]:
        """Each token as people read it; white space is ␣."""
        tokens: Any = getattr(self, "tokens", None)
        if tokens is None:
            return [str(i) for i in ids]
        return [tokens.decode([i]).strip() or tokens.token(i).strip() or "␣" for i in ids]

    def apply_head(self, model: nn.Module, inputs: Iterable[Any]) -> Iterator[Tensor]:
        """Outputs of the model for new inputs, batch by batch."""
        with evaluating(model) as place:
            for batch in self.input_batches(inputs):
                yield model(**move(batch, place)).logits

    def embed(self, model: Any, inputs: Iterable[Any]) -> Tensor:
        """The pooled state of each input: [inputs, width]."""
        if not hasattr(model, "pooled"):
            raise OdeumError(f"{type(model).__name__} has no pooled state per example")
        with evaluating(model) as place:
            states = [model.pooled(**move(batch, place)).float().cpu() for batch in self.input_batches(inputs)]
        return torch.cat(states) if states else torch.empty(0, model.settings.width)

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Any, **options: Any) -> list[Any]:
        """Answers for new inputs, in order."""

    def format_answer(self, question: str, answer: Any) -> str:
        """An answer of `predict` as a line of text."""
        return str(answer)

    def as_json(self, answer: Any) -> Any:
        """An answer of `predict` as JSON values."""
        return answer

    def as_columns(self, answer: Any) -> dict[str, Any]:
        """An answer of `predict` as columns of a table."""
        return {"output": self.as_json(answer)}

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Values for task.json that `restore` needs to predict without the data."""

    @classmethod
    @abstractmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> Task:
        """The inverse of `record`."""

    def files(self) -> dict[str, bytes]:
        """Further files of a run directory by name, such as a tokenizer."""
        return {}

    def save(self, directory: Path) -> None:
        """Write task.json, with checksums of the files beside it."""
        make_directory(directory)
        files = self.files()
        for name, content in files.items():
            write_bytes(directory / name, content)
        content = {
            "kind": self.kind,
            "name": self.name,
            "data": list(self.source),
            "settings": type(self.options).__name__,
            "options": dataclasses.asdict(self.options),
            "files": {name: checksum(content) for name, content in files.items()},
            **({"taken_over": True} if self.taken_over else {}),
            **self.record(),
        }
        write_json(directory / "task.json", content)


def _column(name: str | int | None) -> str:
    """The name of a column, or its number."""
    return f"column {name + 1}" if isinstance(name, int) else str(name)


def generator(*key: int) -> torch.Generator:
    """A random generator for this key, independent of other keys and of the global generator."""
    seed = int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=4).digest(), "big")
    return torch.Generator().manual_seed(seed)


def even_batches(count: int, batch_size: int, random: torch.Generator) -> list[Tensor]:
    """Shuffled rows in full batches; the remainder is dropped."""
    order = torch.randperm(count, generator=random)
    full = max(1, count // batch_size)
    return list(order[: full * batch_size].split(batch_size))


@contextmanager
def evaluating(model: nn.Module, device: Any = None) -> Generator[torch.device | None]:
    """Context in which the model is in evaluation mode without gradients; restores the modes afterwards."""
    first = next(model.parameters(), None)
    with Evaluation(model), torch.no_grad():
        yield torch.device(device) if device is not None else first.device if first is not None else None


def joined(batches: Sequence[Batch]) -> Batch:
    """Batches as one; texts are padded on the right to the longest, and their masks with 0."""
    longest = {key: max(batch[key].shape[1] for batch in batches) for key in batches[0]}
    return {
        key: torch.cat(
            [
                batch[key]
                if batch[key].dim() != 2
                else nn.functional.pad(batch[key], (0, longest[key] - batch[key].shape[1]))
                for batch in batches
            ]
        )
        for key in batches[0]
    }


def move(batch: Batch, device: torch.device | None) -> Batch:
    return {key: value.to(device) for key, value in batch.items()}


def perplexity(loss: float) -> float:
    """exp, without the overflow of an untrained model."""
    return math.exp(min(loss, 700.0))
