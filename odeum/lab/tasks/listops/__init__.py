"""ListOps: nested operations on digits, generated; a text classification with options of its own."""

from __future__ import annotations

from dataclasses import dataclass

from odeum.lab.tasks.classification import CLASSIFICATION
from odeum.lab.tasks.kind import like


@dataclass(frozen=True)
class ListOpsData:
    """Nested operations on digits (Long Range Arena), generated."""

    min_length: int = 20
    """shortest expression, in tokens"""
    max_length: int = 120
    """longest expression, in tokens"""
    count: int = 20_000
    """training examples; a tenth of it (at most 2000) for validation and for the test"""
    max_depth: int = 10
    """deepest nesting"""
    max_args: int = 10
    """most arguments of an operation"""
    long: bool = False
    """the official numbers: 500 to 2000 tokens, 96,000 examples"""
    seed: int = 0
    """of the generator"""


LISTOPS = like(
    CLASSIFICATION,
    "listops",
    about="nested operations on digits, one class each, generated",
    options=ListOpsData,
    task="odeum.lab.tasks.listops.task:ListOpsTask",
    sets=("listops",),
)
