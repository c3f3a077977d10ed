"""Images with one class each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from odeum.lab.tasks.kind import FOLD, OF_DATA, TOP, Kind
from odeum.lab.train.rates import RateRule
from odeum.models.settings import VISION
from odeum.registry.options import COUNT, check_options


@dataclass(frozen=True)
class ImageData:
    """Data options of image classification."""

    augment: Literal["none", "light", "deit"] = "light"
    """light: random crops and flips (digits: small affine maps); deit: also RandAugment, mixup, CutMix, erasing"""
    size: Annotated[int | None, COUNT] = None
    """height and width of the model's input (default: that of the images, at most 64)"""
    train_examples: Annotated[int | None, COUNT] = field(default=None, repr=False)
    """size of a fixed subset of the training images (default: all)"""
    # not in the repr, which is part of the fingerprint: its effect is in the pixels
    fit: Literal["crop", "squash"] = field(default="crop", repr=False)
    """for images that are not square: crop to the central square, or squash"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """index of the fixed split, for data without a test part"""
    strict: bool = field(default=False, repr=False)
    """refuse unreadable images instead of leaving them out"""

    def __post_init__(self) -> None:
        check_options(self, OF_DATA)


IMAGES = Kind(
    name="images",
    about="images, one class each",
    input="image",
    target="class",
    options=ImageData,
    model=VISION,
    task="odeum.lab.tasks.images.task:ImageTask",
    decided=("classes", "image_size", "channels"),
    sets=("digits", "cifar10", "cifar100", "cifar100-coarse", "fashion-mnist"),
    predict_options=(TOP,),
    rates=RateRule(2e-3, 1.0, exceptions=("digits",)),
    recognises="odeum.lab.data.sniffing:holds_images",
)
