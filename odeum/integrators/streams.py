"""Hyper-connections: n residual streams that a layer reads, mixes and writes (Zhu et al. 2024).

    Z ← A Z + b f(c · Z)        c reads, b writes, A mixes the n streams of each position

The coefficients are learned, and may depend on the streams. mHC keeps A doubly stochastic (Xie et al. 2025).
"""

from __future__ import annotations

import contextlib
import itertools
import math

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field
from odeum.fields.constants import cached_constant
from odeum.integrators.base import Method, refuse_projections, share_of_step, within_evaluation, within_step

MAX_PERMUTED_STREAMS = 5
"""most streams for a mean over all permutations: 120 of them"""


class Streams(Method):
    """The step of all kinds of streams, state [batch, length, n, width]: streams start equal, their mean is the output.

    A step of length dt mixes by I + dt (A − I), so that finer steps have a limit. Mixing is done in single precision at
    least, under autocast too.
    """

    order = None

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def check(self, field: Field) -> None:
        why = f"{self.history} adds to {self.count} streams, and a norm after the step would stand in none"
        refuse_projections(field, why)

    def coefficients(self, z: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Returns c [n], A [n, n] and b [n], with or without the leading sizes of z."""
        raise TypeError(f"{type(self).__name__} must define coefficients(z)")

    def begin(self, x: Tensor, context: Context) -> Tensor:
        return x.unsqueeze(-2).expand(*x.shape[:-1], self.count, x.shape[-1])

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        context = within_step(field, context, repeats=False)
        with full_precision(x):
            wide = x.float() if x.dtype.itemsize < 4 else x
            read, mix, write = self.coefficients(wide)
            read, write = read.to(wide.dtype), write.to(wide.dtype)
            here = (read.unsqueeze(-2) @ wide).squeeze(-2).to(x.dtype)
            mixed = wide if mix is None else self._mixed(mix.to(wide.dtype), dt, wide)
        f = field(t, here, within_evaluation(field, context))
        return (mixed + dt * write.unsqueeze(-1) * f.unsqueeze(-2)).to(x.dtype)

    def _mixed(self, mix: Tensor, dt: float, z: Tensor) -> Tensor:
        if dt != 1.0:
            eye = torch.eye(self.count, dtype=mix.dtype, device=mix.device)
            mix = eye + dt * (mix - eye)
        return mix @ z

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return x.mean(-2)

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        part = share_of_step(share)
        mixed = "z" if getattr(self, "mix", self) is None else f"(1 + {part}(A − 1)) z" if part else "A z"
        return [f"z ← {mixed} + {part}b {field.formula('c · z')}, z = {self.count} streams that begin as x"]


class HyperConnections(Streams):
    """Free coefficients: static ones and, if `dynamic`, a small part computed from each stream.

    At the start stream `index` mod n is read, all are written to and none is mixed: the plain layer. What depends on
    the streams, s tanh(N(z) W), starts at zero. Without `mixes`, A stays the identity (identity hyper-connections).
    """

    history = "hyper"

    def __init__(
        self, width: int, count: int, index: int, dynamic: bool = True, eps: float = 1e-5, *, mixes: bool = True
    ) -> None:
        super().__init__(count)
        self.read = nn.Parameter(torch.eye(count)[index % count].clone())
        self.write = nn.Parameter(torch.ones(count))
        # a vector, as no map of features: it does not decay
        self.mix = nn.Parameter(torch.eye(count).flatten()) if mixes else None
        self.dynamic = dynamic
        if dynamic:
            self.eps = eps
            self.gain = nn.Parameter(torch.ones(width))
            self.map = nn.Parameter(torch.zeros(width, 2 + count * mixes))
            self.scale = nn.Parameter(torch.full((2,), 0.01))

    def coefficients(self, z: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        mix = None if self.mix is None else self.mix.view(self.count, self.count)
        if not self.dynamic:
            return self.read, mix, self.write
        normed = nn.functional.rms_norm(z, self.gain.shape, self.gain.to(z.dtype), self.eps)
        moved = torch.tanh(normed @ self.map.to(z.dtype))
        read, write, rest = moved.split((1, 1, moved.shape[-1] - 2), dim=-1)
        if mix is not None:
            mix = mix + self.scale[0] * rest.mT
        return self.read + self.scale[0] * read.squeeze(-1), mix, self.write + self.scale[1] * write.squeeze(-1)


class Lanes(Streams):
    """Two streams: attention reads the first, the feed-forward the second, both are kept as λ z and written to.

    With λ = 1 and b = (1, 1), the start, the lanes stay equal: the plain layer.
    """

    history = "two-lanes"

    def __init__(self, lane: int) -> None:
        super().__init__(2)
        self.lane = int(lane)
        """the stream that is read"""
        self.keep = nn.Parameter(torch.ones(()))
        self.write = nn.Parameter(torch.ones(2))

    def coefficients(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        eye = torch.eye(2, dtype=z.dtype, device=z.device)
        return eye[self.lane], self.keep * eye, self.write

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        part = share_of_step(share)
        decayed = f"(1 + {part}(λ − 1)) z" if part else "λ z"
        return [f"z ← {decayed} + {part}b {field.formula(f'z{self.lane + 1}')}, z = 2 lanes that begin as x"]


class ManifoldHyperConnections(Streams):
    """mHC: c = σ, b = 2σ, A = Sinkhorn(exp) of logits α u φ + bias, u all streams of a position under one RMS norm.

    A doubly stochastic A keeps the mean of the streams and enlarges no difference. The start is the plain layer but
    for φ, which is small and random: from equal streams with equal coefficients the streams would stay equal.
    """

    history = "mhc"

    def __init__(self, width: int, count: int, iterations: int | None = 20, eps: float = 1e-5) -> None:
        super().__init__(count)
        self.iterations = iterations
        """Sinkhorn iterations; None: A is a mean of permutations weighted by a softmax of n! logits (mHC-lite)"""
        self.eps = eps
        off = -5.0 * (1.0 - torch.eye(count))
        if iterations is None:
            # so that it starts alike: an exchange of two costs 5
            off = permutation_matrices(count, off.dtype, off.device) @ off.flatten() / 2
        self.bias = nn.Parameter(
            torch.cat((torch.full((count,), -math.log(count - 1)), torch.zeros(count), off.flatten()))
        )
        self.scale = nn.Parameter(torch.full((3,), 0.01))
        self.map = nn.Parameter(1e-4 * torch.randn(count * width, self.bias.numel()))

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        self.check_length(dt)
        return super().step(field, t, dt, x, context)

    @staticmethod
    def check_length(dt: float) -> None:
        """Raises `OdeumError` for a step length whose mixing matrix is not doubly stochastic."""
        if not 0.0 < dt <= 1.0:
            raise OdeumError(
                f"a step of mhc mixes by I + dt (A − I), doubly stochastic for dt from 0 to 1, not for {dt:g}; give "
                "more steps per layer or a shorter interval"
            )

    def coefficients(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = self.count
        every = z.flatten(-2)
        every = every * torch.rsqrt(every.pow(2).mean(-1, keepdim=True) + self.eps)
        sizes = (n, n, self.bias.numel() - 2 * n)
        parts = zip(self.scale, (every @ self.map.to(z.dtype)).split(sizes, -1), self.bias.split(sizes), strict=True)
        read, write, mix = (scale * part + bias for scale, part, bias in parts)
        if self.iterations is None:
            mix = (mix.softmax(-1) @ permutation_matrices(n, mix.dtype, mix.device)).unflatten(-1, (n, n))
        else:
            mix = sinkhorn(mix.unflatten(-1, (n, n)), self.iterations)
        return read.sigmoid(), mix, 2.0 * write.sigmoid()


@cached_constant
def permutation_matrices(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """All permutations of `count` streams as rows of [count!, count²]; no buffer, which loading would leave empty."""
    orders = torch.tensor(list(itertools.permutations(range(count))), device=device)
    return torch.eye(count, dtype=dtype, device=device)[orders].flatten(1)


def sinkhorn(logits: Tensor, iterations: int = 20) -> Tensor:
    """exp(logits) with rows and columns normalised in turn: columns sum to one, rows nearly.

    The first iteration uses logarithms, so that no logit is too large; afterwards no sum is below 1/n², so division is
    safe. Row sums differ from one by less than 1e-4 after 20 iterations for logits of standard deviation 1, by up to a
    quarter for 8.
    """
    mix = logits.movedim((-2, -1), (0, 1)).contiguous()  # sums over leading axes are several times as fast
    mix = mix - mix.logsumexp(1, keepdim=True)
    mix = (mix - mix.logsumexp(0, keepdim=True)).exp()
    for _ in range(iterations - 1):
        mix = mix / mix.sum(1, keepdim=True)
        mix = mix / mix.sum(0, keepdim=True)
    return mix.movedim((0, 1), (-2, -1)).contiguous()


def full_precision(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Context with autocast disabled, on devices that have it."""
    kind = x.device.type
    known = torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if known else contextlib.nullcontext()
