"""Lines of text with hidden tokens."""

from __future__ import annotations

from odeum.kinds.base import Kind
from odeum.kinds.images import TOP
from odeum.settings.data import MaskedData
from odeum.settings.model import MaskedLanguage

MASKED = Kind(
    name="masked",
    about="lines of text, whose hidden tokens are to be told",
    input="text",
    target="hidden token",
    options=MaskedData,
    settings=MaskedLanguage,
    model="odeum.models.masked:MaskedLanguageModel",
    task="odeum.lab.tasks.masked:MaskedTask",
    decided=("vocabulary", "length"),
    presets={"masked_small": MaskedLanguage(width=128, heads=4, depth=4)},
    predict_options=(TOP,),
)
