"""The sizes of a ladder: width and depth scaled together at constant head width, and how long each trains.

The comparison of each size is a study of its own in DIR/size-WIDTHxDEPTH; DIR/ladder.json names them. Every size trains
for the same number of examples (or tokens) per parameter of the baseline as the model and the recipe of the command
line; that model is the largest size unless sizes are given by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.study.ladder import FEWEST_SIZES
from odeum.lab.train.settings import Training
from odeum.models.settings import Model
from odeum.storage import make_directory, read_json, write_json

LADDER = "ladder.json"
COMPUTE = 16.0
"""compute of the largest size over that of the smallest, approximately"""
MOST_SIZES = 12
EXAMPLE = "--sizes 3 or --sizes 64x4,96x6,128x8"


@dataclass(frozen=True)
class Size:
    """Width and depth of one rung."""

    width: int
    depth: int

    def __str__(self) -> str:
        return f"{self.width}x{self.depth}"

    def of(self, model: Model) -> Model:
        """The model at this size: heads as wide as before, feed-forward and decoder in proportion."""
        hidden = None if model.hidden is None else round(model.hidden * self.width / model.width)
        changes: dict[str, Any] = {"hidden": hidden, "heads": self.width * model.heads // model.width}
        if (decoder := getattr(model, "decoder_depth", None)) is not None:
            changes["decoder_depth"] = max(1, round(decoder * self.depth / model.depth))
        return replace(model, width=self.width, depth=self.depth, **changes)


def parse_sizes(text: str, model: Model) -> list[Size]:
    """`3`, or `64x4,96x6,128x8` from small to large."""
    if re.fullmatch(r"\s*-?\d+\s*", text):
        return _default(int(text), model)
    sizes = []
    for part in text.split(","):
        digits = re.fullmatch(r"\s*(\d+)\s*[x×]\s*(\d+)\s*", part)
        if not digits or not int(digits[1]) or not int(digits[2]):
            raise OdeumError(f"--sizes '{part.strip()}' is not a size; write width x depth, such as {EXAMPLE}")
        sizes.append(Size(int(digits[1]), int(digits[2])))
    _check_number(len(sizes))
    head = model.width // model.heads
    for size in sizes:
        if size.width % head:
            near = max(1, size.width // head) * head
            raise OdeumError(
                f"--sizes {size}: width {size.width} must be a multiple of the head width {head} (--model.width "
                f"{model.width} / --model.heads {model.heads}); use {near} or {near + head}"
            )
    for before, after in pairwise(sizes):
        if after.width < before.width or after.depth < before.depth or after == before:
            raise OdeumError(f"--sizes {text}: {after} is not larger than {before}; order them from small to large")
    return sizes


def _check_number(number: int) -> None:
    if not FEWEST_SIZES <= number <= MOST_SIZES:
        raise OdeumError(
            f"--sizes: {number} size{'' if number == 1 else 's'} cannot show a trend; use {FEWEST_SIZES} to "
            f"{MOST_SIZES}, such as {EXAMPLE}"
        )


def default_sizes(number: int, width: int, depth: int, heads: int) -> list[Size]:
    """Sizes up to that of the model; compute grows with parameters squared, and those with width² × depth.

    Empty if fewer than that many differ.
    """
    sizes = []
    for place in range(number):
        scale = COMPUTE ** ((place / (number - 1) - 1) / 6)
        sizes.append(Size(max(1, round(scale * heads)) * (width // heads), max(1, round(scale * depth))))
    return sizes if len({*sizes}) == number else []


def _default(number: int, model: Model) -> list[Size]:
    _check_number(number)
    sizes = default_sizes(number, model.width, model.depth, model.heads)
    if not sizes:
        raise OdeumError(
            f"--sizes {number}: there are not enough sizes below {model.width}x{model.depth} with heads of width "
            f"{model.width // model.heads}; give a larger --model.width and --model.depth, or name sizes: "
            "--sizes 64x4,96x6,128x8"
        )
    return sizes


def check_ladder(match: str | None, baseline: bool, training: Training) -> None:
    """Raises `OdeumError` for options that do not go with `--sizes`."""
    if match not in (None, "time"):
        raise OdeumError(f"--sizes compares at equal time, not equal {match}; leave out --match")
    if not baseline:
        raise OdeumError("--sizes measures gains over a baseline; leave out --baseline none")
    for name in ("budget", "macs"):
        if getattr(training, name) is not None:
            raise OdeumError(
                f"--sizes trains each size in proportion to its parameters; give --train.steps or --train.epochs "
                f"instead of {name}"
            )


def scaled_training(training: Training, steps: int, share: float) -> Training:
    """The recipe of a size whose baseline has this share of the parameters of the model of the command line."""
    return replace(training, steps=max(1, round(steps * share)))


def folder_of(directory: Path, size: Size | str) -> Path:
    return directory / f"size-{size}"


def write_ladder(directory: Path, epochs: Mapping[Size, float], data: str, command: str) -> None:
    """Write ladder.json; raises `OdeumError` if the directory holds other sizes.

    `epochs` has the passes of the baseline over the training data, by size.
    """
    sizes = list(epochs)
    if (directory / LADDER).exists() and (held := ladder_sizes(directory)) != [str(size) for size in sizes]:
        raise OdeumError(
            f"'{directory}' holds a ladder of the sizes {', '.join(held)}, not {', '.join(map(str, sizes))}; "
            "give another --out"
        )
    make_directory(directory)
    named = {str(size): round(value, 4) for size, value in epochs.items()}
    write_json(directory / LADDER, {"sizes": list(named), "epochs": named, "data": data, "command": command})


def ladder_sizes(directory: Path) -> list[str]:
    """The sizes of a directory's ladder, from small to large."""
    sizes = read_json(directory / LADDER).get("sizes")
    return [str(size) for size in sizes] if isinstance(sizes, list) else []


def ladder_epochs(directory: Path) -> Mapping[str, float]:
    """Passes of the baseline over the training data, by size."""
    epochs = read_json(directory / LADDER).get("epochs")
    known = epochs.items() if isinstance(epochs, dict) else ()
    return {size: float(x) for size, x in known if isinstance(x, int | float)}
