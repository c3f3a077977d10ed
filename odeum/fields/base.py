"""What is integrated: dx/dt = f(t, x; context), with everything besides (t, x) said in the context."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from odeum.draws import Keyed
from odeum.fields.cache import Cache
from odeum.fields.noise import Noise


class Rotary(NamedTuple):
    """Positions told by rotating queries and keys (Su et al. 2021)."""

    positions: Tensor
    base: float = 10_000.0
    width: int | None = None  # features of a head that turn, from the first on (none: all)
    tables: dict[Any, tuple[Tensor, Tensor]] | None = None  # cosines and sines by width and precision, made once a pass


class Past:
    """Keys and values of earlier layers at the same positions, [batch, heads, length, head width], for one step.

    A method passes it to self-attention, which notes its own keys and values (those of the step's first evaluation).
    """

    def __init__(
        self, keys: tuple[Tensor, ...] = (), values: tuple[Tensor, ...] = (), added: Tensor | None = None
    ) -> None:
        self.keys = keys
        """attended to, beside the keys of the positions"""
        self.values = values
        self.added = added
        """added to the values"""
        self.noted: tuple[Tensor, Tensor] | None = None

    def note(self, keys: Tensor, values: Tensor) -> None:
        """Keep the keys and values of the first evaluation."""
        if self.noted is None:
            self.noted = keys, values


class Source(NamedTuple):
    """What one attention reads; constant during a solve."""

    mask: Tensor | None = None  # True where a query may look, or added to the scores; [batch, heads, queries, keys]
    causal: bool = False  # so that the fused causal kernel is used and no n×n mask is built
    memory: Tensor | None = None  # None: the evolving state itself
    anchor: Any = None  # what a block around the layers measured at its start: a tree of tensors, for its own fields
    cache: Cache | None = None  # incremental decoding
    rotary: Rotary | None = None
    past: Past | None = None  # of earlier layers


class Carry:
    """What a method remembers from step to step and layer to layer of one pass: past evaluations, streams, a velocity.

    A stack opens one for each layer with what the layer before handed on, so nothing outlives the pass, however it
    ends. It belongs to the method; fields do not look at it. What is put into `state` may carry gradients. With a
    cache it holds the new positions alone, so a beam that is reordered between two passes has nothing to reorder here.
    """

    def __init__(self, state: Any = None, *, opens: bool = True, closes: bool = True) -> None:
        self.state = state
        self.opens = opens
        """whether the layer is the first of those that share this history"""
        self.closes = closes
        """whether it is the last"""
        self.handed: Any = None
        """the state at the layer's end; `state` stays what it began with, so that the layer may be recomputed"""


class Step(NamedTuple):
    """The step in which a field is evaluated, of a solver whose steps have a given length."""

    begin: float
    length: float

    @property
    def middle(self) -> float:
        """A time that belongs to this step alone, where the time of a stage may lie on its edge."""
        return self.begin + self.length / 2


class Context(NamedTuple):
    """All that a field may read besides (t, x), and what its method remembers."""

    own: Source = Source()
    other: Source = Source()
    noise: Noise | None = None
    carry: Carry | None = None
    step: Step | None = None
    extra: Any = None  # a user's own tensors in mappings, tuples and lists, for fields to read; gradients reach them


class Field(Keyed, nn.Module):
    """dx/dt = f(t, x; context) with x of shape [batch, length, width]."""

    role: str | None = None
    """what it is called in a Sum, if not after its class"""
    timed: bool = False
    """whether it is told a single time, the same for all samples"""
    cached: bool = False
    """whether the newest positions alone give the same as all of them: because the field looks at no other position, or
    keeps what it needs in `context.own.cache`. Asked of fields from outside Odeum; without it decoding computes the
    whole prefix again"""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define forward(t, x, context)")

    @property
    def stepwise(self) -> bool:
        """Whether it jumps from step to step, so that steps of a given length are needed."""
        return False

    @property
    def terms(self) -> tuple[Field, ...]:
        """What a splitting may treat apart."""
        return (self,)

    @property
    def projects(self) -> bool:
        """Whether a finished step is moved by `project`."""
        return False

    def project(self, x: Tensor) -> Tensor:
        """Where a finished step lands: post-norm."""
        return x

    def observe(self, x: Tensor) -> Tensor:
        """The part of the state on which an adaptive solver measures its error."""
        return x

    def formula(self, x: str) -> str:
        """The field as people write it."""
        return f"{type(self).__name__}({x})"


def fast_modules(module: nn.Module) -> list[nn.Module]:
    """What `modules()` gives, layer by layer: asked for in every call, and torch's own walk takes ten times as long."""
    parts, known = [module], {module}
    for part in parts:
        for inner in part._modules.values():
            if inner is not None and inner not in known:
                known.add(inner)
                parts.append(inner)
    return parts


def foreign_modules(module: nn.Module) -> list[nn.Module]:
    """The modules inside that come from neither Odeum nor torch: what they do with positions is not known.

    Those of peft stand for a linear map with an adapter, which looks at each position alone.
    """
    known = ("odeum", "torch", "peft")
    # What only looks at a field, and stands for it, says itself which modules there are.
    parts = fast_modules(module) if isinstance(module, nn.Module) else [part for _, part in module.named_modules()]
    return [part for part in parts if type(part).__module__.partition(".")[0] not in known]


def supports_cache(module: nn.Module) -> bool:
    """Whether all that comes from outside says that its newest positions alone give the same as all of them."""
    return all(getattr(part, "cached", False) for part in foreign_modules(module))


def projects_anywhere(field: Field) -> bool:
    """Whether a step through the field, or through one of its terms at any depth, ends in a projection."""
    return field.projects or any(projects_anywhere(term) for term in field.terms if term is not field)
