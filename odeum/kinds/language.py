"""Running text and the token that comes next."""

from __future__ import annotations

from odeum.kinds.base import Kind, PredictOption
from odeum.settings.data import LanguageData
from odeum.settings.model import Language

LANGUAGE = Kind(
    name="language",
    about="running text, to be continued",
    input="text",
    target="next token",
    options=LanguageData,
    settings=Language,
    model="odeum.models.language:LanguageModel",
    task="odeum.lab.tasks.language:LanguageTask",
    decided=("vocabulary", "length"),
    presets={
        "language_small": Language(width=128, heads=2, depth=6, hidden=512, activation="relu", length=512),
        "language_base": Language(width=512, heads=8, depth=6, hidden=2048, activation="relu", length=512),
    },
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
