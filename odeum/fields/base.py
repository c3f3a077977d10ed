"""The vector field dx/dt = f(t, x; context); everything besides (t, x) is in the context."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from odeum.draws import Keyed
from odeum.fields.cache import Cache
from odeum.fields.noise import Noise


class Rotary(NamedTuple):
    """Rotary positions (Su et al. 2021)."""

    positions: Tensor
    base: float = 10_000.0
    width: int | None = None  # features of a head that turn, from the first on (default: all)
    tables: dict[Any, tuple[Tensor, Tensor]] | None = None  # cosines and sines by width and precision, made once a pass
    scaling: Any = None  # `models.pretrained.RotaryScaling` of an imported model


class Past:
    """Keys and values of earlier layers at the same positions, [batch, heads, length, head width], for one step.

    A method passes it to self-attention, which notes its own keys and values (those of the step's first evaluation).
    """

    def __init__(
        self, keys: tuple[Tensor, ...] = (), values: tuple[Tensor, ...] = (), added: Tensor | None = None
    ) -> None:
        self.keys = keys
        """attended to, in addition to the keys of the positions"""
        self.values = values
        self.added = added
        """added to the values"""
        self.noted: tuple[Tensor, Tensor] | None = None

    def note(self, keys: Tensor, values: Tensor) -> None:
        """Keep the keys and values of the first evaluation."""
        if self.noted is None:
            self.noted = keys, values


class Source(NamedTuple):
    """The inputs of one attention; constant during a solve."""

    mask: Tensor | None = None  # True where a query may attend, or added to the scores; [batch, heads, queries, keys]
    causal: bool = False  # so that the fused causal kernel is used and no n×n mask is built
    memory: Tensor | None = None  # None: the evolving state itself
    anchor: Any = None  # what a block around the layers measured at its start: a tree of tensors, for its own fields
    cache: Cache | None = None  # incremental decoding
    rotary: Rotary | None = None
    past: Past | None = None  # of earlier layers


class Carry:
    """The history of a method within one forward pass: past evaluations, streams or a velocity.

    The stack creates one per layer from what the layer before handed on, so nothing outlives the pass. It belongs to
    the method; fields do not read it. `state` may carry gradients. With a decoding cache it holds the new positions
    only, so reordering beams does not affect it.
    """

    def __init__(self, state: Any = None, *, opens: bool = True, closes: bool = True) -> None:
        self.state = state
        self.opens = opens
        """whether this is the first layer that shares the history"""
        self.closes = closes
        """whether this is the last layer that shares the history"""
        self.handed: Any = None
        """the state at the end of the layer; `state` stays unchanged, so that the layer can be recomputed"""


class Step(NamedTuple):
    """The step in which a field is evaluated, for solvers with a given step length."""

    begin: float
    length: float

    @property
    def middle(self) -> float:
        """A time inside the step, because the time of a stage may be at its edge."""
        return self.begin + self.length / 2


class Context(NamedTuple):
    """Everything that a field may read besides (t, x), and the history of its method."""

    own: Source = Source()
    other: Source = Source()
    noise: Noise | None = None
    carry: Carry | None = None
    step: Step | None = None
    extra: Any = None  # a user's own tensors in mappings, tuples and lists, for fields to read; gradients reach them


class Field(Keyed, nn.Module):
    """dx/dt = f(t, x; context) with x of shape [batch, length, width]."""

    role: str | None = None
    """name of the field in a Sum (None: derived from its class)"""
    timed: bool = False
    """whether it needs one time for all samples"""
    cached: bool = False
    """whether the newest positions alone give the same as all of them: because the field looks at no other position, or
    keeps what it needs in `context.own.cache`. Asked of fields from outside Odeum; without it decoding computes the
    whole prefix again"""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define forward(t, x, context)")

    @property
    def stepwise(self) -> bool:
        """Whether the field is discontinuous between steps, so that steps of a given length are needed."""
        return False

    @property
    def terms(self) -> tuple[Field, ...]:
        """The terms that a splitting steps through one by one."""
        return (self,)

    @property
    def projects(self) -> bool:
        """Whether `project` is applied after each step."""
        return False

    def project(self, x: Tensor) -> Tensor:
        """Returns the state after a finished step: post-norm."""
        return x

    def observe(self, x: Tensor) -> Tensor:
        """Returns the part of the state in which an adaptive solver measures its error."""
        return x

    def formula(self, x: str) -> str:
        """Returns the field as a formula."""
        return f"{type(self).__name__}({x})"


def fast_modules(module: nn.Module) -> list[nn.Module]:
    """Returns `list(module.modules())` in breadth-first order, ten times as fast as torch's method."""
    parts, known = [module], {module}
    for part in parts:
        for inner in part._modules.values():
            if inner is not None and inner not in known:
                known.add(inner)
                parts.append(inner)
    return parts


def foreign_modules(module: nn.Module) -> list[nn.Module]:
    """Returns the modules inside that come from neither Odeum nor torch, whose use of positions is unknown.

    Modules of peft count as known: linear maps with an adapter act on each position alone.
    """
    known = ("odeum", "torch", "peft")
    # A wrapper that only refers to a field reports its modules itself.
    parts = fast_modules(module) if isinstance(module, nn.Module) else [part for _, part in module.named_modules()]
    return [part for part in parts if type(part).__module__.partition(".")[0] not in known]


def supports_cache(module: nn.Module) -> bool:
    """Returns whether all foreign modules declare that computing only new positions is enough."""
    return all(getattr(part, "cached", False) for part in foreign_modules(module))


def projects_anywhere(field: Field) -> bool:
    """Returns whether the field, or one of its terms at any depth, projects after a step."""
    return field.projects or any(projects_anywhere(term) for term in field.terms if term is not field)
