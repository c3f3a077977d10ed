"""Readers of image sets: digits, CIFAR, IDX files, and a folder with one sub-folder a class."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odeum.data.files import IMAGES, entries, files_below, read_lines
from odeum.data.homes import locate
from odeum.data.split_names import PARTS, whole_name
from odeum.data.splits import hold_out, stratified
from odeum.errors import OdeumError

Part = tuple[Tensor, Tensor]  # uint8 [n, channels, height, width], class indices [n]

FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@dataclass
class Pictures:
    """What a reader gives: the parts, the names of the classes, and whether a mirror image is the same thing."""

    parts: dict[str, Part]
    classes: list[str]
    mirrors: bool = True


def named(name: str) -> Pictures:
    """One of the named sets."""
    return {"digits": digits, "cifar10": cifar10, "cifar100": cifar100, "fashion-mnist": fashion}[name]()


def with_valid(train: Part, test: Part, classes: list[str], where: str, mirrors: bool = True) -> Pictures:
    """Hold a tenth of the training part (at most 5000) out for validation, always the same."""
    rest, valid = _cut(train, 1, where)
    return Pictures({"train": rest, "valid": valid, "test": test}, classes, mirrors)


def _cut(train: Part, count: int, where: str) -> list[Part]:
    return [(train[0][rows], train[1][rows]) for rows in stratified(train[1], (0.1,) * count, where)]


def digits() -> Pictures:
    """1,797 8×8 scans that come with scikit-learn: the offline default; 70 / 10 / 20 % by a fixed split."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.from_numpy((raw.images * (255 / 16)).round().astype(np.uint8))[:, None]
    labels = torch.from_numpy(raw.target.astype(np.int64))
    rows = dict(zip(("train", "valid", "test"), stratified(labels, (0.1, 0.2), "digits"), strict=True))
    return Pictures({k: (images[r], labels[r]) for k, r in rows.items()}, [str(i) for i in range(10)], mirrors=False)


def _records(path: Path, header: int, classes: int) -> Part:
    """CIFAR's binary records: label bytes, the last of which counts, then 3×32×32 values."""
    raw = np.fromfile(path, dtype=np.uint8)
    size = header + 3072
    if raw.size == 0 or raw.size % size:
        raise OdeumError(f"'{path}' has {raw.size} bytes, not a whole number of {size}-byte CIFAR records")
    table = torch.from_numpy(raw.reshape(-1, size))
    labels = table[:, header - 1].long()
    if int(labels.max()) >= classes:
        raise OdeumError(f"'{path}' has the label {int(labels.max())}, but there are {classes} classes")
    return table[:, header:].reshape(-1, 3, 32, 32).contiguous(), labels


def _names(path: Path, count: int) -> list[str]:
    names = [line for line in read_lines(path) if line.strip()] if path.exists() else []
    return names if len(names) == count else [str(i) for i in range(count)]


def cifar100() -> Pictures:
    folder = locate("cifar100", "cifar-100-binary", ["train.bin", "test.bin"])
    train, test = (_records(folder / f"{part}.bin", 2, 100) for part in ("train", "test"))
    return with_valid(train, test, _names(folder / "fine_label_names.txt", 100), "cifar100")


def cifar10() -> Pictures:
    files = [f"data_batch_{i}.bin" for i in range(1, 6)]
    folder = locate("cifar10", "cifar-10-batches-bin", [*files, "test_batch.bin"])
    batches = [_records(folder / f, 1, 10) for f in files]
    train = torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])
    test = _records(folder / "test_batch.bin", 1, 10)
    return with_valid(train, test, _names(folder / "batches.meta.txt", 10), "cifar10")


def _idx(folder: Path, name: str) -> Tensor:
    """An IDX file, gzipped or not: two zero bytes, type 8 (bytes), number of axes, their sizes, the values."""
    path = folder / name
    raw = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    axes = raw[3] if len(raw) > 4 and raw[:3] == b"\x00\x00\x08" else 0
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    if not axes or len(raw) != 4 + 4 * axes + int(np.prod(shape)):
        raise OdeumError(f"'{path}' is not a whole IDX file of bytes")
    return torch.frombuffer(bytearray(raw[4 + 4 * axes :]), dtype=torch.uint8).view(shape)


