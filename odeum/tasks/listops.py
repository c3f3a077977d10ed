"""ListOps: the value of a nested expression, a test of long sequences."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from odeum.data import listops
from odeum.data.tokens import PAD, UNKNOWN, Listed
from odeum.settings.data import ListOpsData
from odeum.tasks.classification import ClassificationTask, numbered


class ListOpsTask(ClassificationTask):
    """Ten classes, the digits; a token is a digit, an operator or a bracket."""

    @classmethod
    def open(cls, data: str | Path, *, options: ListOpsData) -> ListOpsTask:  # ty: ignore[incompatible-method-override]
        sizes = dataclasses.replace(options, min_length=500, max_length=2000, count=96_000) if options.long else options
        tokens = Listed("symbols", [PAD, UNKNOWN, *listops.SYMBOLS])
        classes = [str(i) for i in range(10)]
        rows = {k: [(text, str(value)) for text, value in part] for k, part in listops.load(sizes).items()}
        parts = {k: numbered(part, tokens, classes, sizes.max_length) for k, part in rows.items()}
        return cls("listops", options, tokens, classes, sizes.max_length, parts, [str(data)])
