"""Kinds of tasks: one object each, in one registry; a new kind is its own files and a line here, or a plugin's line."""

from __future__ import annotations

from odeum.kinds.base import (
    KINDS,
    MODELS,
    NAMED,
    Kind,
    PredictOption,
    add_kind,
    kind_of_record,
    kind_of_settings,
    kind_of_task,
    like,
    model_named,
)
from odeum.kinds.classification import CLASSIFICATION, LISTOPS
from odeum.kinds.images import IMAGES
from odeum.kinds.language import LANGUAGE
from odeum.kinds.masked import MASKED
from odeum.kinds.regression import IMAGE_REGRESSION, REGRESSION
from odeum.kinds.translation import TRANSLATION

__all__ = [
    "KINDS",
    "MODELS",
    "NAMED",
    "Kind",
    "PredictOption",
    "add_kind",
    "kind_of_record",
    "kind_of_settings",
    "kind_of_task",
    "like",
    "model_named",
]

# the last is asked first what a path holds
for _kind in (MASKED, LANGUAGE, CLASSIFICATION, LISTOPS, TRANSLATION, IMAGES, REGRESSION, IMAGE_REGRESSION):
    add_kind(_kind)
