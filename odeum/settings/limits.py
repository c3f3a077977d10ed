"""What is too much, told before it is tried: estimates from settings alone, since to build is already to wait.

A file from elsewhere, or a slip of a finger, may ask for a billion layers. What no machine could do is refused; what
this one cannot is refused too, unless somebody insists.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.settings.architecture import METHODS, Architecture, Mixed
from odeum.settings.model import Shape

INSIST = "ODEUM_LIMITS"
"""the environment variable that lifts what can be lifted: ODEUM_LIMITS=off"""
LAYERS = 4096
"""layers with or without weights of their own; each is built, and that takes its milliseconds"""
EVALUATIONS = 20_000
"""evaluations of a field in one pass, each of which is tens of microseconds whatever its size"""
WORK = 1e15
"""multiply–adds of one example in one pass"""
PARAMETERS = 1e14
"""beyond what sizes of tensors can be computed with; nobody can insist on these"""


UNPACKED = 200
"""how many times larger than its archive data may be; texts are about ten times, bombs a thousand"""
UNPACKED_FREELY = 100e6
"""bytes that may come out of any archive"""
MEMBERS = 5_000_000
"""files in an archive"""


class Unpacked:
    """What comes out of an archive, counted while it is written."""

    def __init__(self, *archives: Path) -> None:
        self.archive = archives[0] if archives else Path("an empty data set")
        packed = sum(path.stat().st_size for path in archives)
        self.left = max(UNPACKED_FREELY, UNPACKED * float(packed))

    def take(self, size: int) -> None:
        """So many bytes more."""
        self.left -= size
        if self.left < 0 and not insisted():
            raise OdeumError(
                f"'{self.archive}' unpacks to over {UNPACKED} times its size; if that is right, insist by {INSIST}=off"
            )

    def count(self, members: int) -> None:
        """So many files in all."""
        _refuse_above(members, MEMBERS, f"'{self.archive}'", f"{members:,} files")


def insisted() -> bool:
    """Whether the limits are lifted."""
    return os.environ.get(INSIST, "").lower() in ("off", "0", "no")


def check_size(settings: Shape, architecture: Architecture) -> None:
    """Refuse what could not be built, or not be run once, in any reasonable time."""
    layers, evaluations = _layers(settings, architecture), _evaluations(settings, architecture)
    width, hidden = settings.width, settings.hidden or 4 * settings.width
    tokens = _tokens(settings)
    tables = (getattr(settings, name, 0) or 0 for name in ("vocabulary", "classes", "length"))
    patch = (getattr(settings, "patch_size", 0) or 0) ** 2 * (getattr(settings, "channels", 1) or 1)
    map_size = 4 * width * width + 2 * width * hidden
    if map_size + width * (sum(tables) + patch) > PARAMETERS:
        raise OdeumError(
            f"{_largest(settings)}: the model would have over {PARAMETERS:.0e} parameters; give smaller ones"
        )
    _refuse_above(layers, LAYERS, f"depth {settings.depth}", f"{layers:,} layers")
    steps = getattr(architecture, "steps", 1)
    repeats = getattr(architecture, "repeats", 1)
    most = max((steps, "steps"), (repeats, "repeats"))
    what = f"{most[1]}={most[0]}" if most[0] > settings.depth else f"depth {settings.depth}"
    _refuse_above(evaluations, EVALUATIONS, what, f"{evaluations:,} evaluations of a field in every pass")
    work = float(evaluations) * tokens * (map_size + 2 * tokens * width)
    _refuse_above(work, WORK, _largest(settings), f"about {work:.1e} multiply–adds for one example")


def check_steps(steps: float, depth: int, what: str = "steps") -> None:
    """The same for a number of steps a layer, or of repeats, that a trained model is given."""
    count = steps * depth
    _refuse_above(count, EVALUATIONS, f"{what} {steps}", f"{count:,.0f} evaluations of a field in every pass")


def check_memory(needed: float, there: float, settings: Any, what: str) -> None:
    """Refuse what does not fit into the memory that there is."""
    if needed > there and not insisted():
        raise OdeumError(
            f"{_largest(settings)}: {what} takes about {_size(needed)}, and there are {_size(there)} here; "
            f"give smaller ones, or insist by {INSIST}=off"
        )


def check_images(size: int, channels: int = 3, batch: int = 64) -> None:
    """Refuse images of which a batch does not fit into memory, before they are read."""
    needed, there = 4.0 * size * size * channels * batch, machine_memory()
    if needed > there and not insisted():
        raise OdeumError(
            f"--data.size {size}: a batch of {batch} images takes about {_size(needed)}, and there are {_size(there)} "
            f"here; give a smaller one, or insist by {INSIST}=off"
        )


def machine_memory() -> float:
    """Bytes that this process may have: the machine's, or what its container allows."""
    try:
        there = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return float("inf")
    try:
        return min(there, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return there


def _refuse_above(value: float, limit: float, setting: str, estimate: str) -> None:
    if value > limit and not insisted():
        raise OdeumError(
            f"{setting} would make {estimate}, more than the limit of {limit:,.0f}; give less, or insist by "
            f"{INSIST}=off"
        )


def _layers(settings: Shape, architecture: Architecture) -> int:
    """Of the encoder and, if there is one, the decoder."""
    if not hasattr(settings, "decoder_depth"):
        loop = (getattr(architecture, name, None) for name in ("prelude", "core", "coda"))
        return max(settings.depth, sum(count or 0 for count in loop))
    return settings.depth + (getattr(settings, "decoder_depth", None) or settings.depth)


def _evaluations(settings: Shape, architecture: Architecture) -> int:
    if isinstance(architecture, Mixed):
        return max(_evaluations(settings, part) for part, _ in architecture.parts)
    tableau = METHODS.get(getattr(architecture, "method", None))
    stages = len(getattr(tableau, "b", (0, 0)))
    acts = getattr(architecture, "steps", 1) * getattr(architecture, "repeats", 1)
    return _layers(settings, architecture) * acts * stages


def _tokens(settings: Shape) -> int:
    if (size := getattr(settings, "image_size", None)) is not None:
        return max(1, size // max(1, getattr(settings, "patch_size", 1))) ** 2
    return getattr(settings, "length", None) or 1


def _largest(settings: Any) -> str:
    """The two largest of its numbers, by name: what somebody would make smaller."""
    numbers = {f.name: getattr(settings, f.name) for f in fields(settings)}
    whole = [(v, n) for n, v in numbers.items() if isinstance(v, int) and not isinstance(v, bool)]
    return " and ".join(f"{name} {value}" for value, name in sorted(whole, reverse=True)[:2])


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.0f} PiB"
