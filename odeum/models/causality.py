"""Check that fields of plugins are causal: a causal model with one that looks ahead would train on its labels."""

from __future__ import annotations

import torch
from torch import nn

from odeum.errors import OdeumError
from odeum.fields.base import Context, Source, foreign_modules
from odeum.integrators import Adaptive


def check_causal(stack: nn.Module, width: int, length: int, cross: bool = False) -> None:
    """Raise OdeumError if the last position changes the output at earlier ones, for stacks with fields of plugins.

    Tested with the initial weights on one random example; Odeum's fields are tested to be causal elsewhere.
    """
    weights = list(stack.parameters())
    suspects = [part for part in foreign_modules(stack) if not getattr(part, "cached", False)]
    unknown = any(weight.is_meta for weight in weights) or any(isinstance(part, Adaptive) for part in stack.modules())
    if not suspects or unknown or length < 2:
        return
    like = weights[0] if weights else torch.empty(0)
    generator = torch.Generator().manual_seed(0)  # the run's own random numbers stay as they are

    def random(positions: int) -> torch.Tensor:
        return torch.randn(1, positions, width, generator=generator, device="cpu").to(like)

    x, last = random(length), random(1)
    context = Context(own=Source(causal=True), other=Source(memory=random(3) if cross else None))
    was = stack.training
    with torch.no_grad():
        stack.eval()
        before, after = (stack(given, context)[:, :-1] for given in (x, torch.cat((x[:, :-1], last), dim=1)))
        stack.train(was)
    if not torch.allclose(before, after, rtol=1e-3, atol=1e-4):
        names = ", ".join(sorted({type(part).__name__ for part in suspects}))
        raise OdeumError(
            f"{names} cannot be used in a causal model: a later position changes an earlier one; where "
            "context.own.causal is True a field may read earlier positions only"
        )
