"""Image augmentation on whole batches, different for each sample, drawn from one generator.

Images are float [batch, channels, height, width] in [0, 1] unless stated otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

MIXUP, ROUNDS, MAGNITUDE = 0.8, 2, 0.9
"""of DeiT: parameter of mixup's beta distribution; operations per sample of RandAugment, and their strength"""


def draw_uniform(shape: int | tuple[int, ...], random: Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.rand(shape, generator=random) * (high - low) + low


def chance(count: int, probability: float, random: Generator) -> Tensor:
    return torch.rand(count, generator=random) < probability


def per_sample(x: Tensor) -> Tensor:
    """[batch] -> [batch, 1, 1, 1]"""
    return x[:, None, None, None]


def shift(images: Tensor, pad: int, random: Generator) -> Tensor:
    """Pad with zeros and crop back at a random place (any dtype)."""
    batch, _, height, width = images.shape
    dy, dx = torch.randint(0, 2 * pad + 1, (2, batch), generator=random)
    views = F.pad(images, (pad,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    return views[torch.arange(batch), :, dy, dx]


def flip(images: Tensor, random: Generator) -> Tensor:
    """Mirror half of the images (any dtype)."""
    return torch.where(per_sample(chance(len(images), 0.5, random)), images.flip(-1), images)


def jitter(images: Tensor, random: Generator) -> Tensor:
    """Rotate, zoom, shear and translate each image slightly (at most 1/16 of its side); the outside is zero.

    For small digits and letters, where a whole pixel is too much and a mirror image is another class.
    """
    count = len(images)
    angle, zoom = draw_uniform(count, random, -0.2, 0.2), draw_uniform(count, random, 0.9, 1.1)
    shear, move_x, move_y = draw_uniform((3, count), random, -0.12, 0.12)
    across, up = zoom * angle.cos(), zoom * angle.sin()
    matrices = torch.stack([across, shear - up, move_x, up, across, move_y], 1).view(-1, 2, 3)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def beta(count: int, alpha: float, random: Generator) -> Tensor:
    """Samples of Beta(alpha, alpha), alpha ≤ 1, by Jöhnk's rejection, 32 trials each."""
    x, y = torch.rand((2, 32, count), generator=random) ** (1 / alpha)
    first = (x + y <= 1).byte().argmax(0, keepdim=True)
    x, y = x.gather(0, first)[0], y.gather(0, first)[0]
    return x / (x + y).clamp_min(1e-12)


def boxes(height: int, width: int, share: Tensor, aspect: Tensor, random: Generator) -> Tensor:
    """Masks [batch, 1, height, width] of one random box per sample with the given share of the area, clipped."""
    count = len(share)
    half_h = per_sample((share * aspect).sqrt() * height / 2)
    half_w = per_sample((share / aspect).sqrt() * width / 2)
    y = per_sample(draw_uniform(count, random, 0, height)) - torch.arange(height)[None, None, :, None] - 0.5
    x = per_sample(draw_uniform(count, random, 0, width)) - torch.arange(width)[None, None, None, :] - 0.5
    return (y.abs() <= half_h) & (x.abs() <= half_w)


def mix(images: Tensor, labels: Tensor, classes: int, random: Generator) -> tuple[Tensor, Tensor]:
    """Mixup or CutMix (half of the samples each) with a random other sample; labels become class shares."""
    count, _, height, width = images.shape
    other = torch.randperm(count, generator=random)
    cut = chance(count, 0.5, random)
    keep = torch.where(cut, draw_uniform(count, random), beta(count, MIXUP, random))
    box = boxes(height, width, 1 - keep, torch.ones(count), random)
    weight = torch.where(per_sample(cut), (~box).to(images.dtype), per_sample(keep))
    mixed = weight * images + (1 - weight) * images[other]
    share = weight.expand(count, 1, height, width).mean((1, 2, 3))[:, None]
    target = F.one_hot(labels, classes).to(images.dtype)
    return mixed, share * target + (1 - share) * target[other]


def erase(images: Tensor, probability: float, random: Generator) -> Tensor:
    """Random erasing of normalised images: replace a box by noise (Zhong et al. 2017, with the settings of DeiT)."""
    count, _, height, width = images.shape
    share = draw_uniform(count, random, 0.02, 1 / 3)
    aspect = draw_uniform(count, random, math.log(0.3), math.log(1 / 0.3)).exp()
    mask = boxes(height, width, share, aspect, random) & per_sample(chance(count, probability, random))
    return torch.where(mask, torch.randn(images.shape, generator=random), images)


# RandAugment (Cubuk et al. 2020) as timm's rand-m9-mstd0.5-inc1: strength grows with `level` in [0, 1]


def affine(images: Tensor, matrices: Tensor) -> Tensor:
    """Apply affine matrices [batch, 2, 3] to the images; grey outside."""
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images - 0.5, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + 0.5


def grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x
    return (x * torch.tensor([0.299, 0.587, 0.114])[None, :, None, None]).sum(1, keepdim=True)


def blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return (other + per_sample(factor) * (x - other)).clamp(0, 1)


def auto_contrast(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)


def equalize(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    planes = (x * 255).round().long().flatten(2)
    count = torch.zeros(*planes.shape[:2], 256).scatter_add_(2, planes, torch.ones(planes.shape))
    rank = count.cumsum(2)
    least = torch.where(count > 0, rank, math.inf).amin(2, keepdim=True)
    spread = (planes.shape[2] - least).clamp_min(1)
    return ((rank - least) / spread).clamp(0, 1).gather(2, planes).view_as(x)


def invert(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return 1 - x


def posterize(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    steps = per_sample(2 ** (4 - (level * 4).floor()).clamp(1, 8))
    return (x * 255 / 256 * steps * 16).floor() / (steps * 16)


def solarize(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return torch.where(x < 1 - per_sample(level), x, 1 - x)


def solarize_add(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return torch.where(x < 0.5, (x + per_sample(level) * 110 / 255).clamp(max=1), x)


def colour(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return blend(x, grey(x), 1 + 0.9 * sign * level)


def contrast(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return blend(x, grey(x).mean((1, 2, 3), keepdim=True), 1 + 0.9 * sign * level)


def brightness(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return blend(x, torch.zeros_like(x), 1 + 0.9 * sign * level)


def sharpness(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    channels = x.shape[1]
    kernel = torch.tensor([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]]).div(13).expand(channels, 1, 3, 3)
    smooth = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel, groups=channels)
    return blend(x, smooth, 1 + 0.9 * sign * level)


COLOURS = (auto_contrast, equalize, invert, posterize, solarize, solarize_add, colour, contrast, brightness, sharpness)
MOVES = 5  # rotate, shear x, shear y, translate x, translate y


def rand_augment(images: Tensor, random: Generator) -> Tensor:
    """Apply to each sample twice, with probability ½, one of 15 operations of strength about `MAGNITUDE`."""
    count = len(images)
    for _ in range(ROUNDS):
        level = (MAGNITUDE + 0.05 * torch.randn(count, generator=random)).clamp(0, 1)
        sign = torch.where(chance(count, 0.5, random), 1.0, -1.0)
        which = torch.randint(0, len(COLOURS) + MOVES, (count,), generator=random)
        which = torch.where(chance(count, 0.5, random), which, -1)
        images = images.clone()
        for index, change in enumerate(COLOURS):
            rows = (which == index).nonzero()[:, 0]
            if len(rows):
                images[rows] = change(images[rows], level[rows], sign[rows])
        rows = (which >= len(COLOURS)).nonzero()[:, 0]
        if len(rows):
            moved = _matrices(which[rows] - len(COLOURS), level[rows] * sign[rows])
            images[rows] = affine(images[rows], moved)
    return images


def _matrices(which: Tensor, strength: Tensor) -> Tensor:
    """Affine matrices of the five geometric operations: at most 30°, shear 0.3, translation 0.45 of the side."""
    angle = torch.where(which == 0, strength * math.pi / 6, 0.0)
    shear_x = torch.where(which == 1, strength * 0.3, 0.0)
    shear_y = torch.where(which == 2, strength * 0.3, 0.0)
    move_x = torch.where(which == 3, strength * 0.9, 0.0)
    move_y = torch.where(which == 4, strength * 0.9, 0.0)
    rows = [angle.cos(), -angle.sin() + shear_x, move_x, angle.sin() + shear_y, angle.cos(), move_y]
    return torch.stack(rows, 1).view(-1, 2, 3)
