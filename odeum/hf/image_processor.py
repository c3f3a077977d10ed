"""Pictures as the model was trained on them: upright, square, of its size, normalised by its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.image_processing_utils import BaseImageProcessor, BatchFeature

from odeum.errors import OdeumError
from odeum.hf.configuration import write_loader
from odeum.models.pixels import squared


class OdeumImageProcessor(BaseImageProcessor):
    """The preprocessing of image files by `odeum predict`, as an image processor of transformers."""

    model_input_names = ["pixel_values"]  # noqa: RUF012 (declared so by transformers)

    def __init__(
        self,
        side: int = 224,
        image_mean: Sequence[float] = (0.5, 0.5, 0.5),
        image_std: Sequence[float] = (0.5, 0.5, 0.5),
        fit: str = "crop",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.side, self.fit = side, fit
        self.image_mean, self.image_std = list(image_mean), list(image_std)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; also writes a loader for `trust_remote_code=True`."""
        self.auto_map = {"AutoImageProcessor": "modeling_odeum.OdeumImageProcessor"}
        out = super().save_pretrained(save_directory, *args, **kwargs)
        write_loader(save_directory)
        return out

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoImageProcessor") -> None:
        """Do nothing: transformers would copy the file of this class beside the weights, instead of the loader."""

    @property
    def backend(self) -> str:
        """The settings of the preprocessing."""
        return "pil"

    def preprocess(self, images: Any, *args: Any, return_tensors: str | None = "pt", **kwargs: Any) -> BatchFeature:
        """PIL images, or arrays and tensors of bytes [height, width (, channels)]; one or a list of them."""
        many = images if isinstance(images, list | tuple) else [images]
        mean, std = (torch.tensor(x)[:, None, None] * 255 for x in (self.image_mean, self.image_std))
        pixels = [(self._bytes(image).float() - mean) / std for image in many]
        return BatchFeature({"pixel_values": torch.stack(pixels)}, tensor_type=return_tensors)

    def _bytes(self, image: Any) -> Tensor:
        if isinstance(image, Tensor):
            image = image.cpu().numpy()
        if isinstance(image, np.ndarray):
            if image.dtype != np.uint8:
                raise OdeumError(f"an image array must hold bytes from 0 to 255, not {image.dtype}")
            image = Image.fromarray(image)
        if not isinstance(image, Image.Image):
            raise OdeumError(f"an image must be a PIL image or an array of bytes, not {type(image).__name__}")
        return squared(image, len(self.image_mean), self.side, self.fit)  # ty: ignore[invalid-argument-type]
