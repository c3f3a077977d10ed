"""Late looping: middle layers that repeat once a share of training is done.

As in the records of parameter-golf, the middle layers act again without an injection, from 35 % of training on. Until
then this is the plain stack, which is also its cost; the cost of a training step is the mean over training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from odeum import register
from odeum.architectures.looped import Looped
from odeum.errors import OdeumError
from odeum.registry.options import COUNT, Range


@register.architecture("late-looping", reference="parameter-golf #1726, #835", group="looped depth")
@dataclass(frozen=True)
class LateLooping(Looped):
    """Middle layers repeat after a given fraction of training."""

    core: Annotated[int | None, COUNT] = 2
    """layers in the loop (default: the depth without prelude and coda); the others are split evenly around it"""
    repeats: Annotated[int, COUNT] = 2
    """repeats of the core; can be changed after training"""
    inject: Literal["add", "concat", "stable", "none"] = "none"
    """how each repeat reads the prelude's output e: s + e, W [s, e], a contraction of s plus e, or not at all"""
    late: Annotated[float, Range(least=0, below=1)] = 0.35
    """fraction of training after which the core repeats; before, it acts once"""

    def _parts(self, depth: int) -> tuple[int, int, int]:
        if self.core is None or (self.prelude is not None and self.coda is not None):
            return super()._parts(depth)
        rest = depth - self.core
        prelude = self.prelude if self.prelude is not None else rest - self.coda if self.coda is not None else rest // 2
        coda = rest - prelude
        if min(rest, prelude, coda) < 0:
            raise OdeumError(
                f"a core of {self.core} layers does not fit into the depth of {depth} beside the layers around it; "
                "give a smaller core, prelude or coda"
            )
        return prelude, self.core, coda
