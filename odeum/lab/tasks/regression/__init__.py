"""Texts or images with one number each: two kinds that share their metrics and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from odeum.lab.tasks.classification import ClassificationData
from odeum.lab.tasks.images import ImageData
from odeum.lab.tasks.kind import Kind
from odeum.models.settings import IMAGE_REGRESSION as IMAGE_REGRESSION_MODEL
from odeum.models.settings import REGRESSION as REGRESSION_MODEL


@dataclass(frozen=True)
class RegressionData(ClassificationData):
    """Texts, one number each."""

    label_column: str | None = None
    """column of the number (default: recognised)"""


@dataclass(frozen=True)
class ImageRegressionData(ImageData):
    """Images, one number each, named in labels.csv."""

    augment: Literal["none", "light"] = "none"
    """light: random crops and flips; use only if they do not change the number"""
    label_column: str | None = None
    """column of the number in labels.csv (default: recognised)"""


REGRESSION = Kind(
    name="regression",
    about="texts, one number each",
    input="text",
    target="number",
    options=RegressionData,
    model=REGRESSION_MODEL,
    task="odeum.lab.tasks.regression.task:RegressionTask",
    decided=("vocabulary", "length"),
    recognises="odeum.lab.data.numbers:holds_numbered_texts",
)

IMAGE_REGRESSION = Kind(
    name="image-regression",
    about="images, one number each in labels.csv",
    input="image",
    target="number",
    options=ImageRegressionData,
    model=IMAGE_REGRESSION_MODEL,
    task="odeum.lab.tasks.regression.task:ImageRegressionTask",
    decided=("image_size", "channels"),
    recognises="odeum.lab.data.numbers:holds_numbered_images",
)
