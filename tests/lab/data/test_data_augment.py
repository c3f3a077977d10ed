"""Augmentation: the right images come out, each sample its own way, from the generator alone, and fast."""

from __future__ import annotations

import time

import pytest
import torch

from odeum.lab.data import augment


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 64, channels: int = 3, size: int = 16) -> torch.Tensor:
    return torch.rand(count, channels, size, size, generator=random(1))


def test_shift_gives_windows_of_the_padded_image_and_differs_between_samples():
    images = (pictures() * 255).byte()
    out = augment.shift(images, 2, random())
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    places = set()
    for image, whole in zip(out, padded, strict=True):
        fits = [(y, x) for y in range(5) for x in range(5) if torch.equal(image, whole[:, y : y + 16, x : x + 16])]
        assert len(fits) == 1
        places |= set(fits)
    assert len(places) > 10


def test_flip_mirrors_about_half():
    images = pictures()
    out = augment.flip(images, random())
    mirrored = (out == images.flip(-1)).flatten(1).all(1)
    assert (mirrored | (out == images).flatten(1).all(1)).all()
    assert 16 < mirrored.sum() < 48


def test_beta_has_its_mean_and_variance():
    for alpha in (0.2, 0.8, 1.0):
        draws = augment.beta(20_000, alpha, random())
        assert draws.mean().item() == pytest.approx(0.5, abs=0.01)
        assert draws.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.01)


def test_mix_gives_labels_the_share_of_the_pixels():
    labels = torch.arange(64) % 10
    images = labels.float()[:, None, None, None].expand(64, 3, 16, 16) / 10  # a pixel's value tells its class
    mixed, shares = augment.mix(images, labels, 10, random())
    assert torch.allclose(shares.sum(1), torch.ones(64))
    assert torch.allclose(mixed.mean((1, 2, 3)), shares @ torch.arange(10.0) / 10, atol=1e-5)
    whole_pixels = (mixed[:, 0] * 10 - (mixed[:, 0] * 10).round()).abs().flatten(1).amax(1) < 1e-5
    assert 0 < whole_pixels.sum() < 64  # some cut, some blended


def test_erase_leaves_most_images_alone():
    images = torch.zeros(400, 3, 16, 16)
    changed = (augment.erase(images, 0.25, random()) != 0).any(1).float().mean((1, 2))
    assert 60 < (changed > 0).sum() < 140
    assert changed.max() < 0.5


def test_affine_by_the_identity_is_the_identity():
    images = pictures()
    identity = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).expand(64, 2, 3)
    assert torch.allclose(augment.affine(images, identity), images, atol=1e-5)


@pytest.mark.parametrize("change", augment.COLOURS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("channels", [1, 3])
def test_colour_changes_stay_in_range_and_change_something(change, channels):
    images = pictures(8, channels) * 0.8 + 0.1
    level, sign = torch.full((8,), 0.9), torch.ones(8)
    out = change(images, level, sign)
    assert out.shape == images.shape
    assert out.min() >= -1e-6
    assert out.max() <= 1 + 1e-6
    if channels == 3 or change is not augment.colour:
        assert not torch.allclose(out, images)


def test_equalize_flattens_the_histogram():
    image = (torch.rand(1, 1, 64, 64, generator=random()) ** 3 * 255).round() / 255
    out = augment.equalize(image, torch.zeros(1), torch.ones(1))
    assert abs(out.mean().item() - 0.5) < 0.1 < abs(image.mean().item() - 0.5)


def test_randaugment_depends_on_its_generator_only():
    images = pictures()
    torch.manual_seed(1)
    first = augment.rand_augment(images, random(3))
    torch.manual_seed(2)
    assert torch.equal(first, augment.rand_augment(images, random(3)))
    other = augment.rand_augment(images, random(4))
    assert not torch.equal(first, other)
    assert torch.isfinite(first).all()
    assert torch.equal(images, pictures())  # the input is not written to


def test_light_augmentation_of_a_cifar_batch_takes_milliseconds():
    images = (pictures(128, 3, 32) * 255).byte()
    best = 1.0
    for seed in range(10):
        begin = time.perf_counter()
        augment.flip(augment.shift(images, 4, random(seed)), random(seed)).float().sub_(120).mul_(0.01)
        best = min(best, time.perf_counter() - begin)
    assert best < 0.010
