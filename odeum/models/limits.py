"""Estimate the size of a model from its settings, before building it, and refuse models that cannot fit or run.

A configuration file or a typing mistake may specify a billion layers. `ODEUM_LIMITS=off` lifts all limits but that on
the number of parameters.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.models.settings import Shape
from odeum.registry.names import METHODS, Architecture, Mixed

SWITCH = "ODEUM_LIMITS"
"""environment variable that lifts the limits: ODEUM_LIMITS=off"""
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""files with the memory limit of a container: cgroup v2, v1"""
LAYERS = 4096
"""most layers, shared or not; building each takes milliseconds"""
EVALUATIONS = 20_000
"""most evaluations of a field per pass; each takes tens of microseconds at any size"""
WORK = 1e15
"""most MACs of one example per pass"""
PARAMETERS = 1e14
"""most parameters; larger sizes of tensors overflow, so this limit cannot be lifted"""


def limits_off() -> bool:
    """Whether the limits are lifted by the environment."""
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "no")


def check_size(settings: Shape, architecture: Architecture) -> None:
    """Raise OdeumError for a model that could not be built, or run once, in reasonable time."""
    layers, evaluations = _layers(settings, architecture), _evaluations(settings, architecture)
    width, hidden = settings.width, settings.hidden or 4 * settings.width
    tokens = _tokens(settings)
    tables = (getattr(settings, name, 0) or 0 for name in ("vocabulary", "classes", "length"))
    patch = (getattr(settings, "patch_size", 0) or 0) ** 2 * (getattr(settings, "channels", 1) or 1)
    map_size = 4 * width * width + 2 * width * hidden
    if map_size + width * (sum(tables) + patch) > PARAMETERS:
        raise OdeumError(f"{_largest(settings)}: the model would have over {PARAMETERS:.0e} parameters; reduce them")
    refuse_above(layers, LAYERS, f"depth {settings.depth}", f"{layers:,} layers")
    steps = getattr(architecture, "steps", 1)
    repeats = getattr(architecture, "repeats", 1)
    most = max((steps, "steps"), (repeats, "repeats"))
    what = f"{most[1]}={most[0]}" if most[0] > settings.depth else f"depth {settings.depth}"
    refuse_above(evaluations, EVALUATIONS, what, f"{evaluations:,} evaluations of a field in every pass")
    work = float(evaluations) * tokens * (map_size + 2 * tokens * width)
    refuse_above(work, WORK, _largest(settings), f"about {work:.1e} multiply–adds for one example")


def check_steps(steps: float, depth: int, what: str = "steps") -> None:
    """Raise OdeumError for too many steps per layer, or repeats, of a trained model."""
    count = steps * depth
    refuse_above(count, EVALUATIONS, f"{what} {steps}", f"{count:,.0f} evaluations of a field in every pass")


def check_memory(needed: float, available: float, settings: Any, what: str) -> None:
    """Raise OdeumError if the needed memory exceeds what is there."""
    if needed > available and not limits_off():
        raise OdeumError(
            f"{_largest(settings)}: {what} takes about {memory_size(needed)}, but only "
            f"{memory_size(available)} are available; reduce them, or set {SWITCH}=off to try anyway"
        )


def available_memory() -> float:
    """Bytes of memory that this process may use: the machine's, or the limit of its container (cgroup v1 or v2)."""
    try:
        memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        memory = math.inf
    for file in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
            memory = min(memory, float(Path(file).read_text()))
    return memory


def refuse_above(value: float, limit: float, setting: str, estimate: str) -> None:
    """Raise OdeumError if a value is above its limit, unless limits are off."""
    if value > limit and not limits_off():
        raise OdeumError(
            f"{setting} would make {estimate}, more than the limit of {limit:,.0f}; reduce it, or lift the limit with "
            f"{SWITCH}=off"
        )


def _layers(settings: Shape, architecture: Architecture) -> int:
    """Layers of the encoder and, if there is one, the decoder."""
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
    """The two largest integer settings with their names: candidates to make smaller."""
    numbers = {f.name: getattr(settings, f.name) for f in fields(settings)}
    whole = [(v, n) for n, v in numbers.items() if isinstance(v, int) and not isinstance(v, bool)]
    return " and ".join(f"{name} {value}" for value, name in sorted(whole, reverse=True)[:2])


def memory_size(count: float) -> str:
    """Bytes in a readable unit, such as "3 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.0f} PiB"
