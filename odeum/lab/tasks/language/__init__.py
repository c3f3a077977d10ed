"""Running text and the next token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from odeum.errors import OdeumError
from odeum.lab.tasks.kind import BYTES, FOLD, OF_DATA, SHORTEST_WINDOW, Kind, PredictOption, check_vocabulary
from odeum.models.settings import LANGUAGE as LANGUAGE_MODEL
from odeum.registry.options import COUNT, NOT_NEGATIVE, Range, check_options


@dataclass(frozen=True)
class LanguageData:
    """Running text, to be continued."""

    tokens: Literal["auto", "words", "bpe", "characters"] = "auto"
    """what a token is (auto: words for WikiText, else BPE, or characters where there is little text)"""
    vocabulary: Annotated[int | None, COUNT] = None
    """most tokens told apart (none: all words, 8000 BPE tokens, all characters)"""
    length: Annotated[int, Range(SHORTEST_WINDOW)] = 256
    """tokens in a window"""
    context: Annotated[int | None, NOT_NEGATIVE] = None
    """tokens a window of an evaluation repeats from the one before, so that each is scored with context (none: half)"""
    megabytes: Annotated[float, COUNT] = 2.0
    """of the set `python` only: how much of the installation's text to take"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    encoding: str | None = field(default=None, repr=False)
    """of the files, such as latin-1 (none: UTF-8)"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)
        check_vocabulary(BYTES if self.tokens == "bpe" else 2, self.vocabulary, self.tokens)
        if self.context is not None and not self.context < self.length:
            raise OdeumError(f"context={self.context} must be below length={self.length}")


LANGUAGE = Kind(
    name="language",
    about="running text, to be continued",
    input="text",
    target="next token",
    options=LanguageData,
    model=LANGUAGE_MODEL,
    task="odeum.lab.tasks.language.task:LanguageTask",
    decided=("vocabulary", "length"),
    sets=("wikitext2", "wikitext103", "python"),
    predict_options=(
        PredictOption("max_new_tokens", int, "of generated text (none: 100)"),
        PredictOption("temperature", float, "of sampling (0: the likeliest; none: 0.8)"),
        PredictOption("top_k", int, "sample among the k likeliest tokens"),
        PredictOption("top_p", float, "sample among tokens of this mass (none: 0.95)"),
        PredictOption("samples", int, "continuations of each prompt (none: 1)"),
        PredictOption("stop", str, "text before which a continuation ends; may be repeated", repeated=True),
        PredictOption("seed", int, "of sampling (none: 0)"),
    ),
    recognises="odeum.lab.data.sniffing:holds_text",
)
