"""Lines of text with hidden tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from odeum.errors import OdeumError
from odeum.lab.tasks.kind import BYTES, SHORTEST_WINDOW, TOP, Kind, at_least
from odeum.models.settings import MASKED as MASKED_MODEL


@dataclass(frozen=True)
class MaskedData:
    """Lines of text with hidden tokens."""

    tokens: Literal["bpe", "symbols"] = "bpe"
    """what a token is: byte-level BPE, or what stands between blanks"""
    vocabulary: int = 8000
    """most tokens told apart"""
    length: int = 128
    """tokens at which a line is cut"""
    share: float = 0.15
    """of the tokens that are hidden in training"""

    def __post_init__(self) -> None:
        at_least(SHORTEST_WINDOW, self.length, "length of the lines", " tokens")
        at_least(5 + BYTES if self.tokens == "bpe" else 7, self.vocabulary, f"vocabulary of {self.tokens}")
        if not 0 < self.share < 1:
            raise OdeumError(f"share of hidden tokens should lie between 0 and 1, not {self.share}")


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
