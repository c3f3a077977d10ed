"""Which data, and how it is read: one small dataclass a kind of task, and the sets that have a name."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from odeum.errors import OdeumError

SHORTEST_WINDOW = 8  # tokens of a window
BYTES = 256  # tokens that every byte-level BPE has


def _at_least(least: int, value: int | None, what: str, unit: str = "") -> None:
    """What cannot be is refused before anything is read."""
    if value is not None and value < least:
        raise OdeumError(f"{what} should be at least {least}{unit}, not {value}")


class Data(Protocol):
    """The options of a kind of data: any frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    """what makes it one"""


@dataclass(frozen=True)
class ImageData:
    """Pictures, one class each."""

    augment: Literal["none", "light", "deit"] = "light"
    """light: shifted crops and flips (digits: small turns and moves); deit: also RandAugment, mixup, cutmix, erasing"""
    size: int | None = None
    """height and width given to the model (none: the pictures' own, at most 64)"""
    # what it does is in the pixels, by which runs are told apart, so it is no part of the name of the options
    fit: Literal["crop", "squash"] = field(default="crop", repr=False)
    """of images that are not square: crop (the middle square) or squash (all of it, deformed)"""
    fold: int = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    strict: bool = field(default=False, repr=False)
    """refuse images that cannot be read, instead of leaving them out"""


@dataclass(frozen=True)
class LanguageData:
    """Running text, to be continued."""

    tokens: Literal["auto", "words", "bpe", "characters"] = "auto"
    """what a token is (auto: words for WikiText, else BPE, or characters where there is little text)"""
    vocabulary: int | None = None
    """most tokens told apart (none: all words, 8000 BPE tokens, all characters)"""
    length: int = 256
    """tokens in a window"""
    context: int | None = None
    """tokens a window of an evaluation repeats from the one before, so that each is scored with context (none: half)"""
    megabytes: float = 2.0
    """of the set `python` only: how much of the installation's text to take"""
    fold: int = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    encoding: str | None = field(default=None, repr=False)
    """of the files, such as latin-1 (none: UTF-8)"""

    def __post_init__(self) -> None:
        _at_least(SHORTEST_WINDOW, self.length, "length of the windows", " tokens")
        _at_least(BYTES if self.tokens == "bpe" else 2, self.vocabulary, f"vocabulary of {self.tokens}")
        _at_least(0, self.context, "context", " tokens")
        if self.context is not None and not self.context < self.length:
            raise OdeumError(f"context should be below length {self.length}, not {self.context}")


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
        _at_least(SHORTEST_WINDOW, self.length, "length of the lines", " tokens")
        _at_least(5 + BYTES if self.tokens == "bpe" else 7, self.vocabulary, f"vocabulary of {self.tokens}")
        if not 0 < self.share < 1:
            raise OdeumError(f"share of hidden tokens should lie between 0 and 1, not {self.share}")


@dataclass(frozen=True)
class ClassificationData:
    """Texts, one class each."""

    tokens: Literal["auto", "words", "bpe", "bytes"] = "auto"
    """what a token is (auto: words)"""
    vocabulary: int = 20_000
    """most tokens told apart"""
    length: int | None = None
    """tokens at which a text is cut (none: 256; bytes: 1024)"""
    text_column: str | None = None
    """column of the text, or several joined by + (none: recognised)"""
    label_column: str | None = None
    """column of the class (none: recognised)"""
    test_examples: int | None = None
    """how many of the test examples are used, always the same (none: all; imdb-bytes: 5000)"""
    fold: int = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    encoding: str | None = field(default=None, repr=False)
    """of the files, such as latin-1 (none: UTF-8)"""

    def __post_init__(self) -> None:
        _at_least(1 + BYTES if self.tokens == "bpe" else 4, self.vocabulary, f"vocabulary of {self.tokens}")


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


@dataclass(frozen=True)
class TranslationData:
    """Pairs of sentences."""

    vocabulary: int = 8000
    """tokens of the joint BPE"""
    length: int = 128
    """most tokens in a sentence; longer pairs are left out of the training"""
    test: str | None = None
    """which test part of a named set (multi30k: test_2016_flickr, test_2017_flickr, test_2017_mscoco)"""
    beam: int = 4
    """width of the search behind BLEU"""
    length_penalty: float = 0.6
    """of the search behind BLEU"""
    fold: int = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    encoding: str | None = field(default=None, repr=False)
    """of the files, such as latin-1 (none: UTF-8)"""

    def __post_init__(self) -> None:
        _at_least(4, self.length, "length of the sentences", " tokens")
        _at_least(4 + BYTES, self.vocabulary, "vocabulary of BPE")
