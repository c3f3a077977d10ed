"""Feed-forward network: the term F, which moves each particle independently."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from odeum.draws import drawing
from odeum.errors import OdeumError, choose
from odeum.fields.attention import reset
from odeum.fields.base import Context, Field
from odeum.fields.noise import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "relu": nn.functional.relu,
    "swiglu": nn.functional.silu,
    # of pretrained models alone
    "gelu-tanh": partial(nn.functional.gelu, approximate="tanh"),
    "quick-gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": nn.functional.silu,
    "geglu": nn.functional.gelu,
    "geglu-tanh": partial(nn.functional.gelu, approximate="tanh"),
    "reglu": nn.functional.relu,
}
GATED = ("swiglu", "geglu", "geglu-tanh", "reglu")
"""activations that multiply the second half of the hidden features by the activated first half"""


class FeedForward(Field):
    """Two linear maps around an activation; SwiGLU gates the second half of the hidden features by the first."""

    symbol = "F"
    role = "feedforward"

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = 4 * width if hidden is None else hidden
        if hidden < 1:
            raise OdeumError(f"the hidden width of a feed-forward must be at least 1, not {hidden}")
        self.activation = ACTIVATIONS[choose(activation, ACTIVATIONS, "activation")]
        self.gated = activation in GATED
        self.description = f"width={width}, hidden={hidden}, {activation}"
        self.up = nn.Linear(width, hidden * (2 if self.gated else 1), bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)
        with drawing("up"):
            reset(self.up, parts=2 if self.gated else 1)
        with drawing("down"):
            reset(self.down)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        if self.gated:
            gate, value = self.up(x).chunk(2, dim=-1)
            h = self.activation(gate) * value
        else:
            h = self.activation(self.up(x))
        return self.dropout(self.down(h), context.noise)

    def formula(self, x: str) -> str:
        return f"{self.symbol}({x})"

    def extra_repr(self) -> str:
        return self.description
