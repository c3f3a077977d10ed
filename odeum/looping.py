"""Looped depth: a prelude, a core whose layers act several times, and a coda.

e = prelude(x);  s ← core(inject(s, e)), several times;  coda(s)
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from odeum.draws import Keyed
from odeum.errors import OdeumError
from odeum.fields.base import Context, Source
from odeum.flow import Layer, Stack, finished
from odeum.integrators import capabilities
from odeum.integrators.diagnostics import Diagnostic
from odeum.kernels.autograd import in_make_fx, in_vmap

_COUNTING = threading.Lock()


class Injection(Keyed, nn.Module):
    """The input of each repeat of the core, from the state s (none before the first) and the prelude's output e."""

    reads_prelude = False
    """whether each repeat reads e"""

    def forward(self, s: Tensor | None, e: Tensor) -> Tensor:
        return e if s is None else s

    def formula(self) -> str:
        return "s"


class AddedInjection(Injection):
    """s + e, from s = 0."""

    reads_prelude = True

    def forward(self, s: Tensor | None, e: Tensor) -> Tensor:
        return e if s is None else s + e

    def formula(self) -> str:
        return "s + e"


class ConcatInjection(Injection):
    """W [s, e], from s = 0 (Geiping et al. 2025); at the start it is their sum."""

    reads_prelude = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.cat((torch.eye(width), torch.eye(width)), dim=1))

    def forward(self, s: Tensor | None, e: Tensor) -> Tensor:
        return nn.functional.linear(torch.cat((torch.zeros_like(e) if s is None else s, e), dim=-1), self.weight)

    def formula(self) -> str:
        return "W [s, e]"


