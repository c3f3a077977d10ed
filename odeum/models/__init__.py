"""Models: embed → stack → head. Names are imported on first use, so that settings are read without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odeum.models.base import OdeumModel, Output
    from odeum.models.classification import ClassificationModel
    from odeum.models.drop_in import Decoder, Encoder
    from odeum.models.factory import assemble, build, redraw
    from odeum.models.language import LanguageModel
    from odeum.models.masked import MaskedLanguageModel
    from odeum.models.translation import TranslationModel
    from odeum.models.vision import VisionModel

__all__ = [
    "ClassificationModel",
    "Decoder",
    "Encoder",
    "LanguageModel",
    "MaskedLanguageModel",
    "OdeumModel",
    "Output",
    "TranslationModel",
    "VisionModel",
    "assemble",
    "build",
    "redraw",
]

_MODULES = {
    "ClassificationModel": "classification",
    "Decoder": "drop_in",
    "Encoder": "drop_in",
    "LanguageModel": "language",
    "MaskedLanguageModel": "masked",
    "OdeumModel": "base",
    "Output": "base",
    "TranslationModel": "translation",
    "VisionModel": "vision",
    "assemble": "factory",
    "build": "factory",
    "redraw": "factory",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"odeum.models.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'odeum.models' has no attribute '{name}'")
