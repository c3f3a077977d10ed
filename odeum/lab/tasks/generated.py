"""Base class of tasks with generated sequences and classes: a new task in a few lines."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.data.split_names import SPLITS
from odeum.lab.data.tables import Rows
from odeum.lab.tasks.classification.task import ClassificationTask, numbered
from odeum.lab.tasks.kind import DATA_SETS, kind_of_task
from odeum.tokens import PAD, UNKNOWN, Listed


class GeneratedTask(ClassificationTask):
    """Texts of symbols separated by blanks, with one class each, generated from the options."""

    @classmethod
    @abstractmethod
    def generate(cls, options: Any) -> dict[str, Rows]:
        """Rows of (text, class) for each of train, valid and test: the same rows for the same options."""

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: Any, like: Any = None) -> GeneratedTask:
        cls.refuse_files(data, *more)
        rows = cls.generate(options)
        for part in SPLITS:
            if not rows.get(part):
                raise OdeumError(f"{cls.__name__}.generate made no rows for the part '{part}'")
        tokens = Listed.learn("symbols", [text for text, _ in rows["train"]], None, first=(PAD, UNKNOWN))
        classes = sorted({label for part in SPLITS for _, label in rows[part]})
        length = max(len(text.split()) for part in SPLITS for text, _ in rows[part])
        parts = {part: numbered(rows[part], tokens, classes, length) for part in SPLITS}
        return cls(str(data), options, tokens, classes, length, parts, [str(data)])

    @classmethod
    def refuse_files(cls, data: str | Path, *more: str | Path) -> None:
        """Raise OdeumError unless the data is the name of a generated set."""
        kind = kind_of_task(cls)
        if more or DATA_SETS.get(str(data)) != kind.name:
            wrong = more[0] if more else data
            raise OdeumError(
                f"{kind.name} data is generated, not read from '{wrong}'; use {' or '.join(kind.sets)} only"
            )
