"""Images with one class each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from odeum.lab.tasks.kind import FOLD, OF_DATA, TOP, Kind
from odeum.models.settings import VISION
from odeum.registry.options import COUNT, check_options


@dataclass(frozen=True)
class ImageData:
    """Pictures, one class each."""

    augment: Literal["none", "light", "deit"] = "light"
    """light: shifted crops and flips (digits: small turns and moves); deit: also RandAugment, mixup, cutmix, erasing"""
    size: Annotated[int | None, COUNT] = None
    """height and width given to the model (none: the pictures' own, at most 64)"""
    train_examples: Annotated[int | None, COUNT] = field(default=None, repr=False)
    """how many of the training images are used, always the same (none: all)"""
    # what it does is in the pixels, by which runs are told apart, so it is no part of the name of the options
    fit: Literal["crop", "squash"] = field(default="crop", repr=False)
    """of images that are not square: crop (the middle square) or squash (all of it, deformed)"""
    fold: Annotated[int, FOLD] = field(default=0, repr=False)
    """of data without a test part of its own: another number holds other examples out"""
    strict: bool = field(default=False, repr=False)
    """refuse images that cannot be read, instead of leaving them out"""

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
    recognises="odeum.lab.data.sniffing:holds_images",
)
