"""Helpers shared by generation and beam search."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.base import fast_modules, foreign_modules
from odeum.fields.transevolve.rotation import Rotation
from odeum.integrators import Adaptive
from odeum.models.base import OdeumModel


def cacheable(module: object) -> bool:
    """Whether a pass over the newest positions is enough: it must evaluate the same fields in the same order as those
    before it, but an adaptive solver's steps depend on the data; and each field must know its past."""
    if not isinstance(module, nn.Module):
        return True
    if any(isinstance(part, Adaptive) for part in fast_modules(module)):
        return False
    return all(getattr(part, "cached", False) for part in foreign_modules(module) if not isinstance(part, OdeumModel))


class Evaluation:
    """Without dropout while decoding; afterwards each part is as before. The parts are found once, for many tokens."""

    def __init__(self, model: object) -> None:
        self.parts = fast_modules(model) if isinstance(model, nn.Module) else []
        self.before: list[nn.Module] = []

    def __enter__(self) -> None:
        self.before = [part for part in self.parts if part.training]
        for part in self.before:
            part.training = False

    def __exit__(self, *error: object) -> None:
        for part in self.before:
            part.training = True


Folds = dict[nn.Module, dict[float, tuple[int, Tensor]]]
"""the matrices of random feed-forwards, by the module that they belong to"""


def evaluating(model: Any, folds: Folds | None = None) -> Any:
    """Return the model for decoding: without dropout, and with random feed-forwards folded into one matrix each.

    A model that is so already is returned itself. Otherwise the result is a copy of its tree of modules, with the same
    weights, buffers and hooks, so that decoding changes nothing of a model that another thread trains.
    """
    if not isinstance(model, nn.Module):
        return model
    parts = fast_modules(model)
    if not any(part.training or (isinstance(part, Rotation) and not part.folding) for part in parts):
        return model
    return _evaluating(model, {}, {} if folds is None else folds)


def _evaluating(module: nn.Module, copies: dict[nn.Module, nn.Module], folds: Folds) -> nn.Module:
    if module in copies:
        return copies[module]
    compiled = module._modules.get("_orig_mod")
    if compiled is not None:  # of torch.compile, whose graph is that of the mode and the module at hand
        return _evaluating(compiled, copies, folds)
    if "forward" in module.__dict__:
        raise OdeumError(
            f"the forward of a {type(module).__name__} has been replaced, so it cannot be evaluated while the model is "
            "in training mode; call model.eval() before decoding"
        )
    copy: Any = type(module).__new__(type(module))
    copies[module] = copy
    copy.__dict__.update(module.__dict__, training=False, stands_for=module, _compiled_call_impl=None)
    if isinstance(module, Rotation) and not module.folding:
        copy.__dict__.update(folding=True, folded=folds.setdefault(module, {}))
    copy.__dict__["_modules"] = {
        name: child and _evaluating(child, copies, folds) for name, child in module._modules.items()
    }
    return copy


def boolean_mask(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """The mask as booleans, or None if it masks nothing; raises `OdeumError` for wrong shapes."""
    if input_ids.dim() != 2 or input_ids.shape[1] < 1:
        raise OdeumError(f"input_ids has shape {tuple(input_ids.shape)}, but must be [batch, length], not empty")
    if attention_mask is None:
        return None
    if attention_mask.shape != input_ids.shape:
        shape, right = tuple(attention_mask.shape), tuple(input_ids.shape)
        raise OdeumError(f"attention_mask has shape {shape}, but must be {right}: batch × length")
    mask = attention_mask.bool()
    return None if bool(mask.all()) else mask
