"""Images with a class each."""

from __future__ import annotations

from odeum.kinds.base import Kind, PredictOption
from odeum.settings.data import ImageData
from odeum.settings.model import Vision

TOP = PredictOption("top", int, "classes shown (none: 3)", 3)

IMAGES = Kind(
    name="images",
    about="images, one class each",
    input="image",
    target="class",
    options=ImageData,
    settings=Vision,
    model="odeum.models.vision:VisionModel",
    task="odeum.lab.tasks.images:ImageTask",
    decided=("classes", "image_size", "channels"),
    presets={
        "deit_tiny": Vision(width=192, heads=3),
        "deit_small": Vision(width=384, heads=6),
        "deit_base": Vision(width=768, heads=12),
        "vit_32": Vision(
            width=96, heads=3, depth=6, image_size=32, patch_size=4, classes=100, pooling="mean", stem="convolution"
        ),
        "vit_8": Vision(width=64, heads=4, depth=2, image_size=8, patch_size=2, channels=1, classes=10, pooling="mean"),
    },
    sets=("digits", "cifar10", "cifar100", "cifar100-coarse", "fashion-mnist"),
    predict_options=(TOP,),
    recognises="odeum.lab.data.sniffing:holds_images",
)
