"""Rows of transformer layers: attention and feed-forward under a splitting or a Runge–Kutta method.

- Zhong et al. 2022, Figure 2 was not available to us. Table 1's parameter column needs two norms per layer, so (a) is
  taken to be separate pre-norms, the default. (b) and (c) are inferred: one shared pre-norm (`norm=shared`) and one
  norm after the sum (`norm=post-sum`). `norm=branch`, a norm on each branch's output, is offered too.

- `rk4` is the classical tableau, `rk4-38` the 3/8 rule (torchdiffeq's rk4). The paper does not say which it used.

- Macaron halves the width of each feed-forward, as its published code does, so that parameters and MACs equal those of
  the sequential layer. `strang` gives the half steps to the feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from odeum import register
from odeum.architectures.stepped import FieldName, OverTime, Place, Stepped
from odeum.errors import OdeumError
from odeum.registry.options import Range

if TYPE_CHECKING:
    from torch import nn

    from odeum.fields.base import Field
    from odeum.models.settings import Shape


@register.architecture(
    "sequential", about="pre-norm transformer, ViT, DeiT: Lie–Trotter splitting", group="one step per layer"
)
@dataclass(frozen=True)
class Layered(OverTime, Stepped):
    """Layers of attention and feed-forward, each a few steps of a method."""

    form: Literal["plain", "macaron"] = "plain"
    """plain: attention + feed-forward; macaron: ½ feed-forward + attention + ½ feed-forward"""
    norm: Literal["pre", "shared", "post", "post-sum", "peri", "branch"] = "pre"
    """placement of the norms"""
    attention: FieldName = "attention"
    """field used for attention"""
    feedforward: FieldName = "feed-forward"
    """field used for the feed-forward"""
    interval: Annotated[float, Range(above=0)] = 1.0
    """length of a layer in time"""
    pace: Literal["fixed", "learned"] = "fixed"
    """learned: a learned step length per term and layer, initialised with `interval`"""

    @property
    def _duration(self) -> float:
        return self.interval

    def field(self, shape: Shape, cross: bool = False) -> Field:
        """Returns the branches of one layer with their norms."""
        from odeum.architectures.parts import place_norms

        return self._with_learned_steps(
            place_norms(self._branches(shape, cross), self.norm, shape, shape.stochastic_depth)
        )

    def stack(self, shape: Shape, cross: bool = False) -> nn.Module:
        """Builds a row of layers, or one flow over all layers if weights depend on time."""
        from odeum.architectures.parts import check_options

        check_options(self)
        return super().stack(shape, cross) if self.weights == "constant" else self._stack_over_time(shape, cross)

    def _branches(self, shape: Shape, cross: bool) -> dict[str, Field]:
        from odeum.architectures.parts import attentions, halved, make_field, make_method
        from odeum.fields import Scaled
        from odeum.fields.algebra import by_name

        middle = attentions(shape, cross, self.attention)
        if self.form == "macaron":
            # The published Macaron halves each feed-forward, so that parameters and work stay the same.
            first, last = (Scaled(0.5, make_field(self.feedforward, halved(shape))) for _ in range(2))
            return {"feedforward_in": first, **by_name(*middle), "feedforward_out": last}
        feed = make_field(self.feedforward, shape)
        if getattr(make_method(self.method), "begins_alone", False):
            # The feed-forward takes the two half steps, attention the whole one: tied Macaron.
            return by_name(feed, *middle)
        return by_name(*middle, feed)

    def _with_learned_steps(self, field: Field) -> Field:
        """The field with a learned time for each term."""
        from odeum.fields import Sum
        from odeum.fields.algebra import LearnedStepSize

        if self.pace == "fixed":
            return field
        if isinstance(field, Sum):
            return Sum(**{name: LearnedStepSize(term) for name, term in field.fields.items()})  # ty: ignore
        return LearnedStepSize(field)

    def _stack_over_time(self, shape: Shape, cross: bool) -> nn.Module:
        """One flow through all layers, whose weights depend on time."""
        from odeum.architectures.parts import field_over_time, fixed_solver, make_norm
        from odeum.flow import Flow, Stack
        from odeum.integrators import capabilities

        if type(self).field is not Layered.field:
            raise OdeumError(
                f"{type(self).__name__} defines its field for single layers, which weights={self.weights} would not "
                "use; leave weights out"
            )
        for option in ("independent", "schedule"):
            if (value := getattr(self, option)) is not None:
                raise OdeumError(
                    f"weights={self.weights} is one field for all layers, which {option}={value} contradicts; say how "
                    "many knots instead, or leave it out"
                )
        if self.interval != 1.0:
            raise OdeumError(
                f"weights={self.weights} go over all layers, each of length 1; leave out interval={self.interval:g}"
            )
        field = self._with_learned_steps(field_over_time(self, lambda: self._branches(shape, cross), self.norm, shape))
        method = self.method_for(Place(field, tuple(range(shape.depth)), shape))
        capabilities.check("a field over all layers (weights=knots, legendre, hyper, adaln)", method)
        return Stack([Flow(field, fixed_solver(self, method), 0.0, float(shape.depth))], norm=make_norm(shape))


ZHONG = "Zhong et al. 2022, arXiv 2212.06011"
MACARON = "Lu et al. 2019, arXiv 1906.02762"

for _name, _options, _about, _reference in (
    ("post-norm", Layered(norm="post"), "the original transformer", "Vaswani et al. 2017, arXiv 1706.03762"),
    ("parallel", Layered(method="euler"), "attention and feed-forward side by side: Euler", ZHONG),
    ("midpoint", Layered(method="midpoint"), "parallel field, midpoint step", ""),
    ("rk2", Layered(method="heun"), "parallel field, Heun step", ""),
    ("rk4", Layered(method="rk4"), "parallel field, classical Runge–Kutta step", ZHONG),
    ("rk4-38", Layered(method="rk4-38"), "parallel field, Runge–Kutta 3/8 rule", "torchdiffeq's rk4"),
    ("macaron", Layered(form="macaron"), "½ feed-forward, attention, ½ feed-forward", MACARON),
    ("strang", Layered(method="strang"), "macaron with one feed-forward: Strang splitting", ""),
    ("strang-midpoint", Layered(method="strang-midpoint"), "Strang splitting of true second order", ""),
):
    register.architecture(_name, _options, about=_about, reference=_reference, group="one step per layer")
