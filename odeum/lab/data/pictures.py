"""Readers of the named image sets: digits, CIFAR, Fashion-MNIST."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.lab.data.files import read_lines
from odeum.lab.data.homes import locate
from odeum.lab.data.splits import refuse_fold, stratified
from odeum.lab.data.understanding import Origins

ImageSplit = tuple[Tensor, Tensor]  # uint8 [n, channels, height, width], class indices [n]

DIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@dataclass
class ImageDataset:
    """Images and classes by part; `mirrors` is whether a mirror image has the same class."""

    parts: dict[str, ImageSplit]
    classes: list[str]
    mirrors: bool = True
    notes: tuple[str, ...] = ()
    origins: Origins = field(default_factory=dict)
    """the folder of each part; empty for named sets"""
    examples: tuple[str, ...] = ()
    """sample files with their classes"""


def named_images(name: str, fold: int = 0) -> ImageDataset:
    """A named set; only digits, which has no official test part, has more than one fold."""
    if name == "digits":
        return digits(fold)
    refuse_fold(fold)
    readers = {"cifar10": cifar10, "cifar100": cifar100, "cifar100-coarse": cifar100_coarse, "fashion-mnist": fashion}
    return readers[name]()


def with_valid(train: ImageSplit, test: ImageSplit, classes: list[str], where: str) -> ImageDataset:
    """Hold out a tenth of the training part (at most 5000) for validation, by a fixed split."""
    rest, valid = cut_images(train, 1, where)
    return ImageDataset({"train": rest, "valid": valid, "test": test}, classes, True)


def cut_images(train: ImageSplit, count: int, where: str, fold: int = 0) -> list[ImageSplit]:
    """The rest of the training part, then `count` parts of a tenth each."""
    return [(train[0][rows], train[1][rows]) for rows in stratified(train[1], (0.1,) * count, where, fold=fold)]


def digits(fold: int = 0) -> ImageDataset:
    """1,797 8×8 scans that come with scikit-learn: the offline default; 70 / 10 / 20 % by a fixed split."""
    # Reads the file directly: importing scikit-learn takes longer than an epoch of training.
    table = np.loadtxt(Path(str(distribution("scikit-learn").locate_file(DIGITS_FILE))), delimiter=",")
    images = torch.from_numpy((table[:, :-1] * (255 / 16)).round().astype(np.uint8)).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    rows = dict(zip(("train", "valid", "test"), stratified(labels, (0.1, 0.2), "digits", fold=fold), strict=True))
    return ImageDataset(
        {k: (images[r], labels[r]) for k, r in rows.items()}, [str(i) for i in range(10)], mirrors=False
    )


def _records(path: Path, header: int, classes: int, place: int = -1) -> ImageSplit:
    """CIFAR's binary records: `header` label bytes, of which the one at `place` is used, then 3×32×32 values."""
    raw = np.fromfile(path, dtype=np.uint8)
    size = header + 3072
    if raw.size == 0 or raw.size % size:
        raise OdeumError(f"'{path}' has {raw.size} bytes, not a whole number of {size}-byte CIFAR records")
    table = torch.from_numpy(raw.reshape(-1, size))
    labels = table[:, range(header)[place]].long()
    if int(labels.max()) >= classes:
        raise OdeumError(f"'{path}' has the label {int(labels.max())}, but there are {classes} classes")
    return table[:, header:].reshape(-1, 3, 32, 32).contiguous(), labels


def _names(path: Path, count: int) -> list[str]:
    names = [line for line in read_lines(path) if line.strip()] if path.exists() else []
    return names if len(names) == count else [str(i) for i in range(count)]


def cifar100() -> ImageDataset:
    folder = locate("cifar100", "cifar-100-binary", ["train.bin", "test.bin"])
    train, test = (_records(folder / f"{part}.bin", 2, 100) for part in ("train", "test"))
    return with_valid(train, test, _names(folder / "fine_label_names.txt", 100), "cifar100")


def cifar100_coarse() -> ImageDataset:
    """CIFAR-100 with its 20 coarse labels (aquatic mammals, fish, flowers …)."""
    folder = locate("cifar100", "cifar-100-binary", ["train.bin", "test.bin"])
    train, test = (_records(folder / f"{part}.bin", 2, 20, place=0) for part in ("train", "test"))
    return with_valid(train, test, _names(folder / "coarse_label_names.txt", 20), "cifar100-coarse")


def cifar10() -> ImageDataset:
    files = [f"data_batch_{i}.bin" for i in range(1, 6)]
    folder = locate("cifar10", "cifar-10-batches-bin", [*files, "test_batch.bin"])
    batches = [_records(folder / f, 1, 10) for f in files]
    train = torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])
    test = _records(folder / "test_batch.bin", 1, 10)
    return with_valid(train, test, _names(folder / "batches.meta.txt", 10), "cifar10")


def _idx(folder: Path, name: str) -> Tensor:
    """Read an IDX file, gzipped or not: two zero bytes, type 8 (bytes), number of axes, their sizes, values."""
    path = folder / name
    raw = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    axes = raw[3] if len(raw) > 4 and raw[:3] == b"\x00\x00\x08" else 0
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    if not axes or len(raw) != 4 + 4 * axes + int(np.prod(shape)):
        raise OdeumError(f"'{path}' is not a complete IDX file of bytes; copy or download it again")
    return torch.frombuffer(bytearray(raw[4 + 4 * axes :]), dtype=torch.uint8).view(shape)


def fashion() -> ImageDataset:
    files = [f"{p}-{x}-ubyte" for p in ("train", "t10k") for x in ("images-idx3", "labels-idx1")]
    try:
        folder = locate("fashion-mnist", "fashion-mnist", [f"{f}.gz" for f in files])
    except OdeumError:
        folder = locate("fashion-mnist", "fashion-mnist", files)
    train, test = ((_idx(folder, a)[:, None], _idx(folder, b).long()) for a, b in (files[:2], files[2:]))
    return with_valid(train, test, list(FASHION), "fashion-mnist")
