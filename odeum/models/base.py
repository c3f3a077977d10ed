"""Base class of the models: output, loss, and the settings they were built from."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.kernels.autograd import plain_autograd, readable
from odeum.kernels.cross_entropy import IGNORE, exact
from odeum.models.settings import Model, check_settings
from odeum.registry.names import Architecture


class Output(NamedTuple):
    """Output of a model; the loss is None if no labels were given."""

    logits: Tensor | None
    loss: Tensor | None = None


class OdeumModel(nn.Module):
    """Embedding, stack of layers and head. Keeps its settings, from which a saved model is rebuilt.

    `forward` takes the tensors of a batch as keyword arguments and returns an `Output`.
    """

    in_training: ClassVar[dict[str, Any]] = {}
    """arguments of a forward pass that needs the loss alone, besides the batch"""
    hf_class: ClassVar[str | type | None] = None
    """the class of `odeum.hf` that wraps this model, as "module:name" (none: transformers has no task like it)"""

    def __init__(self, settings: Model, architecture: Architecture) -> None:
        super().__init__()
        check_settings(settings)
        self.settings = settings
        self.architecture = architecture
        self.label_smoothing = 0.0
        """label smoothing of the loss in training; evaluation is never smoothed"""
        self.draw_key: int | None = None
        """seed of its initial weights, if `odeum.build` made it"""

    @property
    def particles(self) -> int:
        """Number of positions in the stack for one example of full length."""
        raise NotImplementedError(f"{type(self).__name__} must define the number of particles per example")

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        """A batch of the right shape and full length, on which costs are counted."""
        raise NotImplementedError(f"{type(self).__name__} must define an example of its input")

    @staticmethod
    def counted(labels: Tensor) -> int:
        """Number of labels that the loss is a mean over: those not ignored; for probabilities, the rows."""
        return len(labels) if labels.is_floating_point() else int((labels != IGNORE).sum())

    def criterion(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy for class numbers (−100 = ignored) or, from mixup, class probabilities.

        0 with zero gradient if every label is ignored.
        """
        check_labels(labels, logits)
        smoothing = self.label_smoothing if self.training else 0.0
        if labels.is_floating_point():
            return nn.functional.cross_entropy(exact(logits), labels, label_smoothing=smoothing)
        labels = labels.flatten().long()
        options: dict[str, Any] = {"ignore_index": IGNORE, "label_smoothing": smoothing, "reduction": "sum"}
        total = nn.functional.cross_entropy(exact(logits).flatten(0, -2), labels, **options)
        return total / (labels != IGNORE).sum().clamp(min=1)


def zero_ids(batch: int, length: int, device: str) -> Tensor:
    """Token ids of this shape, all zero."""
    return torch.zeros(batch, length, dtype=torch.long, device=device)


def check_ids(ids: Tensor, name: str = "input_ids") -> None:
    if ids.dim() != 2 or ids.shape[1] < 1:
        raise OdeumError(f"{name} has shape {tuple(ids.shape)}, but must be [batch, length] with at least one token")


def check_labels(labels: Tensor, scored: Tensor, classes: int | None = None) -> None:
    """Raise OdeumError unless there is one label (or row of probabilities) per scored state, each a known class.

    Values are checked on the CPU only: elsewhere the check would wait for the device. Fake tensors have none.
    """
    right = scored.shape if labels.is_floating_point() else scored.shape[:-1]
    if labels.shape != right:
        raise OdeumError(f"labels have shape {tuple(labels.shape)}, but must have shape {tuple(right)}")
    classes = scored.shape[-1] if classes is None else classes
    if not readable(labels) or labels.is_floating_point() or not labels.numel() or not plain_autograd():
        return
    low, high = (int(x) for x in torch.aminmax(labels.masked_fill(labels == IGNORE, 0)))
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise OdeumError(
            f"the label {wrong} is not one of the {classes} classes, 0 to {classes - 1} (or {IGNORE}: ignore)"
        )


def masked_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over the positions of [batch, length, width] that a mask [batch, length] keeps."""
    if mask is None:
        return x.mean(dim=1)
    keep = mask.unsqueeze(-1).to(x.dtype)
    return (x * keep).sum(dim=1) / keep.sum(dim=1).clamp(min=1.0)


def key_mask(attention_mask: Tensor | None, batch: int, length: int) -> Tensor | None:
    """[batch, keys] with 1 = keep -> the mask of a Source, True where a query may attend."""
    if attention_mask is None:
        return None
    if attention_mask.shape != (batch, length):
        raise OdeumError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but must be {(batch, length)}: batch × length"
        )
    return attention_mask.to(torch.bool)[:, None, None, :]
