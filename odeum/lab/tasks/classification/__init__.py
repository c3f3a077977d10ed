"""Texts with one class each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from odeum.lab.tasks.kind import BYTES, FOLD, OF_DATA, TOP, Kind, check_vocabulary
from odeum.lab.train.rates import RateRule
from odeum.models.settings import CLASSIFICATION as CLASSIFICATION_MODEL
from odeum.registry.options import COUNT, check_options


@dataclass(frozen=True)
class ClassificationData:
    """Data options of text classification."""

    tokens: Literal["auto", "words", "bpe", "bytes"] = "auto"
    """tokenizer (auto: words)"""
    vocabulary: Annotated[int, COUNT] = 20_000
    """size of the vocabulary"""
    length: Annotated[int | None, COUNT] = None
    """largest number of tokens per text (default: 256; bytes: 1024)"""
    text_column: str | None = None
    """column of the text, or several joined by + (default: recognised)"""
    label_column: str | None = None
    """column of the class (default: recognised)"""
    test_examples: Annotated[int | None, COUNT] = None
    """size of a fixed subset of the test part (default: all; imdb-bytes: 5000)"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """index of the fixed split, for data without a test part"""
    encoding: str | None = field(default=None, repr=False)
    """text encoding of the files, such as latin-1 (default: UTF-8)"""

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
    rates=RateRule(5.7e-3, 0.5, exceptions=("imdb-bytes",)),
    recognises="odeum.lab.data.sniffing:holds_labelled_texts",
)
