"""nGPT: states and weights on the unit sphere; each step is followed by a retraction to it.

A layer is Lie–Trotter with Euler's steps of dx/dt = α (N(f(x)) − x), N(x) = x / |x|, each of which lands on N(x): Euler
on a manifold, of order 1. What differs from the paper and its code:

- weights are normalised at each use, not written back after each step of the optimizer; so their stored length grows
  under Adam, which lowers their relative learning rate, and weight decay acts on this length alone;
- α starts at 1 / depth (the paper: 0.05, "in the order of" that for its 24 and 36 layers);
- gains of q and k come before rotary positions, not after them;
- embeddings and output matrix belong to the model, not to the stack: the input is normalised, the output is √width x,
  and the length of a row of the output matrix is the paper's gain of a logit;
- in a decoder, cross-attention has a gain for q alone, since an encoder's output is as large as √width N(x).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import Place
from odeum.errors import OdeumError
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.fields.base import Field
    from odeum.integrators.base import Method
    from odeum.models.settings import Shape


@register.architecture("ngpt", reference="Loshchilov et al. 2024, arXiv 2410.01131", group="one step per layer")
@dataclass(frozen=True)
class NormalizedTransformer(Layered):
    """States and weights on the unit sphere: nGPT."""

    alpha: Annotated[float | None, Range(above=0)] = None
    """initial step towards the output of attention and feed-forward (default: 1 / depth)"""

    def field(self, shape: Shape, cross: bool = False) -> Field:
        """Returns the branches with normalised weights, each of which pulls the state towards its output."""
        from odeum.fields import Scaled, StochasticDepth, Sum
        from odeum.fields.sphere import OnSphere

        for option, plain in (("norm", "pre"), ("attention", "attention"), ("feedforward", "feed-forward")):
            if (value := getattr(self, option)) != plain:
                raise OdeumError(
                    f"ngpt normalises states and weights of its own attention and feed-forward; leave out "
                    f"{option}={value}"
                )

        def pull(field: Field) -> Field:
            if isinstance(field, Scaled):  # inside, the norm would undo the factor
                return Scaled(field.factor, pull(field.field))
            _normalise_weights(field, shape.width)
            on_sphere = OnSphere(field, shape.width, self.alpha or 1.0 / shape.depth)
            return StochasticDepth(on_sphere, shape.stochastic_depth) if shape.stochastic_depth else on_sphere

        branches = self._branches(replace(shape, bias=False), cross)
        return self._with_learned_steps(Sum(**{name: pull(field) for name, field in branches.items()}))

    def method_for(self, place: Place) -> Method:
        from odeum.architectures.parts import make_method
        from odeum.integrators.sphere import FromSphere

        method = make_method(self.method)
        if not method.splitting:
            raise OdeumError(
                "ngpt updates attention and feed-forward in turn, each followed by a projection to the sphere, so "
                f"method={self.method} does not apply; use "
                "method=lie-trotter or strang"
            )
        return FromSphere(method)


def _normalise_weights(field: Field, width: int) -> None:
    """Gives the maps that read and write the state unit rows and columns, and q and k unit length with a gain."""
    from odeum.fields import CrossAttention, FeedForward, SelfAttention
    from odeum.fields.sphere import UnitHeads, UnitLinear

    gain = width**0.5
    match field:
        case SelfAttention():
            field.qkv, field.out = UnitLinear(field.qkv, reads=True), UnitLinear(field.out, reads=False)
            queries, keys, _ = field.counts
            size = field.sizes[0] // queries
            field.q_norm, field.k_norm = UnitHeads(queries, size, width), UnitHeads(keys, size, width)
        case CrossAttention():
            field.q = UnitLinear(field.q, reads=True, gain=gain)
            field.kv, field.out = UnitLinear(field.kv, reads=True), UnitLinear(field.out, reads=False)
        case FeedForward():
            field.up = UnitLinear(field.up, reads=True, gain=gain)
            field.down = UnitLinear(field.down, reads=False)
