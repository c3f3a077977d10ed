"""Image files: looked at by their headers, decoded one by one straight to the size of the model, square and upright."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from odeum.errors import OdeumError
from odeum.lab.data.files import IMAGE_SUFFIXES, entries, files_below, half_characters, regular
from odeum.lab.data.image_labels import labelled_groups
from odeum.lab.data.pictures import ImageSplit, Pictures, cut_images
from odeum.lab.data.split_names import SPLITS, whole_name
from odeum.lab.data.splits import hold_out
from odeum.lab.data.understanding import labelled_examples
from odeum.lab.data.unsupported import refuse_strange_classes
from odeum.models.limits import available_memory
from odeum.models.pixels import Fit, squared

TURNED = {5, 6, 7, 8}  # EXIF orientations that exchange height and width
ORIENTATION = 0x0112
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""the decoders that Pillow may use; by content alone it would run Ghostscript on a PostScript file named .png"""
LARGEST_SIDE = 64  # side of the images unless another is asked for
SAMPLE = 400  # images that decide about size and colour

Groups = dict[str, list[Path]]  # class -> files
T = TypeVar("T")


class Header(NamedTuple):
    """What the first bytes of an image tell."""

    size: tuple[int, int]
    """width and height as they are seen, the orientation obeyed"""
    grey: bool


def header(path: Path) -> Header:
    """Look at an image without decoding it."""
    with _Reading(path), Image.open(regular(path), formats=FORMATS) as image:
        grey = image.mode in ("1", "L", "I", "F") or image.mode.startswith("I;16")
        width, height = image.size
        turned = image.format != "TIFF" and image.getexif().get(ORIENTATION) in TURNED  # of TIFF it is done already
        return Header((height, width) if turned else (width, height), grey)


def read_image(path: Path, channels: int, size: int, fit: Fit = "crop") -> Tensor:
    """uint8 [channels, size, size]; the camera's orientation is obeyed and what is not square becomes so by `fit`."""
    with _Reading(path), Image.open(regular(path), formats=FORMATS) as image:
        image.draft(None, (2 * size, 2 * size))  # large JPEGs are decoded at a fraction of their size
        image.load()
        return squared(image, channels, size, fit)


