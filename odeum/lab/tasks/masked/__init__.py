"""Lines of text with hidden tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from odeum.lab.tasks.kind import BYTES, OF_DATA, SHORTEST_WINDOW, TOP, Kind, check_vocabulary
from odeum.models.settings import MASKED as MASKED_MODEL
from odeum.registry.options import COUNT, Range, check_options


@dataclass(frozen=True)
class MaskedData:
    """Lines of text with hidden tokens."""

    tokens: Literal["bpe", "symbols"] = "bpe"
    """what a token is: byte-level BPE, or what stands between blanks"""
    vocabulary: Annotated[int, COUNT] = 8000
    """most tokens told apart"""
    length: Annotated[int, Range(SHORTEST_WINDOW)] = 128
    """tokens at which a line is cut"""
    share: Annotated[float, Range(above=0, below=1)] = 0.15
    """of the tokens that are hidden in training"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)
        check_vocabulary(5 + BYTES if self.tokens == "bpe" else 7, self.vocabulary, self.tokens)


MASKED = Kind(
    name="masked",
    about="lines of text, whose hidden tokens are to be told",
    input="text",
    target="hidden token",
    options=MaskedData,
    model=MASKED_MODEL,
    task="odeum.lab.tasks.masked.task:MaskedTask",
    decided=("vocabulary", "length"),
    predict_options=(TOP,),
)
