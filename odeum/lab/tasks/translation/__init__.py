"""Pairs of sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from odeum.lab.tasks.kind import BYTES, FOLD, OF_DATA, Kind, PredictOption
from odeum.models.settings import TRANSLATION as TRANSLATION_MODEL
from odeum.registry.options import COUNT, NOT_NEGATIVE, Range, check_options


@dataclass(frozen=True)
class TranslationData:
    """Pairs of sentences."""

    vocabulary: Annotated[int, Range(4 + BYTES)] = 8000
    """tokens of the joint BPE"""
    length: Annotated[int, Range(4)] = 128
    """most tokens in a sentence; longer pairs are left out of the training"""
    test: str | None = None
    """which test part of a named set (multi30k: test_2016_flickr, test_2017_flickr, test_2017_mscoco)"""
    beam: Annotated[int, COUNT] = 4
    """width of the search behind BLEU"""
    length_penalty: Annotated[float, NOT_NEGATIVE] = 0.6
    """of the search behind BLEU"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    encoding: str | None = field(default=None, repr=False)
    """of the files, such as latin-1 (none: UTF-8)"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)


TRANSLATION = Kind(
    name="translation",
    about="pairs of sentences, to be translated",
    input="pair of texts",
    target="translation",
    options=TranslationData,
    model=TRANSLATION_MODEL,
    task="odeum.lab.tasks.translation.task:TranslationTask",
    decided=("vocabulary", "length"),
    sets=tuple(
        f"{corpus}-{pair}"
        for corpus in ("multi30k", "tatoeba", "wmt14")
        for pair in ("en-de", "de-en", "en-fr", "fr-en")
    ),
    predict_options=(
        PredictOption("beam", int, "width of the search of a translation (none: 4)"),
        PredictOption("length_penalty", float, "of the search of a translation (none: 0.6)"),
    ),
    recognises="odeum.lab.data.sniffing:holds_pairs",
)