class _Reading:
    """Within it all that can be wrong with an image file is one sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Image.DecompressionBombError):
            most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
            raise OdeumError(
                f"'{self.path}' has more than the {most:,} pixels that are read; make it smaller"
            ) from None
        if isinstance(error, PermissionError):
            raise OdeumError(f"'{self.path}' cannot be read: {error.strerror}") from None
        wrong = (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, MemoryError, OverflowError)
        if isinstance(error, OdeumError):
            raise OdeumError(
                str(error) if str(self.path) in str(error) else f"cannot take '{self.path}': {error}"
            ) from None
        if isinstance(error, wrong):
            raise OdeumError(f"'{self.path}' is not a readable image; repair it or take it out") from None


def class_folders(folder: Path) -> Groups:
    """The image files of each sub-folder that has some."""
    found = {}
    for sub in (p for p in entries(folder) if p.is_dir()):
        files = sorted(p for p in files_below(sub) if p.suffix.lower() in IMAGE_SUFFIXES)
        if files and half_characters(sub.name):
            raise OdeumError(f"the name of the class '{sub}' is not UTF-8; rename the folder")
        if files:
            found[sub.name] = files
    return found


def folder(path: Path, size: int | None = None, fit: Fit = "crop", fold: int = 0, strict: bool = False) -> Pictures:
    """Class = sub-folder, or as a labels.csv says; with sub-folders train, valid, test of those if there are such.

    Images that cannot be read are left out and counted, unless it is `strict`.
    """
    given: dict[str, Groups] = {}
    for split in SPLITS:
        subs = [p for p in entries(path) if p.is_dir() and whole_name(p.name) == split]
        if len(subs) > 1:
            raise OdeumError(f"'{subs[0]}' and '{subs[1]}' both seem to be the {split} part; rename one of them")
        if subs and (found := class_folders(subs[0])):
            given[split] = found
    if "train" not in given:
        given = labelled_groups(path) or {"train": class_folders(path)}
    refuse_strange_classes(path, given["train"])
    origins = {
        split: f"'{path.name}'" if len(given) == 1 else f"'{path.name}/{_top(path, groups)}'"
        for split, groups in given.items()
    }
    if "test" not in given and "valid" in given:  # as torchvision's ImageFolder is used: val is what one reports
        given["test"], origins["test"] = given.pop("valid"), origins.pop("valid")
    examples = [(str(file.relative_to(path)), name) for name, group in given["train"].items() for file in group]
    lost: list[OdeumError] | None = None if strict else []
    total = sum(len(group) for found in given.values() for group in found.values())
    given = {split: _readable(found, lost) for split, found in given.items()}
    classes = list(given["train"])
    _check(path, given, classes)
    refuse_twice([file for found in given.values() for group in found.values() for file in group])
    channels, side = common(given["train"], size, fit)
    shapes = [header(file).size for found in given.values() for group in found.values() for file in group]
    index = {name: i for i, name in enumerate(classes)}
    parts: dict[str, ImageSplit] = {}
    for split, found in given.items():
        files = [file for group in found.values() for file in group]
        labels = torch.tensor([index[name] for name, group in found.items() for _ in group])
        images, kept = load_readable(files, channels, side, fit, lost)
        parts[split] = images, labels[kept]
        if lost and split == "train" and len(parts[split][1].unique()) < len(classes):
            raise lost[-1]
    refuse_known(path, {split: images for split, (images, _) in parts.items()})
    parts = hold_out(parts, lambda train, count: cut_images(train, count, str(path), fold), fold)
    shown = labelled_examples(examples)
    return Pictures(parts, classes, notes=fitted(shapes, fit) + left_out(lost, total), origins=origins, examples=shown)


def _top(path: Path, groups: Groups) -> str:
    """The sub-folder that a part lies in."""
    return next(iter(groups.values()))[0].relative_to(path).parts[0]


def _readable(found: Groups, lost: list[OdeumError] | None) -> Groups:
    """The files of each class whose beginning is that of an image; a class without any is refused."""
    if lost is None:
        return found
    out: Groups = {}
    for name, group in found.items():
        before = len(lost)
        out[name] = [file for file in group if _attempt(lambda file=file: header(file), lost) is not None]
        if not out[name]:
            raise lost[before]
    return out


def _attempt(read: Callable[[], T], lost: list[OdeumError] | None) -> T | None:
    """What was read; or nothing, and the reason is kept."""
    if lost is None:
        return read()
    try:
        return read()
    except OdeumError as error:
        lost.append(error)
        return None


def left_out(lost: list[OdeumError] | None, total: int) -> tuple[str, ...]:
    """What to tell about images that cannot be read."""
    if not lost:
        return ()
    return (f"{len(lost)} of {total} images were left out: {lost[0]} (--data.strict true refuses such data)",)


def _check(path: Path, given: dict[str, Groups], classes: list[str]) -> None:
    if not classes:
        raise OdeumError(f"'{path}' has no sub-folders with images; expected one sub-folder a class")
    if len(classes) < 2:
        raise OdeumError(f"'{path}' has only one class, '{classes[0]}'; at least two sub-folders of images are needed")
    for split, found in given.items():
        if unseen := sorted(set(found) - set(classes)):
            raise OdeumError(
                f"the class '{unseen[0]}' of the {split} part of '{path}' never occurs in its training part"
            )


def refuse_twice(files: list[Path]) -> None:
    """One file under two names would be of two classes, or both trained on and tested."""
    seen: dict[tuple[int, int], Path] = {}
    for file in files:
        status = file.stat()
        if (first := seen.setdefault((status.st_dev, status.st_ino), file)) != file:
            raise OdeumError(f"'{file}' is the same file as '{first}'; each image counts once, so take one of them out")


def refuse_known(path: Path, parts: dict[str, Tensor]) -> None:
    """A part whose pictures were all trained on tests nothing."""
    known = {image.numpy().tobytes() for image in parts["train"]} if len(parts) > 1 else set()
    for split, images in parts.items():
        if split != "train" and all(image.numpy().tobytes() in known for image in images):
            raise OdeumError(
                f"all images of the {split} part of '{path}' are in its training part too, so they can test nothing"
            )


def fitted(shapes: list[tuple[int, int]], fit: Fit) -> tuple[str, ...]:
    """What to tell about images that are not square."""
    count = sum(width != height for width, height in shapes)
    how = "cropped to the middle square (--data.fit squash keeps their edges)" if fit == "crop" else "squashed"
    return (f"{count} of {len(shapes)} images are not square and were {how}",) if count else ()


def load_images(files: list[Path], channels: int, size: int, fit: Fit) -> Tensor:
    """All images as bytes [n, channels, size, size], one decoded at a time; each must be readable."""
    return load_readable(files, channels, size, fit, None)[0]


def load_readable(
    files: list[Path], channels: int, size: int, fit: Fit, lost: list[OdeumError] | None
) -> tuple[Tensor, list[int]]:
    """The same, and which of the files they are; the others are added to `lost`, if there is such a list."""
    need = len(files) * channels * size * size
    memory = available_memory()
    if 2 * need > memory:
        raise OdeumError(
            f"{len(files):,} images of {size}×{size} take {need / 1e9:.3g} GB, too much for the {memory / 1e9:.3g} GB "
            "of memory here; choose a smaller --data.size"
        )
    images = torch.empty(len(files), channels, size, size, dtype=torch.uint8)
    kept: list[int] = []
    for i, file in enumerate(files):
        found = _attempt(lambda file=file: read_image(file, channels, size, fit), lost)
        if found is not None:
            images[len(kept)] = found
            kept.append(i)
    return images[: len(kept)], kept


def common(found: Groups, size: int | None, fit: Fit = "crop") -> tuple[int, int]:
    """Channels and side for all: grey only if all looked at are grey; small images keep their size."""
    sample = [group[i * len(group) // 8] for group in found.values() for i in range(min(8, len(group)))][:SAMPLE]
    looked = [header(file) for file in sample]
    sides = sorted(min(look.size) if fit == "crop" else max(look.size) for look in looked)
    side = min(sides[len(sides) // 2], LARGEST_SIDE)
    return 1 if all(look.grey for look in looked) else 3, size or (side if side <= 16 else side // 4 * 4)
