"""ListOps: generated nested operations on digits, a text classification with its own options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from odeum.lab.tasks.classification import CLASSIFICATION
from odeum.lab.tasks.kind import OF_DATA, like
from odeum.registry.options import COUNT, NOT_NEGATIVE, check_options


@dataclass(frozen=True)
class ListOpsData:
    """Nested operations on digits (Long Range Arena), generated."""

    min_length: Annotated[int, COUNT] = 20
    """length of the shortest expression, in tokens"""
    max_length: Annotated[int, COUNT] = 120
    """length of the longest expression, in tokens"""
    count: Annotated[int, COUNT] = 20_000
    """training examples; validation and test have a tenth each, at most 2000"""
    max_depth: Annotated[int, COUNT] = 10
    """largest nesting depth"""
    max_args: Annotated[int, COUNT] = 10
    """largest number of arguments per operation"""
    long: bool = False
    """official sizes: 500 to 2000 tokens, 96,000 examples"""
    seed: Annotated[int, NOT_NEGATIVE] = 0
    """seed of the generator"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)


LISTOPS = like(
    CLASSIFICATION,
    "listops",
    about="nested operations on digits, one class each, generated",
    options=ListOpsData,
    task="odeum.lab.tasks.listops.task:ListOpsTask",
    sets=("listops",),
    rates=None,
)
