"""Image files: read headers, decode to the size of the model, upright and square."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import IMAGE_SUFFIXES, entries, files_below, half_characters, regular
from odeum.lab.data.image_labels import labelled_groups
from odeum.lab.data.pictures import ImageDataset, ImageSplit, cut_images
from odeum.lab.data.split_names import SPLITS, whole_name
from odeum.lab.data.splits import hold_out
from odeum.lab.data.understanding import labelled_examples
from odeum.lab.data.unsupported import refuse_strange_classes
from odeum.models.limits import available_memory
from odeum.models.pixels import Fit, squared

TURNED = {5, 6, 7, 8}  # EXIF orientations that exchange height and width
ORIENTATION = 0x0112
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""decoders that Pillow may use; unrestricted, it would run Ghostscript on a PostScript file named .png"""
LARGEST_SIDE = 64  # largest default side of images
DARK = 32  # smallest largest value of images, of 255, that needs no note
SAMPLE = 400  # number of images from which size and channels are chosen

Groups = dict[str, list[Path]]  # class -> files
T = TypeVar("T")


class Header(NamedTuple):
    """Size and colour of an image, from its header."""

    size: tuple[int, int]
    """width and height after the EXIF orientation is applied"""
    grey: bool


def header(path: Path) -> Header:
    """Read the header of an image without decoding it."""
    with _ImageErrors(path), Image.open(regular(path), formats=FORMATS) as image:
        grey = image.mode in ("1", "L", "I", "F") or image.mode.startswith("I;16")
        width, height = image.size
        turned = image.format != "TIFF" and image.getexif().get(ORIENTATION) in TURNED  # Pillow has applied it for TIFF
        return Header((height, width) if turned else (width, height), grey)


def read_image(path: Path, channels: int, size: int, fit: Fit = "crop") -> Tensor:
    """An image as uint8 [channels, size, size]; applies the EXIF orientation and makes it square by `fit`."""
    with _ImageErrors(path), Image.open(regular(path), formats=FORMATS) as image:
        image.draft(None, (2 * size, 2 * size))  # large JPEGs are decoded at a fraction of their size
        image.load()
        return squared(image, channels, size, fit)


