"""Images in memory, of Pillow, NumPy or torch, converted as a file with the same pixels would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from odeum.errors import OdeumError
from odeum.lab.data.image_files import Fit, read_image, squared

CHANNELS = (1, 3, 4)
"""numbers of channels of an image: grey, RGB, RGBA"""


def image_input(item: Any, channels: int, size: int, fit: Fit) -> Tensor:
    """A path, a Pillow image, an array or a tensor as uint8 [channels, size, size].

    Values are integers from 0 to 255 or floats from 0 to 1. Channels are the only outer axis of size 1, 3 or 4; if
    both are, the first of a tensor and the last of an array. A uint8 tensor of the right shape is used unchanged.
    """
    if isinstance(item, str | Path):
        return read_image(Path(item), channels, size, fit)
    if isinstance(item, Image.Image):
        return squared(item, channels, size, fit)
    if isinstance(item, Tensor):
        if item.dtype == torch.uint8 and item.shape == (channels, size, size):
            return item.detach().cpu()
        return squared(_to_pillow(item.detach().cpu().numpy(), first=True), channels, size, fit)
    if isinstance(item, np.ndarray):
        return squared(_to_pillow(item, first=False), channels, size, fit)
    raise OdeumError(
        f"an image must be a path, a Pillow image, an array or a tensor, not {type(item).__name__}; use PIL.Image.open"
    )


def refuse_single_image(inputs: Any) -> None:
    """Raise `OdeumError` for one image, or an ambiguous batch of three dimensions."""
    if isinstance(inputs, Image.Image):
        raise OdeumError("give a list of images, not a single image; put it into a list")
    if isinstance(inputs, Tensor | np.ndarray) and inputs.ndim != 4:
        shape = list(inputs.shape)
        raise OdeumError(f"give a list of images, or a batch of four dimensions, not one of shape {shape}")


def _to_pillow(array: np.ndarray, first: bool) -> Image.Image:
    """An array as a Pillow image; `first` decides between channels first and last if both are possible."""
    if array.ndim == 2:
        array = array[:, :, None]
    sides = [axis for axis in ((0, 2) if first else (2, 0)) if array.ndim == 3 and array.shape[axis] in CHANNELS]
    if not sides or 0 in array.shape:
        raise OdeumError(
            f"an image must be [height, width], with 1, 3 or 4 channels first or last, not {list(array.shape)}"
        )
    array = _as_bytes(np.moveaxis(array, sides[0], -1))
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """uint8 values from integers in [0, 255] or floats in [0, 1]; raises `OdeumError` for others."""
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.integer) and not np.issubdtype(array.dtype, np.floating):
        raise OdeumError(f"an image must have integer or float values, not {array.dtype}")
    most = 255 if np.issubdtype(array.dtype, np.integer) else 1
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= most):  # also for NaN
        raise OdeumError(
            f"an image of type {array.dtype} must have values from 0 to {most}, not from {low:.4g} to {high:.4g}; "
            "give it before normalisation"
        )
    return np.ascontiguousarray(np.rint(array * (255 // most)).astype(np.uint8))
