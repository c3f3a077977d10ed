"""Attention over depth: each sublayer reads a softmax-weighted mean of all earlier updates (arXiv 2603.15031)."""

from __future__ import annotations

from functools import reduce
from operator import add

import torch
from torch import Tensor, nn

from odeum.fields.base import Context, Field
from odeum.integrators.base import Method, get_carry, refuse_projections, share_of_step, within_evaluation, within_step


class AttentionResiduals(Method):
    """h = Σ softmax(w · N(v_i)) v_i over the embedding and what each step added; v_new = f(h).

    With w = 0, its start, h is their mean: the plain stack, where norms do not see the scale. `block` steps add up to
    one v, which bounds what is remembered. The last layer reads once more, by a query of its own, what goes on. The
    first sublayer has one value to read, and no query. A gain of the keys would be the query's again, so there is none.
    """

    order = None
    history = "attention-residuals"

    def __init__(self, width: int, block: int, *, first: bool, last: bool, eps: float = 1e-5) -> None:
        super().__init__()
        self.block = block
        self.eps = eps
        self.query = None if first else nn.Parameter(torch.zeros(width))
        self.last_query = nn.Parameter(torch.zeros(width)) if last else None

    def check(self, field: Field) -> None:
        refuse_projections(field, "attention-residuals adds nothing that a norm after the step could stand on")

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "attention-residuals").state = (0, (x,))
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "attention-residuals")
        count, values = carry.state
        context = within_step(field, context, repeats=False)
        added = dt * field(t, self.read(self.query, values), within_evaluation(field, context))
        joins = count % self.block > 0
        carry.state = (count + 1, (*values[:-1], values[-1] + added) if joins else (*values, added))
        return x + added

    def read(self, query: Tensor | None, values: tuple[Tensor, ...]) -> Tensor:
        """The mean of the values, weighed by their directions."""
        if query is None:
            return reduce(add, values) / len(values)
        wide = query.float() if query.dtype.itemsize < 4 else query
        keys = (nn.functional.rms_norm(v.to(wide.dtype), wide.shape, None, self.eps) for v in values)
        weights = torch.stack([(key * wide).sum(-1) for key in keys], -1).softmax(-1).to(values[0].dtype)
        return reduce(add, (w.unsqueeze(-1) * v for w, v in zip(weights.unbind(-1), values, strict=True)))

    def finish(self, x: Tensor, context: Context) -> Tensor:
        if self.last_query is None:
            return x
        _, values = get_carry(context, "attention-residuals").state
        return self.read(self.last_query, values)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        added = f"{share_of_step(share)}{field.formula('h')}"
        return [f"v ← {added}, h = Σ softmax(w · N(v_i)) v_i over x at the start and each v before"]
