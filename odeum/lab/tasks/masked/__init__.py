"""Lines of text with hidden tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from odeum.lab.tasks.kind import BYTES, OF_DATA, SHORTEST_WINDOW, TOP, Kind, check_vocabulary
from odeum.models.settings import MASKED as MASKED_MODEL
from odeum.registry.options import COUNT, Range, check_options


@dataclass(frozen=True)
class MaskedData:
    """Data options of masked language modelling."""

    tokens: Literal["bpe", "symbols"] = "bpe"
    """tokenizer: byte-level BPE, or symbols separated by blanks"""
    vocabulary: Annotated[int, COUNT] = 8000
    """size of the vocabulary"""
    length: Annotated[int, Range(SHORTEST_WINDOW)] = 128
    """largest number of tokens per line"""
    share: Annotated[float, Range(above=0, below=1)] = 0.15
    """fraction of tokens that are hidden in training"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)
        check_vocabulary(5 + BYTES if self.tokens == "bpe" else 7, self.vocabulary, self.tokens)


MASKED = Kind(
    name="masked",
    about="lines of text with hidden tokens to predict",
    input="text",
    target="hidden token",
    options=MaskedData,
    model=MASKED_MODEL,
    task="odeum.lab.tasks.masked.task:MaskedTask",
    decided=("vocabulary", "length"),
    predict_options=(TOP,),
)
