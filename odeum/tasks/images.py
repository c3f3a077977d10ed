"""Image classification: which class does a picture show?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odeum.data import augment, image_files, pictures
from odeum.data.splits import mixed
from odeum.errors import OdeumError
from odeum.kinds import MODELS, NAMED
from odeum.settings.data import Data, ImageData
from odeum.settings.model import Model, Vision
from odeum.settings.training import Training
from odeum.tasks.base import Batch, Classes, Task, evaluating, even_batches, generator, top_classes

# sized for a laptop: digits in about 15 seconds a run, CIFAR-100 in about 20 minutes
RECIPES: dict[str, Training] = {
    "digits": Training(epochs=20, batch_size=32, learning_rate=3e-3, warmup=0.1, weight_decay=0.05),
    "cifar100": Training(epochs=20, batch_size=64, learning_rate=1e-3, weight_decay=0.05, label_smoothing=0.1),
    "other": Training(epochs=20, batch_size=64, learning_rate=1e-3, weight_decay=0.05, label_smoothing=0.1),
}
RECIPES["cifar10"] = RECIPES["fashion-mnist"] = RECIPES["cifar100"]
CHUNK = 256  # images of an evaluation at once


class ImageTask(Classes, Task):
    """Pictures of one size with one class each."""

    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    options: ImageData

    def __init__(
        self,
        name: str,
        options: ImageData,
        classes: list[str],
        size: int,
        mean: list[float],
        std: list[float],
        mirrors: bool = True,
        parts: dict[str, pictures.Part] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, source)
        self.classes, self.size, self.mirrors, self.parts = classes, size, mirrors, parts or {}
        self.mean, self.std = mean, std
        # images are bytes, so normalise from [0, 255]
        self._mean = torch.tensor(mean)[None, :, None, None] * 255
        self._scale = 1 / (torch.tensor(std)[None, :, None, None] * 255)

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: ImageData) -> ImageTask:
        if more:
            raise OdeumError(f"'{more[0]}' is one folder too many: images are read from one, and its sub-folders")
        if options.size is not None and options.size < 4:
            raise OdeumError(f"size of the images should be at least 4, not {options.size}")
        known = str(data) in NAMED
        folder = Path(data).expanduser()
        found = pictures.named(str(data)) if known else image_files.folder(folder, options.size, options.fit)
        images = found.parts["train"][0]
        sample = images[:: max(1, len(images) // 10_000)].float().div(255)
        mean, std = sample.mean((0, 2, 3)).tolist(), sample.std((0, 2, 3)).clamp_min(1e-3).tolist()
        name = str(data) if known else Path(data).resolve().name
        size = options.size or images.shape[-1]
        task = cls(name, options, found.classes, size, mean, std, found.mirrors, found.parts, [str(data)])
        task.notes = found.notes
        return task

    @property
    def has_data(self) -> bool:
        return bool(self.parts)

    def facts(self) -> dict[str, Any]:
        return {"classes": len(self.classes), "image_size": self.size, "channels": len(self.mean)}

    def model(self) -> Vision:
        base = MODELS["vit_8" if self.size <= 12 else "vit_32"]
        assert isinstance(base, Vision)
        divisors = [p for p in range(1, self.size + 1) if self.size % p == 0]
        wanted = 4 if self.size <= 12 else 8  # patches a side
        patch = min(divisors, key=lambda p: abs(self.size / p - wanted))
        stem = base.stem if patch in (2, 4, 8, 16) else "patch"  # convolutions halve
        return dataclasses.replace(base, patch_size=patch, stem=stem, **self.facts())

    def fit(self, model: Model) -> Model:
        fitted = super().fit(model)
        assert isinstance(fitted, Vision)
        if self.size % fitted.patch_size:
            raise OdeumError(
                f"patch_size {fitted.patch_size} does not divide the {self.size}×{self.size} images of {self.name}; "
                "choose another, or give the images another size"
            )
        return fitted

    def training(self) -> Training:
        return RECIPES.get(self.name, RECIPES["other"])

    def identity(self) -> Iterator[Tensor | str]:
        yield ",".join(self.classes)
        for images, labels in self.parts.values():
            yield images
            yield labels

    def plan(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        return even_batches(len(self.parts["train"][1]), batch_size, generator(seed, epoch))

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        images, labels = (x[rows] for x in self.parts["train"])
        level = self.options.augment
        if level != "none":
            images = self._moved(images, random)
        if level != "deit":
            return {"images": self.normalised(images), "labels": labels}
        mixed = self.normalised(augment.rand_augment(images.float().div(255), random).mul(255))
        mixed, shares = augment.mix(mixed, labels, len(self.classes), random)
        return {"images": augment.erase(mixed, 0.25, random), "labels": shares}

    def _moved(self, images: Tensor, random: torch.Generator) -> Tensor:
        if not self.mirrors:
            return augment.jitter(images.float(), random)
        return augment.flip(augment.shift(images, max(1, images.shape[-1] // 8), random), random)

    def normalised(self, images: Tensor) -> Tensor:
        x = images.float().sub(self._mean).mul_(self._scale)
        if x.shape[-1] == self.size:
            return x
        return F.interpolate(x, size=(self.size, self.size), mode="bilinear", antialias=True)

    def evaluate(
        self, model: nn.Module, split: str = "valid", device: Any = None, limit: int | None = None
    ) -> dict[str, float]:
        self.need_data(split)
        images, labels = self.parts[split]
        if limit is not None and limit < len(labels):
            rows = mixed(len(labels), limit)
            images, labels = images[rows], labels[rows]
        loss = right = right5 = 0.0
        with evaluating(model, device) as place:
            for x, y in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
                target = y.to(place)
                logits = model(self.normalised(x).to(place)).logits.float()
                loss += F.cross_entropy(logits, target, reduction="sum").item()
                hits = logits.topk(min(5, len(self.classes))).indices == target[:, None]
                right += hits[:, 0].sum().item()
                right5 += hits.sum().item()
        count = len(labels)
        return {"loss": loss / count, "accuracy": right / count, "top5": right5 / count}

    def prepare(self, item: Any) -> Tensor:
        """An image file as the bytes that the model was trained on."""
        if isinstance(item, Tensor):
            return item
        return image_files.read_image(Path(item), len(self.mean), self.size, self.options.fit)

    def predict(self, model: nn.Module, inputs: Iterable[Any], top: int = 5, **_: Any) -> list[list[tuple[str, float]]]:
        """The likeliest classes, with probabilities, of image files (or of what `prepare` made of them)."""
        files, answers = list(inputs), []
        with evaluating(model) as place:
            for start in range(0, len(files), CHUNK):
                images = torch.stack([self.prepare(file) for file in files[start : start + CHUNK]])
                logits = model(self.normalised(images).to(place)).logits
                answers += top_classes(logits, self.classes, top)
        return answers

    def shown(self, question: str, answer: Sequence[tuple[str, float]]) -> str:
        return f"{question}\t{super().shown(question, answer)}"

    def record(self) -> dict[str, Any]:
        return {"classes": self.classes, "size": self.size, "mean": self.mean, "std": self.std, "mirrors": self.mirrors}

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> ImageTask:
        assert isinstance(options, ImageData)
        return cls(name, options, *(record[k] for k in ("classes", "size", "mean", "std", "mirrors")))
