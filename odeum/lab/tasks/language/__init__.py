"""Running text and the next token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from odeum.errors import OdeumError
from odeum.lab.tasks.kind import BYTES, FOLD, OF_DATA, SHORTEST_WINDOW, Kind, PredictOption, check_vocabulary
from odeum.lab.train.rates import RateRule
from odeum.models.settings import LANGUAGE as LANGUAGE_MODEL
from odeum.registry.options import COUNT, NOT_NEGATIVE, Range, check_options


@dataclass(frozen=True)
class LanguageData:
    """Data options of language modelling."""

    tokens: Literal["auto", "words", "bpe", "characters"] = "auto"
    """tokenizer (auto: words for WikiText, characters for little text, else BPE)"""
    vocabulary: Annotated[int | None, COUNT] = None
    """size of the vocabulary (default: all words, 8000 BPE tokens, all characters)"""
    length: Annotated[int, Range(SHORTEST_WINDOW)] = 256
    """tokens per window"""
    context: Annotated[int | None, NOT_NEGATIVE] = None
    """overlap of evaluation windows, in tokens (default: half a window)"""
    megabytes: Annotated[float, COUNT] = 2.0
    """amount of text of the set `python`"""
    held_out_megabytes: Annotated[float | None, COUNT] = None
    """text per held-out part, to shorten evaluations (default: all)"""
    lines: bool = field(default=False, repr=False)
    """evaluate each line alone, instead of windows over the running text"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """index of the fixed split, for data without a test part"""
    encoding: str | None = field(default=None, repr=False)
    """text encoding of the files, such as latin-1 (default: UTF-8)"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)
        check_vocabulary(BYTES if self.tokens == "bpe" else 2, self.vocabulary, self.tokens)
        if self.context is not None and not self.context < self.length:
            raise OdeumError(f"context={self.context} must be below length={self.length}")


LANGUAGE = Kind(
    name="language",
    about="running text with the next token to predict",
    input="text",
    target="next token",
    options=LanguageData,
    model=LANGUAGE_MODEL,
    task="odeum.lab.tasks.language.task:LanguageTask",
    decided=("vocabulary", "length"),
    sets=("wikitext2", "wikitext103", "python"),
    predict_options=(
        PredictOption("max_new_tokens", int, "length of the generated text (default: 100)"),
        PredictOption("temperature", float, "sampling temperature; 0 is greedy (default: 0.8)"),
        PredictOption("top_k", int, "sample from the k most likely tokens"),
        PredictOption("top_p", float, "sample from the most likely tokens with this total probability (default: 0.95)"),
        PredictOption("samples", int, "continuations per prompt (default: 1)"),
        PredictOption("stop", str, "text that ends a continuation; may be repeated", repeated=True),
        PredictOption("seed", int, "sampling seed (default: 0)"),
    ),
    rates=RateRule(1.6e-2, 1.5),
    recognises="odeum.lab.data.sniffing:holds_text",
)
