"""Pairs of sentences."""

from __future__ import annotations

from odeum.kinds.base import Kind, PredictOption
from odeum.settings.data import TranslationData
from odeum.settings.model import Translation

TRANSLATION = Kind(
    name="translation",
    about="pairs of sentences, to be translated",
    input="pair of texts",
    target="translation",
    options=TranslationData,
    settings=Translation,
    model="odeum.models.translation:TranslationModel",
    task="odeum.lab.tasks.translation:TranslationTask",
    decided=("vocabulary", "length"),
    presets={
        "translation_small": Translation(width=128, heads=2, depth=6, hidden=512, activation="relu"),
        "translation_base": Translation(width=512, heads=8, depth=6, hidden=2048, activation="relu"),
    },
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
