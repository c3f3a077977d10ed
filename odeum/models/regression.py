"""One number for a text or an image, around any architecture."""

from __future__ import annotations

from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.models.base import OdeumModel, exact
from odeum.models.classification import TextModel
from odeum.models.vision import ImageModel


class NumberModel(OdeumModel):
    """One output [batch, 1] and the squared error to labels [batch], both in units of the targets' spread."""

    @property
    def outputs(self) -> int:
        return 1

    def criterion(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean squared error."""
        if labels.shape != logits.shape[:-1]:
            raise OdeumError(f"labels have shape {tuple(labels.shape)}, but {tuple(logits.shape[:-1])} is needed")
        if self.label_smoothing:
            raise OdeumError("label smoothing is for classes, but these labels are numbers; set it to 0")
        return nn.functional.mse_loss(exact(logits)[..., 0], exact(labels))


class RegressionModel(NumberModel, TextModel):
    """Tokens in, one number out."""


class ImageRegressionModel(NumberModel, ImageModel):
    """An image in, one number out."""
