"""ListOps: the value of a nested expression, a test of long sequences."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from odeum.lab.data.tables import Rows
from odeum.lab.tasks.classification.task import numbered
from odeum.lab.tasks.generated import GeneratedTask
from odeum.lab.tasks.listops import ListOpsData, expressions
from odeum.tokens import PAD, UNKNOWN, Listed


class ListOpsTask(GeneratedTask):
    """Ten classes, the digits; a token is a digit, an operator or a bracket."""

    @classmethod
    def generate(cls, options: ListOpsData) -> dict[str, Rows]:
        parts = expressions.load_listops(options)
        return {part: [(text, str(value)) for text, value in rows] for part, rows in parts.items()}

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: Any, like: Any = None) -> ListOpsTask:
        """Unlike in other generated tasks, vocabulary, classes and length do not depend on the examples."""
        cls.refuse_files(data, *more)
        sizes = dataclasses.replace(options, min_length=500, max_length=2000, count=96_000) if options.long else options
        tokens = Listed("symbols", [PAD, UNKNOWN, *expressions.SYMBOLS])
        classes = [str(i) for i in range(10)]
        rows = cls.generate(sizes)
        parts = {k: numbered(part, tokens, classes, sizes.max_length) for k, part in rows.items()}
        return cls("listops", options, tokens, classes, sizes.max_length, parts, [str(data)])
