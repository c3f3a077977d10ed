"""Texts with one class each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from odeum.lab.tasks.kind import BYTES, FOLD, OF_DATA, TOP, Kind, check_vocabulary
from odeum.models.settings import CLASSIFICATION as CLASSIFICATION_MODEL
from odeum.registry.options import COUNT, check_options


@dataclass(frozen=True)
class ClassificationData:
    """Texts, one class each."""

    tokens: Literal["auto", "words", "bpe", "bytes"] = "auto"
    """what a token is (auto: words)"""
    vocabulary: Annotated[int, COUNT] = 20_000
    """most tokens told apart"""
    length: Annotated[int | None, COUNT] = None
    """tokens at which a text is cut (none: 256; bytes: 1024)"""
    text_column: str | None = None
    """column of the text, or several joined by + (none: recognised)"""
    label_column: str | None = None
    """column of the class (none: recognised)"""
    test_examples: Annotated[int | None, COUNT] = None
    """how many of the test examples are used, always the same (none: all; imdb-bytes: 5000)"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    encoding: str | None = field(default=None, repr=False)
    """of the files, such as latin-1 (none: UTF-8)"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)
        check_vocabulary(1 + BYTES if self.tokens == "bpe" else 4, self.vocabulary, self.tokens)


CLASSIFICATION = Kind(
    name="classification",
    about="texts, one class each",
    input="text",
    target="class",
    options=ClassificationData,
    model=CLASSIFICATION_MODEL,
    task="odeum.lab.tasks.classification.task:ClassificationTask",
    decided=("classes", "vocabulary", "length"),
    sets=("imdb", "imdb-bytes", "ag_news"),
    predict_options=(TOP,),
    recognises="odeum.lab.data.sniffing:holds_labelled_texts",
)
