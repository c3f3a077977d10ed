"""Decoded images as the models take them: square, upright, grey or RGB, eight bits."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from odeum.errors import OdeumError

Fit = Literal["crop", "squash"]


def squared(image: Image.Image, channels: int, size: int, fit: Fit = "crop") -> Tensor:
    """Return a decoded image as uint8 [channels, size, size], upright by its EXIF orientation, square by `fit`."""
    flat = ImageOps.exif_transpose(_flat(image, channels))
    if fit == "crop" and flat.width != flat.height:
        flat = ImageOps.fit(flat, (size, size), Image.Resampling.BILINEAR)
    elif flat.size != (size, size):
        flat = flat.resize((size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(flat)).view(size, size, channels).permute(2, 0, 1)


def _flat(image: Image.Image, channels: int) -> Image.Image:
    """Grey or RGB; what is transparent becomes white paper. The EXIF data goes with it."""
    exif = image.getexif()
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):  # their 16 bits
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        image = _from_wide_values(np.asarray(image))
    if image.mode in ("P", "PA", "LA") or "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    out = image.convert("L" if channels == 1 else "RGB")
    out.info["exif"] = exif.tobytes()
    return out


def _from_wide_values(numbers: np.ndarray) -> Image.Image:
    """Numbers of 32 bits that are bytes all the same; Pillow would cut fractions to black and others to white."""
    if not (numbers >= 0).all() or numbers.max() > 255 or (numbers % 1 != 0).any():
        raise OdeumError(
            f"the image has 32-bit values from {numbers.min():g} to {numbers.max():g}, which are not bytes; save "
            "it with 8 or 16 bits"
        )
    return Image.fromarray(numbers.astype(np.uint8))
