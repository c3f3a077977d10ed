"""Depth that loops: options of a stack whose core acts several times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from odeum.registry.options import COUNT, NOT_NEGATIVE
from odeum.settings.architecture import Layered


@dataclass(frozen=True)
class LoopedLayers(Layered):
    """A prelude, a core whose layers act again and again, and a coda."""

    prelude: Annotated[int | None, NOT_NEGATIVE] = None
    """layers before the loop (none: a quarter of the depth, two at most)"""
    core: Annotated[int | None, COUNT] = None
    """layers in the loop (none: the depth without prelude and coda)"""
    coda: Annotated[int | None, NOT_NEGATIVE] = None
    """layers after the loop (none: as for the prelude)"""
    repeats: Annotated[int, COUNT] = 4
    """how often the core acts; a trained model may be given another number"""
    inject: Literal["add", "concat", "stable", "none"] = "add"
    """how each repeat is told what the prelude made: s + e, W [s, e], a contraction of s plus e, or not at all"""
    random: bool = False
    """whether the number of repeats is drawn for each batch of the training, with this mean"""
    through: Annotated[int | None, COUNT] = None
    """through how many of the last repeats gradients pass (none: all)"""
    exit: Annotated[float, NOT_NEGATIVE] = 0.0
    """a position rests when it moves by less than this share of its state; not in training (0: never)"""
