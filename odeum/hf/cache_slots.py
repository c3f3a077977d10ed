"""A decoding cache of transformers as ours: one of its layers for each evaluation of an attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.cache import Cache


class CacheSlots(Cache):
    """Slots in the layers of a transformers cache, which grows, is reordered and is thrown away by its owner.

    A slot there holds two tensors: one alone gets a partner without features.
    """

    def __init__(self, theirs: Any, past: int, updated: dict[int, bool] | None = None) -> None:
        super().__init__()
        self.theirs, self.length, self.updated = theirs, past, updated

    def begin(self) -> None:
        self.cursor = 0

    def advance(self, positions: int) -> None:
        self.length += positions

    def enter(self, solver: object) -> None:
        pass

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        return self._put(new)

    def constant(self, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        updated = {} if self.updated is None else self.updated
        if updated.get(self.cursor):
            layer = self.theirs.layers[self._slot()]
            return layer.keys, layer.values
        updated[self.cursor] = True
        return self._put(make())

    def _put(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        first, second = new if len(new) == 2 else (new[0], new[0][..., :0])
        return self.theirs.update(first, second, self._slot())[: len(new)]

    def _slot(self) -> int:
        slot = self.cursor
        if self.theirs.layers and slot >= len(self.theirs.layers) and self.theirs.layer_class_to_replicate is None:
            raise OdeumError(
                f"this pass needs more than the {len(self.theirs.layers)} slots of its decoding cache: the solver has "
                "been changed since the configuration was made; use_cache=False decodes without one"
            )
        self.cursor += 1
        return slot
