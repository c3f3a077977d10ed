"""Pairs of sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from odeum.lab.tasks.kind import BYTES, FOLD, OF_DATA, Kind, PredictOption
from odeum.lab.train.rates import RateRule
from odeum.models.settings import TRANSLATION as TRANSLATION_MODEL
from odeum.registry.options import COUNT, NOT_NEGATIVE, Range, check_options


@dataclass(frozen=True)
class TranslationData:
    """Data options of translation."""

    vocabulary: Annotated[int, Range(4 + BYTES)] = 8000
    """size of the joint BPE vocabulary"""
    length: Annotated[int, Range(4)] = 128
    """largest number of tokens per sentence; longer training pairs are left out"""
    test: str | None = None
    """test part of a named set (multi30k: test_2016_flickr, test_2017_flickr, test_2017_mscoco)"""
    beam: Annotated[int, COUNT] = 4
    """beam width for BLEU"""
    length_penalty: Annotated[float, NOT_NEGATIVE] = 0.6
    """length penalty of the beam search for BLEU"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """index of the fixed split, for data without a test part"""
    encoding: str | None = field(default=None, repr=False)
    """text encoding of the files, such as latin-1 (default: UTF-8)"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)


TRANSLATION = Kind(
    name="translation",
    about="pairs of sentences with the translation to predict",
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
        PredictOption("beam", int, "beam width (default: 4)"),
        PredictOption("length_penalty", float, "length penalty of the beam search (default: 0.6)"),
    ),
    rates=RateRule(8e-3, 0.5),
    recognises="odeum.lab.data.sniffing:holds_pairs",
)
