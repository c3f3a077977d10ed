"""What the models share: their output, their loss, and how they remember the words they were built from."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from odeum.architectures import check_shape
from odeum.errors import OdeumError
from odeum.kernels.autograd import plain_autograd
from odeum.kernels.cross_entropy import IGNORE, exact
from odeum.models.settings import Model
from odeum.registry.names import Architecture


class Output(NamedTuple):
    """What a model returns; the loss only where labels were given."""

    logits: Tensor | None
    loss: Tensor | None = None


class OdeumModel(nn.Module):
    """Embed, flow, read off. Knows its settings, so that a run can be rebuilt from two files.

    `forward` takes a batch of its task by name and returns an `Output`.
    """

    in_training: ClassVar[dict[str, Any]] = {}
    """arguments of a forward pass that needs the loss alone, besides the batch"""
    hf_class: ClassVar[str | type | None] = None
    """the class of `odeum.hf` that wraps this model, as "module:name" (none: transformers has no task like it)"""

    def __init__(self, settings: Model, architecture: Architecture) -> None:
        super().__init__()
        check_shape(settings)
        self.settings = settings
        self.architecture = architecture
        self.label_smoothing = 0.0
        """of the loss in training; evaluation is never smoothed"""
        self.draw_key: int | None = None
        """what its initial weights are drawn from, if `odeum.build` made it"""

    @property
    def particles(self) -> int:
        """How many move through the stack for one example of full length."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many particles an example is")

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        """A batch of the right shape and full length: what costs are counted on."""
        raise NotImplementedError(f"{type(self).__name__} has no example of its input")

    @staticmethod
    def counted(labels: Tensor) -> int:
        """How many labels the mean in the loss is over: all that are not ignored; of probabilities, the rows."""
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


def no_tokens(batch: int, length: int, device: str) -> Tensor:
    """Ids of the right shape that say nothing."""
    return torch.zeros(batch, length, dtype=torch.long, device=device)


def check_ids(ids: Tensor, name: str = "input_ids") -> None:
    if ids.dim() != 2 or ids.shape[1] < 1:
        raise OdeumError(f"{name} has shape {tuple(ids.shape)}, but should be [batch, length] with a token at least")


def check_labels(labels: Tensor, scored: Tensor, classes: int | None = None) -> None:
    """One label for each scored state (or a row of probabilities), each one of the classes.

    A label outside the classes would be counted as another one; looked at only where looking costs no waiting.
    """
    right = scored.shape if labels.is_floating_point() else scored.shape[:-1]
    if labels.shape != right:
        raise OdeumError(f"labels have shape {tuple(labels.shape)}, but what they label needs {tuple(right)}")
    classes = scored.shape[-1] if classes is None else classes
    if labels.device.type != "cpu" or labels.is_floating_point() or not labels.numel() or not plain_autograd():
        return
    low, high = (int(x) for x in torch.aminmax(labels.masked_fill(labels == IGNORE, 0)))
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise OdeumError(f"the label {wrong} is not one of the {classes} classes from 0 on (or {IGNORE}: ignore)")


def mean_of_kept(x: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over the positions of [batch, length, width] that a mask [batch, length] keeps."""
    if mask is None:
        return x.mean(dim=1)
    keep = mask.unsqueeze(-1).to(x.dtype)
    return (x * keep).sum(dim=1) / keep.sum(dim=1).clamp(min=1.0)


def key_mask(attention_mask: Tensor | None, batch: int, length: int) -> Tensor | None:
    """[batch, keys] with 1 = keep -> the mask of a Source, True where a query may look."""
    if attention_mask is None:
        return None
    if attention_mask.shape != (batch, length):
        raise OdeumError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but should be {(batch, length)}: batch × length"
        )
    return attention_mask.to(torch.bool)[:, None, None, :]
