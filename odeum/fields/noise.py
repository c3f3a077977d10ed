"""Dropout masks, drawn once per step, so that all stages of a Runge–Kutta step evaluate the same field."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError


def generators() -> list[Tensor]:
    """Returns the states of torch's random generators, which change when a number is drawn."""
    states = [torch.default_generator.get_state()]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        states += [generator.get_state() for generator in torch.cuda.default_generators]
    return states


class DrawWatch:
    """Detects random draws of a field outside `Noise`, such as nn.functional.dropout."""

    def __init__(self, field: Any, why: str) -> None:
        self.field = field
        self.why = why
        self.states: list[Tensor] | None = None

    def note(self) -> None:
        """Starts watching from the current generator states."""
        self.states = generators()

    def look(self) -> None:
        """Raises `OdeumError` if random numbers were drawn since `note`."""
        if self.states is not None and not all(map(torch.equal, self.states, generators())):
            raise OdeumError(
                f"{self.why}, but {self.field.formula('x')} draws its own random numbers, for example with "
                "nn.functional.dropout; use odeum.fields.Dropout(rate), called as dropout(x, context.noise)"
            )


class Noise:
    """The dropout masks of one step, drawn at its first stage and found again at the others.

    A mask belongs to the module that draws it, as often as that module acts within one evaluation of a field: a
    dropout applied to two inputs has two masks. `evaluation` looks at the masks of one evaluation from its begin: a
    stage of a Runge–Kutta step or the second half-step of a splitting's term, which finds what the first one drew.
    `step` looks at those of a step within an evaluation (a whole layer as a field), where the next one draws again.
    """

    def __init__(self, masks: Iterable[Tensor] = (), watch: DrawWatch | None = None) -> None:
        self.watch = watch
        self.masks = list(masks)
        """masks in the order of first use; given ones are used before new ones are drawn"""
        self._places: dict[tuple[Hashable, ...], int] = {}
        self._path: tuple[Hashable, ...] = ()
        self._turns: dict[Hashable, int] = {}

    def draw(self, module: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """Returns the module's next mask in this evaluation, and makes it on first use."""
        place = self._places.setdefault(self._turn(module), len(self._places))
        if place == len(self.masks):
            self.masks.append(self._made(make))
        return self.masks[place]

    def _made(self, make: Callable[[], Tensor]) -> Tensor:
        if self.watch is None:
            return make()
        self.watch.look()
        mask = make()
        self.watch.note()
        return mask

    def known(self, module: Hashable) -> list[Tensor]:
        """Returns the masks that the module's next draws in this evaluation will get."""
        module = _identity(module)
        turn, masks = self._turns.get(module, 0), []
        while (place := self._places.get((*self._path, module, turn))) is not None:
            masks.append(self.masks[place])
            turn += 1
        return masks

    def evaluation(self, field: Hashable) -> Noise:
        """Returns the masks as seen by an evaluation of this field; equal for every evaluation."""
        if self.watch is not None:  # since the last evaluation nothing else has acted
            self.watch.look()
            self.watch.note()
        return self._within((*self._path, _identity(field)))

    def step(self, field: Hashable) -> Noise:
        """Returns the masks as seen by the next step of this field."""
        return self._within(self._turn(field))

    def _turn(self, who: Hashable) -> tuple[Hashable, ...]:
        who = _identity(who)
        turn = self._turns.get(who, 0)
        self._turns[who] = turn + 1
        return (*self._path, who, turn)

    def _within(self, path: tuple[Hashable, ...]) -> Noise:
        inner = Noise(watch=self.watch)
        inner.masks, inner._places, inner._path = self.masks, self._places, path
        return inner


def _identity(module: Any) -> Hashable:
    """Returns the module, or the original of a copy."""
    return getattr(module, "__dict__", {}).get("stands_for", module)


class ReplayedNoise(Noise):
    """Masks keyed by module, evaluation and step instead of drawing order, which differs in the backward pass."""

    def __init__(self, seed: tuple[int, ...], places: dict[Any, int], turns: dict[Any, int] | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.places = places
        self._turns = dict(turns or {})

    def draw(self, module: Hashable, make: Callable[[], Tensor]) -> Tensor:
        key = tuple(self.places.get(step, step) for step in self._turn(module))
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        # Torch's own function also remembers the seed for devices that are not there, which costs more than a mask.
        elsewhere = bool(devices) or torch.backends.mps.is_available()
        seed = torch.manual_seed if elsewhere else torch.default_generator.manual_seed
        with torch.random.fork_rng(devices=devices):
            seed(hash((*self.seed, *key)) & (2**63 - 1))
            return make()

    def _within(self, path: tuple[Hashable, ...]) -> Noise:
        inner = ReplayedNoise(self.seed, self.places)
        inner._path = path
        return inner


class Dropout(nn.Module):
    """Dropout whose mask is shared by all stages of a step."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise OdeumError(f"dropout must be a probability of at least 0 and below 1, got {rate}")
        self.rate = rate

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if noise is None:
            return drop(x, self.rate)
        return x * noise.draw(self, lambda: drop_mask(x, self.rate))

    def extra_repr(self) -> str:
        return f"{self.rate}"


def drop(x: Tensor, rate: float) -> Tensor:
    """Applies dropout, with the fused kernel on a GPU and packed random bits on a CPU."""
    return x * drop_mask(x, rate) if _draws_packed_bits(x) else nn.functional.dropout(x, rate)


def drop_mask(x: Tensor, rate: float) -> Tensor:
    """0 or 1 / (1 − rate) for each element of x; on CPUs four are drawn from the 16-bit parts of one 64-bit number."""
    if not _draws_packed_bits(x):
        return nn.functional.dropout(torch.ones_like(x), rate)
    dropped = min(round(rate * 65536), 65535)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    alive = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 32768
    return alive.to(x.dtype).mul_(65536 / (65536 - dropped))


def _draws_packed_bits(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
