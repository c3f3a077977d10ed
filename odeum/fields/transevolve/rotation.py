"""TransEvolve's random feed-forward: W(t) = U(t) S V(t) with random U, V that evolve with depth and learned S.

`orthogonal` (the default): true random rotations. U(t) is a fixed random frame whose planes turn at random rates,
depth counted from 1. `published`: the formula of the released code, depth counted from 0, where it is degenerate:
U(0), V(0) have rank one, and the second projection is exactly zero, so the first feed-forward of each block gives its
bias alone.

The random matrices come from a stored seed and are not saved: a checkpoint holds the seed and the learned weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError, choose
from odeum.fields.base import Context, Field
from odeum.fields.feedforward import ACTIVATIONS
from odeum.fields.noise import Dropout

ROTATIONS = ("orthogonal", "published")


class Rotation(nn.Module):
    """x ↦ x U(t) S V(t) + bias, from `size` features to `out`; the rank is the smaller of the two.

    U S V is multiplied out where there are more rows than that pays for, and applied factor by factor otherwise.
    """

    seed: Tensor

    def __init__(self, size: int, out: int, *, bias: bool = True, seed: int = 0) -> None:
        super().__init__()
        self.size, self.outputs, self.rank = size, out, min(size, out)
        self.singular = nn.Parameter(torch.empty(self.rank))
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.dead_parameters = size - self.rank  # published, but multiplied by nothing
        self.folding = False
        self.folded: dict[float, tuple[int, Tensor]] = {}

    def draw(self, seed: int) -> None:
        """Make the random matrices of this seed."""
        raise TypeError(f"{type(self).__name__} must define draw(seed)")

    def frames(self, t: float) -> tuple[Tensor, Tensor]:
        """U(t) [size, rank] and V(t) [rank, out]."""
        raise TypeError(f"{type(self).__name__} must define frames(t)")

    def matrix(self, t: float) -> Tensor:
        """U S V as one matrix."""
        u, v = self.frames(t)
        return (u * self.singular) @ v

    def factored(self, x: Tensor, t: float) -> Tensor:
        """x U S V, one factor after the other."""
        u, v = self.frames(t)
        return (x @ u) * self.singular @ v

    def forward(self, x: Tensor, t: float) -> Tensor:
        if self.folding and not self.training and not torch.is_grad_enabled():
            return self._shift(x @ self._folded(t))
        # A compiled graph is for any number of rows.
        if not torch.compiler.is_compiling() and x.numel() // self.size < max(self.size, self.outputs):
            return self._shift(self.factored(x, t))
        return self._shift(x @ self.matrix(t))

    def _folded(self, t: float) -> Tensor:
        """The stored product, computed again when the learned weights have changed."""
        version = 0 if self.singular.is_inference() else self.singular._version
        built_for, matrix = self.folded.get(t, (-1, None))
        if matrix is None or built_for != version:
            with torch.autocast(self.singular.device.type, enabled=False):
                matrix = self.matrix(t)
            self.folded[t] = (version, matrix)
        return matrix

    def _shift(self, x: Tensor) -> Tensor:
        return x if self.bias is None else x.add_(self.bias)  # x is a fresh product

    def _placed(self, matrix: Tensor) -> Tensor:
        """A drawn matrix where the module lives and in its precision."""
        return matrix.to(device=self.seed.device, dtype=self.singular.dtype).contiguous()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotation:
        self.folded.clear()  # moved or cast: fold again
        before = self.singular.dtype
        super()._apply(fn, recurse)
        if self.singular.dtype != before and self.seed.device.type != "meta":
            self.draw(int(self.seed))  # as a reload will: a cast of a rounded matrix would be another one
        return self

    def fold(self, on: bool = True) -> None:
        """Keep U S V as one matrix per depth in evaluation; training discards it."""
        self.folding = on
        self.folded.clear()

    def train(self, mode: bool = True) -> Rotation:
        self.folded.clear()
        return super().train(mode)

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.folded.clear()
        if self.seed.device.type != "meta":
            self.draw(int(self.seed))

    def extra_repr(self) -> str:
        return f"{self.size} → {self.outputs}, rank {self.rank}"


class OrthogonalRotation(Rotation):
    """U(t) = U₀ R(ω (t+1)): orthonormal columns whose planes rotate smoothly; V(t) likewise."""

    u: Tensor
    v: Tensor
    rates: Tensor

    def __init__(self, size: int, out: int, *, bias: bool = True, seed: int = 0) -> None:
        super().__init__(size, out, bias=bias, seed=seed)
        # As large as a Glorot matrix: |W|² = size · out · 2 / (size + out) = rank · s².
        nn.init.constant_(self.singular, math.sqrt(2.0 * max(size, out) / (size + out)))
        self.register_buffer("u", torch.empty(size, self.rank), persistent=False)
        self.register_buffer("v", torch.empty(self.rank, out), persistent=False)
        self.register_buffer("rates", torch.empty(2, self.rank // 2), persistent=False)
        if self.u.device.type != "meta":
            self.draw(seed)

    def draw(self, seed: int) -> None:
        generator = torch.Generator("cpu").manual_seed(seed)
        self.u = self._placed(random_frame(self.size, self.rank, generator))
        self.v = self._placed(random_frame(self.outputs, self.rank, generator).T)
        rates = torch.rand(self.rates.shape, generator=generator, dtype=torch.float64, device="cpu")
        self.rates = self._placed(rates * (math.pi / 2.0))

    def frames(self, t: float) -> tuple[Tensor, Tensor]:
        first, second = self.rates * (t + 1.0)
        return turn(self.u, first), turn(self.v.T, second).T

    def matrix(self, t: float) -> Tensor:
        # U₀ R S R'ᵀ V₀: the small factors are multiplied into the smaller frame.
        if self.size <= self.outputs:
            return self._mix(self.u, t) @ self.v
        return self.u @ self._mix(self.v.T, t, backwards=True).T

    def factored(self, x: Tensor, t: float) -> Tensor:
        return self._mix(x @ self.u, t) @ self.v

    def _mix(self, x: Tensor, t: float, backwards: bool = False) -> Tensor:
        """x R S R'ᵀ, or x R' S Rᵀ."""
        first, second = self.rates.flip(0) * (t + 1.0) if backwards else self.rates * (t + 1.0)
        return turn(turn(x, first) * self.singular, -second)


class PublishedRotation(Rotation):
    """U(t) = [sin(tπp/in · C) ‖ cos(tπp/in · C)] / √out with Gaussian C of standard deviation `in`; V(t) alike.

    The sines are of large numbers, so the order of the float32 operations is that of the released code.
    """

    coefficients: Tensor
    phases: Tensor

    def __init__(self, size: int, out: int, *, bias: bool = True, seed: int = 0) -> None:
        super().__init__(size, out, bias=bias, seed=seed)
        if size % 2 or out % 2:
            raise OdeumError(f"the published random feed-forward needs even widths, not {size} and {out}")
        limit = math.sqrt(6.0 / self.rank)
        nn.init.uniform_(self.singular, -limit, limit)
        self.register_buffer("coefficients", torch.empty(size, size // 2), persistent=False)
        self.register_buffer("phases", torch.empty(out, out // 2), persistent=False)
        if self.phases.device.type != "meta":
            self.draw(seed)

    def draw(self, seed: int) -> None:
        if "coefficients" not in self._non_persistent_buffers_set:
            return  # given, not drawn
        generator = torch.Generator("cpu").manual_seed(seed)
        for name in ("coefficients", "phases"):
            shape = getattr(self, name).shape
            normal = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
            setattr(self, name, self._placed(normal * shape[0]))

    def keep(self, coefficients: Tensor, phases: Tensor) -> None:
        """Use these matrices, of a model with unknown seed, and save them with the weights."""
        for name, given in (("coefficients", coefficients), ("phases", phases)):
            needed = tuple(getattr(self, name).shape)
            if tuple(given.shape) != needed:
                raise OdeumError(f"the fixed {name} of the random feed-forward are {tuple(given.shape)}, not {needed}")
            self.register_buffer(name, self._placed(given), persistent=True)

    def frames(self, t: float) -> tuple[Tensor, Tensor]:
        u = _waves(self.coefficients[:, : self.rank], t, self.size, self.rank)
        v = _waves(self.phases[: self.rank], t, self.outputs, self.outputs)
        return u / math.sqrt(self.outputs), v / math.sqrt(self.outputs)


class RotationFeedForward(Field):
    """Two rotations around an activation: 2 (width + rank) weights instead of 8 width²."""

    symbol = "F"
    role = "feedforward"
    timed = True

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        kind: str = "orthogonal",
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        hidden = hidden or 4 * width
        self.activation = ACTIVATIONS[choose(activation, ACTIVATIONS, "activation")]
        self.gated = activation == "swiglu"
        make = OrthogonalRotation if choose(kind, ROTATIONS, "rotation") == "orthogonal" else PublishedRotation
        self.up = make(width, hidden * (2 if self.gated else 1), bias=bias, seed=2 * seed)
        self.down = make(hidden, width, bias=bias, seed=2 * seed + 1)
        self.dropout = Dropout(dropout)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        h = self.up(x, t)
        if self.gated:
            gate, h = h.chunk(2, dim=-1)
            h = self.activation(gate) * h
        else:
            h = self.activation(h)
        return self.dropout(self.down(h, t), context.noise)

    def formula(self, x: str) -> str:
        return f"F(t, {x})"


def fold(model: nn.Module, on: bool = True) -> None:
    """Multiply U S V out once for inference in every rotation of a model."""
    for module in model.modules():
        if isinstance(module, Rotation):
            module.fold(on)


def random_frame(size: int, rank: int, generator: torch.Generator) -> Tensor:
    """[size, rank] with orthonormal columns, uniform among all such.

    Made in double precision, so that rounding to single gives the same numbers wherever it is made.
    """
    normal = torch.randn(size, rank, generator=generator, dtype=torch.float64, device="cpu")
    q, r = torch.linalg.qr(normal)
    return q * r.diagonal().sign()


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the planes (j, j + pairs) of the last axis."""
    pairs = angles.shape[0]
    a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)


def _waves(matrix: Tensor, t: float, size: int, columns: int) -> Tensor:
    """The first `columns` of [sin ‖ cos] over tπp/size · matrix, p = 0 … size/2 − 1."""
    p = torch.arange(matrix.shape[1], device=matrix.device, dtype=matrix.dtype)
    rate = torch.tensor(t, dtype=matrix.dtype, device=matrix.device) * (math.pi / size)
    angles = (rate * p) * matrix
    if columns <= size // 2:
        return angles[:, :columns].sin()
    return torch.cat((angles.sin(), angles[:, : columns - size // 2].cos()), dim=-1)
