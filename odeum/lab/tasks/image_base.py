"""Base class of tasks on images: sizes, normalisation, augmentation and batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odeum.errors import OdeumError
from odeum.lab.data import augment, pictures
from odeum.lab.data.image_inputs import image_input, refuse_single_image
from odeum.lab.data.splits import mixed
from odeum.lab.data.understanding import repeated
from odeum.lab.tasks.base import Batch, Task, evaluating, even_batches, generator
from odeum.lab.tasks.images import ImageData
from odeum.models.limits import SWITCH, available_memory, limits_off, memory_size
from odeum.models.settings import ImageInput, Model

IMAGES_AT_ONCE = 256  # images of an evaluation at once
BATCH = 64  # images of the batch whose memory is checked before images are read


class ImageInputTask(Task):
    """Images of one size with one target each."""

    options: ImageData

    def __init__(
        self,
        name: str,
        options: ImageData,
        size: int,
        mean: list[float],
        std: list[float],
        mirrors: bool = True,
        parts: dict[str, pictures.ImageSplit] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, source)
        self.size, self.mirrors, self.parts = size, mirrors, parts or {}
        self.mean, self.std = mean, std
        # images are bytes, so normalise from [0, 255]
        self._mean = torch.tensor(mean)[None, :, None, None] * 255
        self._scale = 1 / (torch.tensor(std)[None, :, None, None] * 255)

    @property
    def has_data(self) -> bool:
        return bool(self.parts)

    def sizes(self) -> dict[str, int]:
        return {part: len(labels) for part, (_, labels) in self.parts.items()}

    def facts(self) -> dict[str, Any]:
        return {"image_size": self.size, "channels": len(self.mean)}

    def sized_for_data(self, model: ImageInput) -> Any:
        """Model settings with a patch size that suits the images."""
        divisors = [p for p in range(1, self.size + 1) if self.size % p == 0]
        wanted = 4 if self.size <= 12 else 8  # patches a side
        patch = min(divisors, key=lambda p: abs(self.size / p - wanted))
        stem = model.stem if patch in (2, 4, 8, 16) else "patch"  # convolutions halve
        return dataclasses.replace(model, patch_size=patch, stem=stem, **self.facts())

    def fit(self, model: Model) -> Model:
        fitted = super().fit(model)
        assert isinstance(fitted, ImageInput)
        if self.size % fitted.patch_size:
            raise OdeumError(
                f"patch_size {fitted.patch_size} does not divide the {self.size}×{self.size} images of {self.name}; "
                "choose another, or give the images another size"
            )
        return fitted

    def identity(self) -> Iterator[Tensor | str]:
        for images, labels in self.parts.values():
            yield images
            yield labels

    def plan(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        return even_batches(len(self.parts["train"][1]), batch_size, generator(seed, epoch))

    def augment_lightly(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Light augmentation: small shifts, and flips where they keep the class."""
        if not self.mirrors:
            return augment.jitter(images.float(), random)
        return augment.flip(augment.shift(images, max(1, images.shape[-1] // 8), random), random)

    def normalised(self, images: Tensor) -> Tensor:
        """Normalised images of the model's size, from bytes."""
        x = images.float().sub(self._mean).mul_(self._scale)
        if x.shape[-1] == self.size:
            return x
        return F.interpolate(x, size=(self.size, self.size), mode="bilinear", antialias=True)

    def scored(self, model: nn.Module, split: str, device: Any, limit: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs of the model and targets of a part, batch by batch."""
        self.require_data(split)
        images, labels = self.parts[split]
        if limit is not None and limit < len(labels):
            rows = mixed(len(labels), limit)
            images, labels = images[rows], labels[rows]
        with evaluating(model, device) as place:
            for x, y in zip(images.split(IMAGES_AT_ONCE), labels.split(IMAGES_AT_ONCE), strict=True):
                yield model(self.normalised(x).to(place)).logits.float(), y.to(place)

    def sample(self, count: int, split: str = "test") -> Batch:
        self.require_data(split)
        images, labels = self.parts[split]
        return {"images": self.normalised(images[mixed(len(labels), count)])}

    def prepare(self, item: Any) -> Tensor:
        """An image file, or an image of Pillow, NumPy or torch, as bytes of the training size."""
        return image_input(item, len(self.mean), self.size, self.options.fit)

    def input_batches(self, inputs: Iterable[Any]) -> Iterator[Batch]:
        refuse_single_image(inputs)
        items = list(inputs)
        for start in range(0, len(items), IMAGES_AT_ONCE):
            images = torch.stack([self.prepare(item) for item in items[start : start + IMAGES_AT_ONCE]])
            yield {"images": self.normalised(images)}

    def record(self) -> dict[str, Any]:
        return {"size": self.size, "mean": self.mean, "std": self.std, "mirrors": self.mirrors}


def statistics(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel of images given as bytes."""
    sample = images[:: max(1, len(images) // 10_000)].float().div(255)
    return sample.mean((0, 2, 3)).tolist(), sample.std((0, 2, 3)).clamp_min(1e-3).tolist()


def repeated_images(parts: Mapping[str, Tensor]) -> dict[str, int]:
    """How many images of each other part are in the training part too, pixel by pixel."""
    return repeated({part: (hash(image.numpy().tobytes()) for image in images) for part, images in parts.items()})


def check_folder(more: Sequence[str | Path], size: int | None) -> None:
    """Raise OdeumError for several folders, or a size that is too small or does not fit into memory."""
    if more:
        raise OdeumError(f"'{more[0]}' is a second folder, but images are read from one folder and its sub-folders")
    if size is not None and size < 4:
        raise OdeumError(f"size of the images must be at least 4, not {size}")
    needed, available = 4.0 * (size or 0) ** 2 * 3 * BATCH, available_memory()
    if needed > available and not limits_off():
        raise OdeumError(
            f"--data.size {size}: a batch of {BATCH} images takes about {memory_size(needed)}, but only "
            f"{memory_size(available)} are available; choose a smaller size, or set {SWITCH}=off to try anyway"
        )