class _ImageErrors:
    """Context in which errors of Pillow are raised as `OdeumError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Image.DecompressionBombError):
            most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
            raise OdeumError(f"'{self.path}' has more than {most:,} pixels; make it smaller") from None
        if isinstance(error, PermissionError):
            raise OdeumError(f"'{self.path}' cannot be read: {error.strerror}") from None
        wrong = (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, MemoryError, OverflowError)
        if isinstance(error, OdeumError):
            raise OdeumError(
                str(error) if str(self.path) in str(error) else f"cannot read '{self.path}': {error}"
            ) from None
        if isinstance(error, wrong):
            raise OdeumError(f"'{self.path}' is not a readable image; repair or remove it") from None


def class_folders(folder: Path) -> Groups:
    """Image files by class: one class per sub-folder with images."""
    groups = {}
    for sub in (p for p in entries(folder) if p.is_dir()):
        files = sorted(p for p in files_below(sub) if p.suffix.lower() in IMAGE_SUFFIXES)
        if files and half_characters(sub.name):
            raise OdeumError(f"the class name '{sub}' is not UTF-8; rename the folder")
        if files:
            groups[sub.name] = files
        elif not any(p.is_file() for p in files_below(sub)):
            notice(f"'{sub}' is empty and is not counted as a class")
    _refuse_equal_sub_folders(folder, groups)
    inner = [file.parent for name, files in groups.items() for file in files if file.parent != folder / name]
    if inner:
        notice(f"images in sub-folders of classes, such as '{inner[0]}', are read as of the class above them")
    return groups


def _refuse_equal_sub_folders(folder: Path, groups: Groups) -> None:
    """Raise `OdeumError` if all sub-folders have the same sub-folders: those of each fold, say, are the classes."""
    inner = [
        {p.relative_to(folder / name).parts[0] for p in files if p.parent != folder / name}
        for name, files in groups.items()
    ]
    if len(inner) > 1 and len(inner[0]) > 1 and all(names == inner[0] for names in inner):
        some = ", ".join(sorted(inner[0])[:4])
        raise OdeumError(
            f"each of {', '.join(groups)} in '{folder}' has the sub-folders {some}, so it is not clear which are the "
            "classes; give one folder with a sub-folder per class, or name the parts train, valid and test"
        )


def folder(path: Path, size: int | None = None, fit: Fit = "crop", fold: int = 0, strict: bool = False) -> ImageDataset:
    """Read images with one class per sub-folder or from labels.csv, in parts if there are folders train, valid, test.

    Unreadable images are left out and counted; with `strict` they raise `OdeumError`.
    """
    if not path.is_dir():
        raise OdeumError(f"'{path}' is a file; images are read from a folder with one sub-folder per class")
    by_part: dict[str, Groups] = {}
    for split in SPLITS:
        subs = [p for p in entries(path) if p.is_dir() and whole_name(p.name) == split]
        if len(subs) > 1:
            raise OdeumError(f"'{subs[0]}' and '{subs[1]}' both seem to be the {split} part; rename one of them")
        if subs and (groups := class_folders(subs[0])):
            by_part[split] = groups
    if "train" not in by_part:
        by_part = labelled_groups(path) or {"train": class_folders(path)}
    refuse_strange_classes(path, by_part["train"])
    origins = {
        split: f"'{path.name}'" if len(by_part) == 1 else f"'{path.name}/{_top(path, groups)}'"
        for split, groups in by_part.items()
    }
    if "test" not in by_part and "valid" in by_part:  # with torchvision's ImageFolder, val is the part reported
        by_part["test"], origins["test"] = by_part.pop("valid"), origins.pop("valid")
    examples = [(str(file.relative_to(path)), name) for name, group in by_part["train"].items() for file in group]
    unreadable: list[OdeumError] | None = None if strict else []
    total = len(_all_files(by_part))
    by_part = {split: _readable(groups, unreadable) for split, groups in by_part.items()}
    classes = list(by_part["train"])
    _check(path, by_part, classes)
    refuse_same_file(_all_files(by_part))
    channels, side = common_shape(by_part["train"], size, fit)
    shapes = [header(file).size for file in _all_files(by_part)]
    index = {name: i for i, name in enumerate(classes)}
    parts: dict[str, ImageSplit] = {}
    for split, groups in by_part.items():
        files = [file for group in groups.values() for file in group]
        labels = torch.tensor([index[name] for name, group in groups.items() for _ in group])
        images, readable = load_readable(files, channels, side, fit, unreadable)
        parts[split] = images, labels[readable]
        if unreadable and split == "train" and len(parts[split][1].unique()) < len(classes):
            raise unreadable[-1]
    refuse_repeated_part(path, {split: images for split, (images, _) in parts.items()})
    parts = hold_out(parts, lambda train, count: cut_images(train, count, str(path), fold), fold)
    notes = fit_note(shapes, fit) + unreadable_note(unreadable, total) + _dark_note(parts["train"][0])
    return ImageDataset(parts, classes, notes=notes, origins=origins, examples=labelled_examples(examples))


def _all_files(by_part: dict[str, Groups]) -> list[Path]:
    return [file for groups in by_part.values() for group in groups.values() for file in group]


def _top(path: Path, groups: Groups) -> str:
    """Name of the sub-folder that contains a part."""
    return next(iter(groups.values()))[0].relative_to(path).parts[0]


def _readable(groups: Groups, unreadable: list[OdeumError] | None) -> Groups:
    """The files of each class with a readable header; raises the error of a class without any."""
    if unreadable is None:
        return groups
    out: Groups = {}
    for name, group in groups.items():
        before = len(unreadable)
        out[name] = [file for file in group if _attempt(lambda file=file: header(file), unreadable) is not None]
        if not out[name]:
            raise unreadable[before]
    return out


def _attempt(read: Callable[[], T], unreadable: list[OdeumError] | None) -> T | None:
    """The result of `read`; None after an error, which is added to `unreadable`."""
    if unreadable is None:
        return read()
    try:
        return read()
    except OdeumError as error:
        unreadable.append(error)
        return None


def unreadable_note(unreadable: list[OdeumError] | None, total: int) -> tuple[str, ...]:
    """A note on images that could not be read."""
    if not unreadable:
        return ()
    return (f"{len(unreadable)} of {total} images were left out: {unreadable[0]} (--data.strict true refuses them)",)


def _dark_note(images: Tensor) -> tuple[str, ...]:
    """A note on images that are almost black, such as numbers of 12 bits in files of 16."""
    most = int(images.max()) if images.numel() else DARK
    if most >= DARK:
        return ()
    return (f"the images are almost black: their largest value is {most} of 255; stretch their values before",)


def _check(path: Path, given: dict[str, Groups], classes: list[str]) -> None:
    if not classes:
        raise OdeumError(f"'{path}' has no sub-folders with images; expected one sub-folder per class")
    if len(classes) < 2:
        raise OdeumError(f"'{path}' has only one class, '{classes[0]}'; give at least two sub-folders of images")
    for split, groups in given.items():
        if unseen := sorted(set(groups) - set(classes)):
            raise OdeumError(
                f"the class '{unseen[0]}' of the {split} part of '{path}' never occurs in its training part"
            )


def refuse_same_file(files: list[Path]) -> None:
    """Raise `OdeumError` if two paths are the same file (a link): it could be in two classes or parts."""
    seen: dict[tuple[int, int], Path] = {}
    for file in files:
        status = file.stat()
        if (first := seen.setdefault((status.st_dev, status.st_ino), file)) != file:
            raise OdeumError(f"'{file}' is the same file as '{first}'; remove one of them")


def refuse_repeated_part(path: Path, parts: dict[str, Tensor]) -> None:
    """Raise `OdeumError` if all images of a held-out part are in the training part."""
    known = {image.numpy().tobytes() for image in parts["train"]} if len(parts) > 1 else set()
    for split, images in parts.items():
        if split != "train" and all(image.numpy().tobytes() in known for image in images):
            raise OdeumError(
                f"all images of the {split} part of '{path}' are also in its training part; use other images"
            )


def fit_note(shapes: list[tuple[int, int]], fit: Fit) -> tuple[str, ...]:
    """A note on images that are not square."""
    count = sum(width != height for width, height in shapes)
    how = "cropped to the middle square (--data.fit squash keeps their edges)" if fit == "crop" else "squashed"
    return (f"{count} of {len(shapes)} images are not square and were {how}",) if count else ()


def load_images(files: list[Path], channels: int, size: int, fit: Fit) -> Tensor:
    """All images as uint8 [n, channels, size, size]; raises `OdeumError` for one that cannot be read."""
    return load_readable(files, channels, size, fit, None)[0]


def load_readable(
    files: list[Path], channels: int, size: int, fit: Fit, unreadable: list[OdeumError] | None
) -> tuple[Tensor, list[int]]:
    """Images and indices of the readable files; errors of the others are added to `unreadable`, if given."""
    need = len(files) * channels * size * size
    memory = available_memory()
    if 2 * need > memory:
        raise OdeumError(
            f"{len(files):,} images of {size}×{size} take {need / 1e9:.3g} GB, more than half of the "
            f"{memory / 1e9:.3g} GB of memory; choose a smaller --data.size"
        )
    images = torch.empty(len(files), channels, size, size, dtype=torch.uint8)
    readable: list[int] = []
    for i, file in enumerate(files):
        image = _attempt(lambda file=file: read_image(file, channels, size, fit), unreadable)
        if image is not None:
            images[len(readable)] = image
            readable.append(i)
    return images[: len(readable)], readable


def common_shape(groups: Groups, size: int | None, fit: Fit = "crop") -> tuple[int, int]:
    """Channels and side for all images: grey if all sampled ones are; small images keep their size."""
    sample = [group[i * len(group) // 8] for group in groups.values() for i in range(min(8, len(group)))][:SAMPLE]
    looked = [header(file) for file in sample]
    sides = sorted(min(look.size) if fit == "crop" else max(look.size) for look in looked)
    side = min(sides[len(sides) // 2], LARGEST_SIDE)
    return 1 if all(look.grey for look in looked) else 3, size or (side if side <= 16 else side // 4 * 4)
