"""Vision transformers (DeiT) around any architecture."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.architectures.parts import make_norm
from odeum.draws import drawing, truncated_normal
from odeum.errors import OdeumError, choose
from odeum.fields.attention import reset
from odeum.fields.base import Context
from odeum.models.base import OdeumModel, Output
from odeum.models.pretrained import details
from odeum.models.settings import ImageInput, Vision
from odeum.registry.names import Architecture


class ImageModel(OdeumModel):
    """Patches are the positions; a linear head reads the class token or the mean over patches."""

    hf_class: ClassVar[str | type | None] = "odeum.hf.classifiers:OdeumForImageClassification"
    settings: ImageInput

    def __init__(self, settings: ImageInput, architecture: Architecture) -> None:
        super().__init__(settings, architecture)
        if settings.image_size % settings.patch_size:
            raise OdeumError(f"patch_size ({settings.patch_size}) must divide image_size ({settings.image_size})")
        patches = (settings.image_size // settings.patch_size) ** 2
        extra = settings.pretrained
        self.tokens = int(settings.pooling == "token") if extra is None else extra.tokens
        with drawing("patch"):
            self.patch = make_stem(settings)
        self.token = nn.Parameter(torch.zeros(1, self.tokens, settings.width)) if self.tokens else None
        self.position = nn.Parameter(torch.zeros(1, patches + self.tokens, settings.width))
        self.embedding_norm = make_norm(settings) if details(settings).embedding.norm else None
        self.stack: Any = make_stack(architecture, settings)
        self.norm: nn.Module | None = None
        if extra is not None and extra.pooled_norm:
            self.norm, self.stack.norm = self.stack.norm, None
        with drawing("position"):
            truncated_normal(self.position, std=0.02)
        with drawing("head"):
            self.head = nn.Linear(settings.width, self.outputs)
            reset(self.head)

    @property
    def outputs(self) -> int:
        """Number of outputs of the head."""
        raise NotImplementedError(f"{type(self).__name__} does not define `outputs`")

    @property
    def particles(self) -> int:
        return self.position.shape[1]

    def example(self, device: str, batch: int = 1) -> dict[str, Tensor]:
        s = self.settings
        return {"images": torch.randn(batch, s.channels, s.image_size, s.image_size, device=device)}

    def embed(self, images: Tensor) -> Tensor:
        """[batch, channels, height, width] -> [batch, patches (+ 1), width]."""
        s = self.settings
        if images.dim() != 4 or images.shape[1:] != (s.channels, s.image_size, s.image_size):
            raise OdeumError(
                f"images of shape {tuple(images.shape)} do not fit: the model takes "
                f"[batch, {s.channels}, {s.image_size}, {s.image_size}]"
            )
        x = self.patch(images).flatten(2)
        if self.training and s.dropout:  # masks are drawn in the order of memory, and old runs go on with theirs
            x = x.contiguous()
        x = x.transpose(1, 2)
        if self.token is not None:
            x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1)
        x = x + self.position
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        return nn.functional.dropout(x, s.dropout, self.training)

    def pool(self, x: Tensor) -> Tensor:
        """The pooled last states that the head reads: [batch, width]."""
        pooled = x[:, 0] if self.settings.pooling == "token" else x[:, self.tokens :].mean(dim=1)
        return pooled if self.norm is None else self.norm(pooled)

    def apply_head(self, x: Tensor, context: Context | None = None) -> Tensor:
        """The logits of the last states."""
        return self.head(self.pool(x))

    def pooled(self, images: Tensor) -> Tensor:
        """The pooled state that the head reads: [batch, width]."""
        return self.pool(self.stack(self.embed(images)))

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Output:
        logits = self.apply_head(self.stack(self.embed(images)))
        return Output(logits, None if labels is None else self.criterion(logits, labels))


class Patches(nn.Conv2d):
    """A convolution whose stride is its size: a linear map of each patch, and computed as one, which is faster."""

    def __init__(self, channels: int, width: int, size: int) -> None:
        super().__init__(channels, width, size, size)
        nn.init.xavier_uniform_(self.weight.view(width, -1))
        nn.init.zeros_(self.bias)  # ty: ignore[invalid-argument-type]

    def forward(self, input: Tensor) -> Tensor:
        high, wide = self.kernel_size
        patches = input.unflatten(3, (-1, wide)).unflatten(2, (-1, high)).permute(0, 2, 4, 1, 3, 5).flatten(3)
        return nn.functional.linear(patches, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


class VisionModel(ImageModel):
    """An image in, one class out."""

    settings: Vision  # ty: ignore[incompatible-mutable-override]

    @property
    def outputs(self) -> int:
        return self.settings.classes


def make_stem(settings: ImageInput) -> nn.Module:
    """[batch, channels, height, width] -> [batch, width, rows of patches, columns of patches]."""
    choose(settings.stem, ("patch", "convolution"), "stem")
    if settings.stem == "patch":
        return Patches(settings.channels, settings.width, settings.patch_size)
    halvings = settings.patch_size.bit_length() - 1
    if settings.patch_size != 2**halvings or not halvings:
        raise OdeumError(
            f"stem=convolution halves the image, so patch_size must be 2, 4, 8 …, not {settings.patch_size}"
        )
    if settings.width < 2 ** (halvings - 1):
        raise OdeumError(
            f"stem=convolution doubles its channels up to the width, so for patch_size {settings.patch_size} the width "
            f"must be at least {2 ** (halvings - 1)}, not {settings.width}"
        )
    layers: list[nn.Module] = []
    channels = settings.channels
    for i in reversed(range(halvings)):
        layers += [nn.Conv2d(channels, settings.width // 2**i, 3, stride=2, padding=1), nn.GELU()]
        channels = settings.width // 2**i
    return nn.Sequential(*layers, nn.Conv2d(channels, settings.width, 1))