class StableInjection(Injection):
    """exp(−Δ a) s + Δ B N(e), from s = 0: a contraction of s for any weights (Parcae).

    At the start a = 1, exp(−Δ a) = √(1/5) and B = 1.
    """

    reads_prelude = True

    def __init__(self, width: int, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.log_rate = nn.Parameter(torch.zeros(width))
        self.step = nn.Parameter(torch.full((width,), math.log(math.sqrt(5.0) - 1.0)))  # of which Δ is the softplus
        self.map = nn.Parameter(torch.eye(width).flatten())  # a vector, so that it does not decay from one

    @property
    def decay(self) -> Tensor:
        """The factor of each feature of s, below one."""
        return torch.exp(-nn.functional.softplus(self.step) * self.log_rate.exp())

    def forward(self, s: Tensor | None, e: Tensor) -> Tensor:
        width = self.step.shape[0]
        added = nn.functional.softplus(self.step) * nn.functional.linear(self.norm(e), self.map.view(width, width))
        return added if s is None else self.decay * s + added

    def formula(self) -> str:
        return "exp(−Δ a) s + Δ B N(e)"


class Looped(Stack):
    """A stack whose core repeats; another number of repeats may be set at any time (`set_repeats`).

    In training the number may be drawn for each batch (`random`: one more than a Poisson number, `repeats` in the
    mean), and gradients may pass `through` the last repeats alone. With `exit`, a position whose state moves by less
    than this share of its length is frozen, and a sample whose positions are all frozen is no longer evaluated; not in
    training. This depends on no other sample and, in a causal model, on no later position. The remaining samples are
    counted after each repeat, so an `exit` waits for the device.

    With `late`, the core acts once until this share of training is done (`set_progress`), and repeats from then on.
    A model that is built or loaded repeats.
    """

    counts = Diagnostic[tuple[int, int]]((0, 0))
    """repeats of samples since `set_repeats`: those that were computed, and as many as there could have been"""

    def __init__(
        self,
        flows: Sequence[Layer],
        schedule: Sequence[int],
        core: range,
        repeats: int,
        injection: Injection,
        norm: nn.Module | None = None,
        *,
        random: bool = False,
        through: int | None = None,
        exit: float = 0.0,
        late: float = 0.0,
    ) -> None:
        super().__init__(flows, schedule, norm)
        self.late, self.begun = late, True
        self.once, self.core = self.schedule, core
        self.injection = injection
        self.random, self.through, self.exit = random, through, exit
        self.check()
        if through is not None and not injection.reads_prelude:
            raise OdeumError(
                f"through={through} cuts the gradient of the layers before the loop unless each repeat reads "
                "them; use inject=add, concat or stable"
            )
        if through is not None and through > repeats and not random:
            raise OdeumError(f"through={through} is more than the {repeats} repeats; leave it out to pass through all")
        self.repeat(repeats)

    def check(self) -> None:
        if self.injection.reads_prelude or self.exit:
            for flow in self.flows:
                if (method := getattr(flow, "stateful_method", None)) is not None:
                    capabilities.check("an injection or an exit", method)

    def repeat(self, repeats: int) -> None:
        """Set the number of repeats."""
        self.repeats = repeats
        self.schedule = self.order(self.acting)

    def reach(self, progress: float) -> None:
        """Set the number of repeats for this share of training."""
        self.begun = progress >= self.late
        self.schedule = self.order(self.acting)

    @property
    def acting(self) -> int:
        """The current number of repetitions of the core."""
        return self.repeats if self.begun else 1

    def order(self, repeats: int) -> tuple[int, ...]:
        """Returns the order of flows for this number of repeats."""
        begin, end = self.core.start, self.core.stop
        return (*self.once[:begin], *self.once[begin:end] * repeats, *self.once[end:])

    def forward(self, x: Tensor, context: Context | None = None) -> Tensor:
        out = x
        for state, _, _ in self._walk(x, context or Context(), leave=True):
            out = state
        return out if self.norm is None else self.norm(out)

    def trajectory(self, x: Tensor, context: Context | None = None) -> Iterator[Tensor]:
        yield x
        for state, flow, here in self._walk(x, context or Context(), leave=False):
            yield finished(state, flow, here)

    def _walk(
        self, x: Tensor, context: Context, leave: bool, call: Callable[..., Tensor] | None = None
    ) -> Iterator[tuple[Tensor, Any, Context]]:
        """The state after each layer, its flow and its context; `leave`: samples that rest are left out on the way.

        `call` calls a layer with the flow, the state, the context and the time.
        """
        count, call = self._count(x), call or self._call
        steps = self._carrying(context, self.order(count))
        for flow, time, here in itertools.islice(steps, self.core.start):
            x = call(flow, x, here, time)
            yield x, flow, here
        if self.exit and not self.training and not x.is_meta:
            for state, flow, here in self._until_rest(x, context, steps, leave, call):
                x = state
                yield x, flow, here
        else:
            e, s = x, None
            for repeat in range(count):
                wanted = self.through is None or repeat >= count - self.through
                for place, (flow, time, here) in enumerate(itertools.islice(steps, len(self.core))):
                    with torch.set_grad_enabled(torch.is_grad_enabled() and wanted):
                        x = call(flow, self.injection(s, e) if place == 0 else x, here, time)
                    yield x, flow, here
                s = x
        for flow, time, here in steps:
            x = call(flow, x, here, time)
            yield x, flow, here

    def _until_rest(
        self, e: Tensor, context: Context, steps: Iterator[Any], leave: bool, call: Callable[..., Tensor]
    ) -> Iterator[tuple[Tensor, Any, Context]]:
        """The repeats with early exit: positions stop one by one."""
        everything = torch.arange(e.shape[0], device=e.device)
        # A cache needs the keys of every repeat; what a user's tensors are rows of is not known; vmap sees no number.
        leave = leave and context.own.cache is None and context.extra is None and context.own.anchor is None
        leave = leave and not in_vmap()
        rows, rests, s, left = everything, torch.zeros(e.shape[:2], dtype=torch.bool, device=e.device), None, False
        self._count_repeats(0, self.acting * e.shape[0])
        for _ in range(self.acting):
            repeat = itertools.islice(steps, len(self.core))
            if left:
                for _ in repeat:
                    pass
                continue
            self._count_repeats(len(rows), 0)
            before = None if s is None else s[rows]
            x = self.injection(before, e[rows])
            for place, (flow, time, here) in enumerate(repeat):
                x = call(flow, x, _select_rows(here, rows, len(everything)), time)
                if not leave and place < len(self.core) - 1:
                    yield x, flow, here
            if s is None or before is None:
                s = x
            else:
                still = rests[rows]
                s = s.index_copy(0, rows, torch.where(still.unsqueeze(-1), before, x))
                moved = (x - before).norm(dim=-1) >= self.exit * x.norm(dim=-1)
                rests = rests.index_copy(0, rows, still | ~moved)
            if leave:
                rows = (~rests.all(dim=1)).nonzero().flatten()
                left = not len(rows)
            yield s, flow, here

    def _count_repeats(self, taken: int, offered: int) -> None:
        with _COUNTING:  # two threads may run one model
            before = self.counts
            self.counts = before[0] + taken, before[1] + offered

    def _count(self, x: Tensor) -> int:
        """Return the repeats of this pass: drawn in training, on the CPU, so that the device is not waited for.

        Where there are no numbers (on the meta device, under a tracer), costs are counted, and those are of the mean.
        """
        draws = self.training and self.random and self.begun
        if not draws or x.is_meta or isinstance(x, FakeTensor) or in_make_fx():
            return self.acting
        drawn = 1 + torch.poisson(torch.tensor(self.repeats - 1.0, device="cpu"))
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            drawn = drawn.to(x.device)  # where processes exchange tensors; this waits for the device
            torch.distributed.broadcast(drawn, 0)  # processes that share weights (FSDP) must walk together
        return int(drawn)

    def scheme(self) -> list[str]:
        """Returns the loop as lines of an equation."""
        begin = "x" if not self.core.start else "the state after the prelude"
        lines = [f"s ← core({self.injection.formula()}), {self.repeats} times, e = {begin}"]
        if self.random:
            lines += [f"in training 1 + Poisson({self.repeats - 1}) times"]
        if self.through is not None:
            lines += [f"gradients pass through the last {self.through}"]
        if self.late:
            lines += [f"in training once until {self.late:.3g} of its length"]
        if self.exit:
            lines += [f"a position rests when |Δs| < {self.exit:g} |s|"]
        return lines

    def extra_repr(self) -> str:
        return f"schedule={self.once}, layers {self.core.start} to {self.core.stop - 1} {self.repeats} times"


def set_repeats(model: nn.Module, repeats: int | None = None, exit: float | None = None) -> None:
    """Set the number of repeats, or the exit threshold, of a looped model; None leaves a setting as it is.

    Resets the counts behind `mean_repeats`.
    """
    loops = [module for module in model.modules() if isinstance(module, Looped)]
    if not loops:
        raise OdeumError("only a looped architecture repeats; see `odeum describe looped`")
    if repeats is not None and (not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1):
        raise OdeumError(f"repeats must be a positive integer, got {repeats!r}")
    if exit is not None and not 0.0 <= exit < math.inf:
        raise OdeumError(f"exit must be a relative state change of at least 0, not {exit!r}")
    before = [loop.exit for loop in loops]
    try:
        for loop in loops:
            loop.exit = loop.exit if exit is None else exit
            loop.check()
    except OdeumError:
        for loop, threshold in zip(loops, before, strict=True):
            loop.exit = threshold
        raise
    for loop in loops:
        loop.counts = (0, 0)
        loop.repeat(loop.repeats if repeats is None else repeats)


def set_progress(model: nn.Module, progress: float) -> None:
    """Set the fraction of training that is done, from 0 to 1, for cores that start to repeat during training.

    Odeum's training does so before each step. A model that is built or loaded is as at the end.
    """
    for module in model.modules():
        if isinstance(module, Looped):
            module.reach(progress)


def phases(model: nn.Module) -> list[tuple[float, float]]:
    """Returns the times, as shares of training, at which its schedule changes, each with the share until the next."""
    begins = sorted({0.0, *(module.late for module in model.modules() if isinstance(module, Looped))})
    return [(begin, end - begin) for begin, end in itertools.pairwise([*begins, 1.0])]


def mean_repeats(model: nn.Module) -> float | None:
    """Returns the mean number of repeats per sample where samples could exit early, else None."""
    loops = [(module.repeats, *module.counts) for module in model.modules() if isinstance(module, Looped)]
    total = sum(offered for _, _, offered in loops)
    return sum(taken * repeats for repeats, taken, _ in loops) / total if total else None


def _select_rows(context: Context, rows: Tensor, batch: int) -> Context:
    """Returns the context of these samples."""
    if len(rows) == batch:
        return context

    def select(source: Source) -> Source:
        mask, memory, rotary = source.mask, source.memory, source.rotary
        if mask is not None and mask.dim() == 4 and mask.shape[0] == batch:
            mask = mask[rows]
        if rotary is not None and rotary.positions.shape[0] == batch:
            rotary = rotary._replace(positions=rotary.positions[rows], tables=None)  # which are of all rows
        return source._replace(mask=mask, memory=None if memory is None else memory[rows], rotary=rotary)

    return context._replace(own=select(context.own), other=select(context.other))
