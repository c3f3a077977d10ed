"""Images that are at hand: of Pillow, NumPy or torch, seen as a file of the same pixels would be."""

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
"""how many a picture may have: grey, colour, colour with transparency"""


def image_input(item: Any, channels: int, size: int, fit: Fit) -> Tensor:
    """A path, a Pillow image, an array or a tensor as bytes [channels, size, size].

    Numbers are bytes from 0 to 255 or fractions from 0 to 1; the channels come first in a tensor and last in an array,
    or stand on the only side where there are 1, 3 or 4 of them. Bytes of the right shape are taken as they are.
    """
    if isinstance(item, str | Path):
        return read_image(Path(item), channels, size, fit)
    if isinstance(item, Image.Image):
        return squared(item, channels, size, fit)
    if isinstance(item, Tensor):
        if item.dtype == torch.uint8 and item.shape == (channels, size, size):
            return item.detach().cpu()
        return squared(_picture(item.detach().cpu().numpy(), first=True), channels, size, fit)
    if isinstance(item, np.ndarray):
        return squared(_picture(item, first=False), channels, size, fit)
    raise OdeumError(
        f"an image is a path, a Pillow image, an array or a tensor, not {type(item).__name__}; open it with PIL.Image"
    )


def refuse_one_picture(inputs: Any) -> None:
    """Three dimensions may be one picture with channels or several grey ones, so a batch has four."""
    if isinstance(inputs, Image.Image):
        raise OdeumError("give a list of images, not a single image; put it into a list")
    if isinstance(inputs, Tensor | np.ndarray) and inputs.ndim != 4:
        shape = list(inputs.shape)
        raise OdeumError(f"give a list of images, or a batch of four dimensions, not one of shape {shape}")


def _picture(array: np.ndarray, first: bool) -> Image.Image:
    """The numbers as a Pillow image; `first` says where the channels stand if both sides could be them."""
    if array.ndim == 2:
        array = array[:, :, None]
    sides = [axis for axis in ((0, 2) if first else (2, 0)) if array.ndim == 3 and array.shape[axis] in CHANNELS]
    if not sides or 0 in array.shape:
        raise OdeumError(
            f"an image is [height, width], with 1, 3 or 4 channels before or after it, not {list(array.shape)}"
        )
    array = _as_bytes(np.moveaxis(array, sides[0], -1))
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """0 … 255, from bytes or from fractions; what is neither, such as normalised numbers, is refused."""
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.integer) and not np.issubdtype(array.dtype, np.floating):
        raise OdeumError(f"an image has bytes or fractions, not numbers of the type {array.dtype}")
    most = 255 if np.issubdtype(array.dtype, np.integer) else 1
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= most):  # also where one is no number
        raise OdeumError(
            f"an image of the type {array.dtype} has numbers from 0 to {most}, not from {low:.4g} to {high:.4g}; "
            "give it as it was before it was normalised"
        )
    return np.ascontiguousarray(np.rint(array * (255 // most)).astype(np.uint8))