def fashion() -> Pictures:
    files = [f"{p}-{x}-ubyte" for p in ("train", "t10k") for x in ("images-idx3", "labels-idx1")]
    try:
        folder = locate("fashion-mnist", "fashion-mnist", [f"{f}.gz" for f in files])
    except OdeumError:
        folder = locate("fashion-mnist", "fashion-mnist", files)
    train, test = ((_idx(folder, a)[:, None], _idx(folder, b).long()) for a, b in (files[:2], files[2:]))
    return with_valid(train, test, list(FASHION), "fashion-mnist")


# a folder of images


def open_image(path: Any, channels: int | None, size: tuple[int, int] | None) -> Any:
    """A PIL image of that mode and size; a file that is no image is named."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if size:
                image.draft(None, (2 * size[0], 2 * size[1]))  # large JPEGs are decoded at a fraction of their size
            image.load()
            if image.mode.startswith("I;16"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if channels is not None:
                flat = (
                    image.convert("RGBA") if image.mode in ("P", "PA", "LA") or "transparency" in image.info else image
                )
                if flat.mode == "RGBA":  # transparent means white paper
                    flat = Image.alpha_composite(Image.new("RGBA", flat.size, "white"), flat)
                image = flat.convert("L" if channels == 1 else "RGB")
            return image.resize(size, Image.Resampling.BILINEAR) if size and image.size != size else image.copy()
    except FileNotFoundError:
        raise OdeumError(f"there is no file '{path}'") from None
    except IsADirectoryError:
        raise OdeumError(f"'{path}' is a folder; give the image files in it") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise OdeumError(f"'{path}' is not a readable image; repair it or take it out") from None


def image_tensor(path: Any, channels: int, size: int) -> Tensor:
    """uint8 [channels, size, size]"""
    array = np.asarray(open_image(path, channels, (size, size)))
    return torch.from_numpy(array.copy()).view(size, size, channels).permute(2, 0, 1)


def _class_folders(folder: Path) -> dict[str, list[Path]]:
    found = {}
    for sub in (p for p in entries(folder) if p.is_dir()):
        files = sorted(p for p in files_below(sub) if p.suffix.lower() in IMAGES)
        if files:
            found[sub.name] = files
    return found


def folder(path: Path, size: int | None = None) -> Pictures:
    """Class = sub-folder; with sub-folders train, valid, test of class folders if there are such."""
    given = {}
    for split in PARTS:
        subs = [p for p in entries(path) if p.is_dir() and whole_name(p.name) == split]
        if subs and (found := _class_folders(subs[0])):
            given[split] = found
    if "train" not in given:
        given = {"train": _class_folders(path)}
    classes = list(given["train"])
    if not classes:
        raise OdeumError(f"'{path}' has no sub-folders with images; expected one sub-folder a class")
    if len(classes) < 2:
        raise OdeumError(f"'{path}' has only one class, '{classes[0]}'; at least two sub-folders of images are needed")
    for split, found in given.items():
        if unseen := sorted(set(found) - set(classes)):
            raise OdeumError(
                f"the class '{unseen[0]}' of the {split} part of '{path}' never occurs in its training part"
            )
    channels, side = _common(given["train"], size)
    parts = {split: _load(found, classes, channels, side) for split, found in given.items()}
    return Pictures(hold_out(parts, lambda train, count: _cut(train, count, str(path))), classes)


def _load(found: dict[str, list[Path]], classes: list[str], channels: int, size: int) -> Part:
    index = {name: i for i, name in enumerate(classes)}
    files = [(file, index[name]) for name, group in found.items() for file in group]
    return torch.stack([image_tensor(f, channels, size) for f, _ in files]), torch.tensor([label for _, label in files])


def _common(found: dict[str, list[Path]], size: int | None, largest: int = 64) -> tuple[int, int]:
    """Channels and side for all: grey only if all looked at are grey; small images keep their size."""
    sample = [group[i * len(group) // 8] for group in found.values() for i in range(min(8, len(group)))][:400]
    looked = [open_image(file, None, None) for file in sample]
    channels = 1 if all(image.mode in ("1", "L", "I", "I;16", "F") for image in looked) else 3
    sides = sorted(max(image.size) for image in looked)
    side = min(sides[len(sides) // 2], largest)
    return channels, size or (side if side <= 16 else side // 4 * 4)
