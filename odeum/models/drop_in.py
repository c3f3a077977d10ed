"""Replace `nn.TransformerEncoder` or `nn.TransformerDecoder` by one line; batch first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields.base import Context, Source
from odeum.settings.architecture import Architecture
from odeum.settings.model import Shape


class Encoder(nn.Module):
    """A stack of any architecture over [batch, length, width], with the masks of `nn.TransformerEncoder`.

    Those masks say True (or −inf) where one may *not* look; inside Odeum it is the other way round.
    """

    cross = False

    def __init__(
        self, width: int, heads: int, depth: int, architecture: str | Architecture = "sequential", **shape: Any
    ) -> None:
        super().__init__()
        try:
            self.shape = Shape(width=width, heads=heads, depth=depth, **shape)
        except TypeError as error:
            raise OdeumError(f"{error}; Shape takes {', '.join(Shape.__dataclass_fields__)}") from None
        self.stack = stack(architecture, self.shape, cross=self.cross)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        self._check(src)
        own = Source(mask=torch_mask(mask, src_key_padding_mask, src, src, self.shape.heads), causal=is_causal)
        return self.stack(src, Context(own=own))

    def _check(self, x: Tensor) -> None:
        if x.dim() != 3 or x.shape[-1] != self.shape.width:
            raise OdeumError(f"the input has shape {tuple(x.shape)}, but should be [batch, length, {self.shape.width}]")


class Decoder(Encoder):
    """The same with attention to a memory, and the masks of `nn.TransformerDecoder`."""

    cross = True

    def forward(  # ty: ignore[incompatible-method-override]
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        self._check(tgt)
        if memory.dim() != 3 or memory.shape[0] != tgt.shape[0] or memory.shape[2] != tgt.shape[2]:
            right = f"[{tgt.shape[0]}, length, {tgt.shape[2]}]"
            raise OdeumError(f"the memory has shape {tuple(memory.shape)}, but should be {right} beside this input")
        heads = self.shape.heads
        own = Source(mask=torch_mask(tgt_mask, tgt_key_padding_mask, tgt, tgt, heads), causal=tgt_is_causal)
        look = torch_mask(memory_mask, memory_key_padding_mask, tgt, memory, heads)
        other = Source(mask=look, causal=memory_is_causal, memory=memory)
        return self.stack(tgt, Context(own=own, other=other))


def torch_mask(mask: Tensor | None, padding: Tensor | None, queries: Tensor, keys: Tensor, heads: int) -> Tensor | None:
    """The masks of `nn.MultiheadAttention` (True or −inf = do not look) as one mask with True = look."""
    batch, n, m = keys.shape[0], queries.shape[1], keys.shape[1]
    look: Tensor | None = None
    if mask is not None:
        if mask.shape == (batch * heads, n, m):
            mask = mask.view(batch, heads, n, m)
        elif mask.shape != (n, m):
            raise OdeumError(
                f"the attention mask has shape {tuple(mask.shape)}, but should be {(n, m)} or {(batch * heads, n, m)}"
            )
        look = _look(mask, "attention mask")
    if padding is not None:
        if padding.shape != (batch, m):
            raise OdeumError(
                f"the key padding mask has shape {tuple(padding.shape)}, but should be {(batch, m)}: batch × length"
            )
        kept = _look(padding, "key padding mask")[:, None, None, :]
        look = kept if look is None else look & kept
    return look


def _look(mask: Tensor, what: str) -> Tensor:
    if mask.dtype == torch.bool:
        return ~mask
    if not mask.is_floating_point():
        raise OdeumError(
            f"the {what} has dtype {mask.dtype}, but should be bool (True = do not look) or float (−inf = do not look)"
        )
    look = mask > -1e4
    if not torch.compiler.is_compiling() and not bool(((mask == 0) | ~look).all()):
        raise OdeumError(f"the {what} holds other numbers than 0 or −inf, but it can only hide keys, not weigh them")
    return look
