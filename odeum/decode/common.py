"""What every way of decoding needs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import every_part, foreign_modules
from odeum.fields.transevolve.rotation import Rotation
from odeum.integrators import Adaptive
from odeum.models.base import OdeumModel


def cacheable(module: object) -> bool:
    """Whether a pass over the newest positions is enough: it must evaluate the same fields in the same order as those
    before it, but an adaptive solver's steps depend on the data; and each field must know its past."""
    if not isinstance(module, nn.Module):
        return True
    if any(isinstance(part, Adaptive) for part in every_part(module)):
        return False
    return all(getattr(part, "cached", False) for part in foreign_modules(module) if not isinstance(part, OdeumModel))


class Evaluation:
    """Without dropout while decoding; afterwards each part is as before. The parts are found once, for many tokens."""

    def __init__(self, model: object) -> None:
        self.parts = every_part(model) if isinstance(model, nn.Module) else []
        self.before: list[nn.Module] = []

    def __enter__(self) -> None:
        self.before = [part for part in self.parts if part.training]
        for part in self.before:
            part.training = False

    def __exit__(self, *error: object) -> None:
        for part in self.before:
            part.training = True


@contextmanager
def folded(model: object) -> Generator[None]:
    """Random feed-forwards as one matrix each while decoding: few rows, many passes."""
    everything = every_part(model) if isinstance(model, nn.Module) else []
    parts = [part for part in everything if isinstance(part, Rotation) and not part.folding]
    for part in parts:
        part.fold()
    try:
        yield
    finally:
        for part in parts:
            part.fold(False)


def kept(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """The mask as booleans, or None if it keeps everything; a sentence if the shapes are wrong."""
    if input_ids.dim() != 2 or input_ids.shape[1] < 1:
        raise OdeumError(f"input_ids has shape {tuple(input_ids.shape)}, but should be [batch, length], not empty")
    if attention_mask is None:
        return None
    if attention_mask.shape != input_ids.shape:
        shape, right = tuple(attention_mask.shape), tuple(input_ids.shape)
        raise OdeumError(f"attention_mask has shape {shape}, but should be {right}: batch × length")
    mask = attention_mask.bool()
    return None if bool(mask.all()) else mask
