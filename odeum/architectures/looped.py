"""Looped depth: a prelude, a core whose layers act several times, and a coda.

The depth of a looped stack is the number of its layers with weights: prelude, core, coda. The loop starts at s = 0, so
one repeat is the plain stack, except for `stable`, which scales. Random repeats are 1 + Poisson, drawn per batch, and
costs are those of the mean; with truncated gradients (`through`) three forwards per training step are an upper bound.
A decoding cache runs all repeats, so an exit saves nothing there. Ouro's norm inside the loop is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from odeum import register
from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.registry.options import COUNT, NOT_NEGATIVE, Range

if TYPE_CHECKING:
    from torch import nn

    from odeum.looping import Injection
    from odeum.models.settings import Shape


@register.architecture("looped", reference="Geiping et al. 2025, arXiv 2502.05171", group="looped depth")
@dataclass(frozen=True)
class Looped(Layered):
    """A core of layers that acts several times, between prelude and coda."""

    prelude: Annotated[int | None, NOT_NEGATIVE] = None
    """layers before the loop (default: a quarter of the depth, two at most)"""
    core: Annotated[int | None, COUNT] = None
    """layers in the loop (default: the depth without prelude and coda)"""
    coda: Annotated[int | None, NOT_NEGATIVE] = None
    """layers after the loop (default: as for the prelude)"""
    repeats: Annotated[int, COUNT] = 4
    """repeats of the core; can be changed after training"""
    inject: Literal["add", "concat", "stable", "none"] = "add"
    """how each repeat reads the prelude's output e: s + e, W [s, e], a contraction of s plus e, or not at all"""
    random: bool = False
    """draw the number of repeats per training batch, with `repeats` as mean"""
    through: Annotated[int | None, COUNT] = None
    """number of last repeats that gradients pass through (default: all)"""
    exit: Annotated[float, NOT_NEGATIVE] = 0.0
    """relative state change below which a position stops repeating, outside of training (0: never)"""
    late: Annotated[float, Range(least=0, below=1)] = 0.0
    """fraction of training after which the core repeats; before, it acts once"""

    def stack(self, shape: Shape, cross: bool = False) -> nn.Module:
        """Builds the layers of a plain stack, some of which act again."""
        from odeum import looping
        from odeum.architectures.parts import check_options

        check_options(self)
        if self.weights != "constant":
            raise OdeumError(
                f"looped repeats layers with weights of their own, but weights={self.weights} is one field for all; "
                "leave weights out"
            )
        if self.gradient == "reversible":
            raise OdeumError(
                "looped adds its input between repeats, which cannot be reversed; use gradient=checkpointed"
            )
        prelude, size, coda = self._parts(shape.depth)
        shape = replace(shape, depth=prelude + size + coda)
        order = self._layer_order(shape.depth)
        flows = self._flows(shape, cross, order)
        return looping.Looped(
            flows,
            order,
            range(prelude, prelude + size),
            self.repeats,
            self._injection(shape),
            self._final_norm(shape, flows),
            random=self.random,
            through=self.through,
            exit=self.exit,
            late=self.late,
        )

    def _parts(self, depth: int) -> tuple[int, int, int]:
        """Returns the number of layers of prelude, core and coda."""
        few = min(2, depth // 4)
        prelude, coda = (few if count is None else count for count in (self.prelude, self.coda))
        size = depth - prelude - coda if self.core is None else self.core
        if size < 1:
            raise OdeumError(
                f"prelude={prelude} and coda={coda} leave none of the {depth} layers for the core; "
                "reduce them, or give core"
            )
        return prelude, size, coda

    def _injection(self, shape: Shape) -> Injection:
        from odeum import looping
        from odeum.architectures.parts import make_norm

        match self.inject:
            case "add":
                return looping.AddedInjection()
            case "concat":
                return looping.ConcatInjection(shape.width)
            case "stable":
                return looping.StableInjection(shape.width, make_norm(shape))
        return looping.Injection()
