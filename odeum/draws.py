"""Initial weights keyed by role: one seed gives unlike architectures the same numbers wherever a weight means the same.

`odeum.build` takes one key from torch's generator. Each part of a model draws from a generator of its own, seeded by
(key, name of the part, how many of that name came before it in its stack), so the attention of the fourth layer gets
the same weights under every method, schedule and number of streams. Parts do not take part in this by hand: the
constructors of `Field`, `Method` and the other `Keyed` classes, those of plugins included, run with torch's own
generator seeded for them, so `nn.Linear`, `nn.init` and `torch.randn` need not know. Distributions are therefore
whatever the constructor requests.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

SCHEME = "keyed-1"
"""recorded with each run: results of another scheme have other initial weights for the same seed"""


class _Scope:
    """The parts that draw under one key; their ordinals are counted here."""

    def __init__(self, key: int, outer: _Scope | None, *, counts: bool = True, owner: object = None) -> None:
        self.key = key
        self.outer = outer
        self.counting: _Scope = self if counts or outer is None else outer.counting
        """the scope that numbers the keyed objects: the stack, also for a field inside another field"""
        self.owner = owner
        self.numbers: Counter[str] = Counter()
        self.in_stack: bool = outer is not None and outer.in_stack

    def derive(self, name: str) -> int:
        """The key of the next part of that name."""
        ordinal = self.numbers[name]
        self.numbers[name] += 1
        digest = hashlib.blake2b(repr((self.key, name, ordinal)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def constructs(self, owner: object) -> bool:
        """Whether the constructor of this object is running already, as when it calls its base class's."""
        scope: _Scope | None = self
        while scope is not None:
            if scope.owner is owner:
                return True
            scope = scope.outer
        return False


_lock = threading.RLock()  # torch's generator is one for all threads
_scopes: ContextVar[_Scope | None] = ContextVar("scope of keyed draws", default=None)
"""a thread that constructs modules of its own meanwhile is not in the scope of another"""


@contextmanager
def _inside(scope: _Scope) -> Generator[None]:
    """Draw by the scope's key; afterwards torch's generators are as before."""
    device = torch.get_default_device()
    cpu = torch.default_generator
    before = cpu.get_state()
    elsewhere: Any = None if device.type in ("cpu", "meta") else torch.get_device_module(device)
    before_elsewhere = None if elsewhere is None else elsewhere.get_rng_state()
    try:
        cpu.manual_seed(scope.key)
        if elsewhere is not None:
            elsewhere.manual_seed(scope.key)
        token = _scopes.set(scope)
        try:
            yield
        finally:
            _scopes.reset(token)
    finally:
        cpu.set_state(before)
        if elsewhere is not None:
            elsewhere.set_rng_state(before_elsewhere)


def take_key() -> int:
    """One number from torch's CPU generator, which is all that building a model consumes."""
    number = torch.randint(2**63 - 1, (), device="cpu")
    return int(number) if type(number) is torch.Tensor else 0  # a fake tensor has no number, and needs no weights


@contextmanager
def key_draws(key: int | None = None) -> Generator[int]:
    """Key what is drawn inside, by a key from torch's generator unless one is given.

    Yields the key. Inside another such block it changes nothing, so that a model's stack is keyed by the model.
    """
    with _lock:
        if (scope := _scopes.get()) is not None:
            yield scope.key
            return
        key = take_key() if key is None else key
        with _inside(_Scope(key, None)):
            yield key


@contextmanager
def shapes_only() -> Generator[None]:
    """Build on the meta device, for shapes and names alone: torch's generators stay as they are."""
    with torch.device("meta"), key_draws(0):
        yield


@contextmanager
def drawing(name: str) -> Generator[None]:
    """Draw for the part of that name; outside of `key_draws` this does nothing."""
    scope = _scopes.get()
    if scope is None:
        yield
        return
    with _inside(_Scope(scope.derive(name), scope, counts=False)):
        yield


@contextmanager
def drawing_stack() -> Generator[None]:
    """Number the fields and methods made inside; a stack within a stack goes on counting."""
    with key_draws():
        outer = _scopes.get()
        assert outer is not None
        if outer.in_stack:
            yield
            return
        scope = _Scope(outer.derive("stack"), outer)
        scope.in_stack = True
        with _inside(scope):
            yield


class Keyed:
    """Base of classes whose constructors draw by their role, or class name, and their ordinal in the stack."""

    role: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _keyed(cls.__dict__["__init__"])  # ty: ignore[invalid-assignment]


def _keyed(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def keyed(self: Keyed, *args: Any, **kwargs: Any) -> None:
        scope = _scopes.get()
        if scope is None or not scope.in_stack or scope.constructs(self):
            init(self, *args, **kwargs)
            return
        key = scope.counting.derive(self.role or type(self).__name__)
        with _inside(_Scope(key, scope, counts=False, owner=self)):
            init(self, *args, **kwargs)

    return keyed


def truncated_normal(weight: Tensor, std: float) -> None:
    """Draws `nn.init.trunc_normal_`, which reads numbers, so that it fails on fake tensors: those are left alone."""
    if not isinstance(weight, FakeTensor):
        nn.init.trunc_normal_(weight, std=std)
