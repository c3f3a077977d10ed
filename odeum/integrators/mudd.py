"""MUDD: the inputs of q, k, v and of the residual are dynamic sums over all earlier states (Xiao et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from odeum.draws import Keyed
from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators.base import (
    Method,
    get_carry,
    move_terms,
    refuse_projections,
    share_of_step,
    within_step,
)
from odeum.integrators.streams import full_precision


class DynamicSums(Keyed, nn.Module):
    """`ways` sums Σ_j a_j(x) x_j over `count` states, a = W₂ gelu(W₁ N(x)) + b with x the newest state.

    W₂ starts at zero and b picks the newest state: the plain layer. The sums are taken in single precision at least,
    under autocast too.
    """

    def __init__(self, width: int, count: int, ways: int, *, expand: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        self.count = count
        self.eps = eps
        hidden = expand * ways * count
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, ways * count, bias=False)
        nn.init.normal_(self.first.weight, std=width**-0.5)
        nn.init.zeros_(self.second.weight)
        # a vector, as no map of features: it does not decay
        self.bias = nn.Parameter(torch.eye(count)[-1].repeat(ways))

    def forward(self, states: tuple[Tensor, ...]) -> Tensor:
        """Returns the sums, [batch, length, ways, width]."""
        x = states[-1]
        normed = nn.functional.rms_norm(x, x.shape[-1:], None, self.eps)
        weights = self.second(nn.functional.gelu(self.first(normed))) + self.bias
        with full_precision(x):
            wide = torch.promote_types(x.dtype, torch.float32)
            sums = weights.unflatten(-1, (-1, self.count)).to(wide) @ torch.stack(states, -2).to(wide)
        return sums.to(x.dtype)


class Mudd(Method):
    """Four sums over the states so far: attention reads three of them as q, k and v, the layer moves the fourth.

    Terms move in turn or together, by Euler. The last layer has a sum of its own for its output. Weights that act at
    several depths have the coefficients of each: they belong to the depth.
    """

    order = None
    history = "mudd"
    splits = False
    divides = False

    def __init__(
        self, width: int, depth: int, layers: Sequence[int], attention: int, *, together: bool, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.layers = tuple(layers)
        self.attention = attention
        """index of the term that reads three inputs"""
        self.together = together
        self.sums = nn.ModuleList(DynamicSums(width, layer + 1, 4, eps=eps) for layer in self.layers if layer)
        last = depth - 1 in self.layers
        self.last = DynamicSums(width, depth + 1, 1, expand=4, eps=eps) if last else None

    def check(self, field: Field) -> None:
        refuse_projections(field, "mudd sums earlier states, and a norm after the step would stand in none")

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "mudd").state = (x,)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "mudd")
        states: tuple[Tensor, ...] = carry.state
        layer = len(states) - 1
        if layer not in self.layers:
            raise OdeumError(
                f"mudd has coefficients for one step in each layer of its stack, but none for step {layer + 1} here; "
                "its steps and layers cannot be changed"
            )
        reads = {}
        if layer:
            sums = self.sums[[depth for depth in self.layers if depth].index(layer)](states)
            x, reads = sums[..., 3, :], {self.attention: sums[..., :3, :]}
        x = move_terms(field, t, dt, x, within_step(field, context, repeats=False), reads, together=self.together)
        carry.state = (*states, x)
        return x

    def finish(self, x: Tensor, context: Context) -> Tensor:
        states = get_carry(context, "mudd").state
        if self.last is None or len(states) != self.last.count:
            return x
        return self.last(states).squeeze(-2)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        part = share_of_step(share)
        sums = "y_i = Σ a_j(x) x_j over the input and the ends of the layers so far, i = q, k, v, x"
        changes = [
            f"{part}{term.formula('y_q, y_k, y_v' if i == self.attention else 'y_x' if self.together else 'x')}"
            for i, term in enumerate(field.terms)
        ]
        if self.together:
            return [sums, f"x ← y_x + {' + '.join(changes)}"]
        return [sums, *(f"x ← {'x' if i else 'y_x'} + {change}" for i, change in enumerate(changes))]
