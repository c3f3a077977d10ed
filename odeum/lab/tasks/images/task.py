"""Image classification."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.lab.data import augment, image_files, pictures
from odeum.lab.tasks.base import Batch
from odeum.lab.tasks.classes import Classes, top_classes
from odeum.lab.tasks.image_base import ImageInputTask, check_folder, repeated_images, statistics
from odeum.lab.tasks.images import ImageData
from odeum.lab.tasks.kind import DATA_SETS, Data
from odeum.lab.train.settings import Training
from odeum.models.settings import PRESETS, Vision
from odeum.storage import expanded

# sized for a laptop: digits in about 15 seconds per run, CIFAR-100 in about 20 minutes
RECIPES: dict[str, Training] = {
    "digits": Training(epochs=20, batch_size=32, learning_rate=4e-3, warmup=0.1, weight_decay=0.05),
    "cifar100": Training(epochs=20, batch_size=64, weight_decay=0.05, label_smoothing=0.1),
    "other": Training(epochs=20, batch_size=64, weight_decay=0.05, label_smoothing=0.1),
}
RECIPES["cifar10"] = RECIPES["cifar100-coarse"] = RECIPES["fashion-mnist"] = RECIPES["cifar100"]


class ImageTask(Classes, ImageInputTask):
    """Images of one size with one class each."""

    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    top5 = True

    def __init__(
        self,
        name: str,
        options: ImageData,
        classes: list[str],
        size: int,
        mean: list[float],
        std: list[float],
        mirrors: bool = True,
        parts: dict[str, pictures.ImageSplit] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, size, mean, std, mirrors, parts, source)
        self.classes = classes

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: ImageData, like: Any = None) -> ImageTask:
        if like is not None:
            options = dataclasses.replace(options, size=like.size, fit=like.options.fit)
        check_folder(more, options.size)
        known = str(data) in DATA_SETS
        folder = expanded(data)
        if known:
            data_set = pictures.named_images(str(data), options.fold)
        else:
            data_set = image_files.folder(folder, options.size, options.fit, options.fold, options.strict)
        if (most := options.train_examples) is not None:
            images, labels = data_set.parts["train"]
            if most > len(images):
                raise OdeumError(f"train_examples={most} are more than the {len(images)} training images of '{data}'")
            some = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:most].sort().values
            data_set.parts["train"] = images[some], labels[some]
        images = data_set.parts["train"][0]
        mean, std = statistics(images) if like is None else (like.mean, like.std)
        if images.shape[1] != len(mean):
            raise OdeumError(f"the images of '{data}' have {images.shape[1]} channels, and the model takes {len(mean)}")
        name = str(data) if known else Path(data).resolve().name
        size = options.size or images.shape[-1]
        task = cls(name, options, data_set.classes, size, mean, std, data_set.mirrors, data_set.parts, [str(data)])
        task.notes, task.origins, task.examples = data_set.notes, data_set.origins, data_set.examples
        task.check_data(repeated_images({part: images for part, (images, _) in data_set.parts.items()}))
        return task

    def model(self) -> Vision:
        base = PRESETS["vit_8" if self.size <= 12 else "vit_32"]
        assert isinstance(base, Vision)
        return self.sized_for_data(base)

    def training(self) -> Training:
        return self.with_default_rate(RECIPES.get(self.name, RECIPES["other"]), self.model())

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        images, labels = (x[rows] for x in self.parts["train"])
        level = self.options.augment
        if level != "none":
            images = self.augment_lightly(images, random)
        if level != "deit":
            return {"images": self.normalised(images), "labels": labels}
        mixed = self.normalised(augment.rand_augment(images.float().div(255), random).mul(255))
        mixed, shares = augment.mix(mixed, labels, len(self.classes), random)
        return {"images": augment.erase(mixed, 0.25, random), "labels": shares}

    def predict(self, model: nn.Module, inputs: Iterable[Any], top: int = 5, **_: Any) -> list[list[tuple[str, float]]]:
        """The most likely classes of images, with probabilities."""
        return [
            answer for logits in self.apply_head(model, inputs) for answer in top_classes(logits, self.classes, top)
        ]

    def format_answer(self, question: str, answer: Sequence[tuple[str, float]]) -> str:
        return f"{question}\t{super().format_answer(question, answer)}"

    def record(self) -> dict[str, Any]:
        return {"classes": self.classes, **super().record()}

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> ImageTask:
        assert isinstance(options, ImageData)
        return cls(name, options, *(record[k] for k in ("classes", "size", "mean", "std", "mirrors")))
