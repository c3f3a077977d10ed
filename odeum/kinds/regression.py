"""Texts or images with a number each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from odeum.kinds.base import Kind
from odeum.settings.data import ClassificationData, ImageData
from odeum.settings.model import ImageInput, TextInput


@dataclass(frozen=True)
class RegressionData(ClassificationData):
    """Texts, one number each."""

    label_column: str | None = None
    """column of the number (none: recognised)"""


@dataclass(frozen=True)
class ImageRegressionData(ImageData):
    """Images, one number each, named in labels.csv."""

    augment: Literal["none", "light"] = "none"
    """light: shifted crops and flips, where they do not change the number"""
    label_column: str | None = None
    """column of the number in labels.csv (none: recognised)"""


@dataclass(frozen=True)
class Regression(TextInput):
    """A sequence and its number."""


@dataclass(frozen=True)
class ImageRegression(ImageInput):
    """An image and its number."""


REGRESSION = Kind(
    name="regression",
    about="texts, one number each",
    input="text",
    target="number",
    options=RegressionData,
    settings=Regression,
    model="odeum.models.regression:RegressionModel",
    task="odeum.lab.tasks.regression:RegressionTask",
    decided=("vocabulary", "length"),
    presets={"regression_small": Regression(width=64, heads=4, depth=4, activation="relu")},
    recognises="odeum.lab.data.numbers:holds_numbered_texts",
)

IMAGE_REGRESSION = Kind(
    name="image-regression",
    about="images, one number each in labels.csv",
    input="image",
    target="number",
    options=ImageRegressionData,
    settings=ImageRegression,
    model="odeum.models.regression:ImageRegressionModel",
    task="odeum.lab.tasks.regression:ImageRegressionTask",
    decided=("image_size", "channels"),
    presets={
        "image_regression_32": ImageRegression(
            width=96, heads=3, depth=6, image_size=32, patch_size=4, pooling="mean", stem="convolution"
        ),
        "image_regression_8": ImageRegression(
            width=64, heads=4, depth=2, image_size=8, patch_size=2, channels=1, pooling="mean"
        ),
    },
    recognises="odeum.lab.data.numbers:holds_numbered_images",
)
