"""Replace `nn.TransformerEncoder` or `nn.TransformerDecoder` by one line; batch first."""

from __future__ import annotations

from typing import Any, Literal, Never

import torch
from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.draws import key_draws
from odeum.errors import OdeumError, choose
from odeum.fields.attention import merge_masks
from odeum.fields.base import Context, Source
from odeum.models.settings import Shape
from odeum.registry.names import Architecture
from odeum.registry.spelling import label, parse


class Encoder(nn.Module):
    """A stack of any architecture over [batch, length, width], with the masks of `nn.TransformerEncoder`.

    As there, one sequence may be given as [length, width], and sequences of different length as a nested tensor.
    Those masks say True where one may *not* look; inside Odeum it is the other way round. A floating mask (ALiBi, a
    learned relative bias, −inf to hide) is added to the scores in both.
    """

    cross = False

    def __init__(
        self,
        width: int = 192,
        heads: int = 3,
        depth: int = 12,
        architecture: str | Architecture = "sequential",
        *,
        hidden: int | None = None,
        activation: Literal["gelu", "relu", "swiglu"] = "gelu",
        norm_kind: Literal["layer", "rms"] = "layer",
        norm_eps: float = 1e-6,
        bias: bool = True,
        dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        **unknown: Never,
    ) -> None:
        """A stack of `depth` layers.

        Args:
            width: of the residual stream, d_model of `nn.Transformer`.
            heads: of the attention; they divide the width.
            depth: how many layers, or how long the time interval is.
            architecture: a name such as `"rk4"`, a spelling with options such as `"parallel:independent=3"`, or an
                architecture's dataclass such as `Layered(method="heun")`.
            hidden: width of the feed-forward; 4 × width if it is not given.
            activation: of the feed-forward.
            norm_kind: LayerNorm or RMSNorm.
            norm_eps: added to the variance in a norm.
            bias: biases in the projections.
            dropout: on the output of attention and feed-forward.
            stochastic_depth: probability of dropping a branch, growing linearly with depth up to this.
        """
        super().__init__()
        _refuse_unknown(type(self).__name__, unknown)
        self.shape = Shape(
            width, heads, depth, hidden, activation, norm_kind, norm_eps, bias, dropout, stochastic_depth
        )
        self.architecture = parse(architecture)
        with key_draws() as self.draw_key:
            self.stack = make_stack(self.architecture, self.shape, cross=self.cross)

    def extra_repr(self) -> str:
        """The architecture's spelling and its sizes."""
        shape = self.shape
        return f"{label(self.architecture)}, width={shape.width}, heads={shape.heads}, depth={shape.depth}"

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        extra: Any = None,
    ) -> Tensor:
        """`extra` is what fields of your own read from the context: tensors in mappings, tuples and lists."""
        if src.is_nested:
            _refuse_padding(src_key_padding_mask, "src_key_padding_mask", "src")
            padded, padding = _padded(src)
            return _nested(self(padded, mask, padding, is_causal, extra=extra), src)
        if src.dim() == 2:
            return self(src.unsqueeze(0), mask, _row(src_key_padding_mask), is_causal, extra=extra).squeeze(0)
        self._check(src)
        own = Source(mask=torch_mask(mask, src_key_padding_mask, src, src, self.shape.heads), causal=is_causal)
        return self.stack(src, Context(own=own, extra=extra))

    def _check(self, x: Tensor) -> None:
        if x.dim() != 3 or x.shape[-1] != self.shape.width:
            right = f"[batch, length, {self.shape.width}] or [length, {self.shape.width}]"
            raise OdeumError(f"the input has shape {tuple(x.shape)}, but must be {right}")


class Decoder(Encoder):
    """A decoder: like `Encoder`, with cross-attention to a memory and the masks of `nn.TransformerDecoder`."""

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
        *,
        extra: Any = None,
    ) -> Tensor:
        """`extra` is what fields of your own read from the context: tensors in mappings, tuples and lists."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal)
        if memory.is_nested:
            _refuse_padding(memory_key_padding_mask, "memory_key_padding_mask", "memory")
            memory, padding = _padded(memory)
            return self(tgt, memory, *masks[:3], padding, *masks[4:], extra=extra)
        if tgt.is_nested:
            _refuse_padding(tgt_key_padding_mask, "tgt_key_padding_mask", "tgt")
            padded, padding = _padded(tgt)
            return _nested(self(padded, memory, *masks[:2], padding, *masks[3:], extra=extra), tgt)
        if tgt.dim() == memory.dim() == 2:
            rows = (_row(tgt_key_padding_mask), _row(memory_key_padding_mask))
            one = self(tgt.unsqueeze(0), memory.unsqueeze(0), *masks[:2], *rows, *masks[4:], extra=extra)
            return one.squeeze(0)
        self._check(tgt)
        if memory.dim() != 3 or memory.shape[0] != tgt.shape[0] or memory.shape[2] != tgt.shape[2]:
            right = f"[{tgt.shape[0]}, length, {tgt.shape[2]}]"
            raise OdeumError(f"the memory has shape {tuple(memory.shape)}, but must be {right} beside this input")
        heads = self.shape.heads
        own = Source(mask=torch_mask(tgt_mask, tgt_key_padding_mask, tgt, tgt, heads), causal=tgt_is_causal)
        look = torch_mask(memory_mask, memory_key_padding_mask, tgt, memory, heads)
        other = Source(mask=look, causal=memory_is_causal, memory=memory)
        return self.stack(tgt, Context(own=own, other=other, extra=extra))


def _padded(x: Tensor) -> tuple[Tensor, Tensor]:
    """The sequences of a nested tensor, padded to one length, and True where there is padding."""
    rows = x.unbind()
    lengths = torch.tensor([row.shape[0] for row in rows])
    padded = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    return padded, (torch.arange(padded.shape[1]) >= lengths.unsqueeze(1)).to(x.device)


def _nested(out: Tensor, like: Tensor) -> Tensor:
    rows = [one[: row.shape[0]] for one, row in zip(out, like.unbind(), strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=like.layout)


def _row(padding: Tensor | None) -> Tensor | None:
    return padding.unsqueeze(0) if padding is not None and padding.dim() == 1 else padding


def _refuse_padding(padding: Tensor | None, name: str, of: str) -> None:
    if padding is not None:
        raise OdeumError(f"{name} beside a nested {of}, whose lengths are its own; leave {name} out")


TORCH_NAMES = {
    "d_model": "width",
    "nhead": "heads",
    "num_layers": "depth",
    "num_encoder_layers": "depth",
    "num_decoder_layers": "depth",
    "dim_feedforward": "hidden",
    "layer_norm_eps": "norm_eps",
    "norm_first": 'architecture ("sequential" or "post-norm")',
}
"""our names of the settings of nn.Transformer"""


def _refuse_unknown(who: str, unknown: dict[str, Any]) -> None:
    known = [*Shape.__dataclass_fields__, "architecture"]
    for name in unknown:
        if name in TORCH_NAMES:
            raise OdeumError(f"{who} has no {name}; nn.Transformer's {name} is {TORCH_NAMES[name]} here")
        if name == "batch_first":
            raise OdeumError(f"{who} has no batch_first; its input is always [batch, length, width]")
        choose(name, known, f"setting of {who}")


def torch_mask(mask: Tensor | None, padding: Tensor | None, queries: Tensor, keys: Tensor, heads: int) -> Tensor | None:
    """The masks of `nn.MultiheadAttention` (True = do not attend, floating = added) as one mask of a Source.

    Only shapes and kinds are looked at, never the numbers: a compiled or exported model does the same. Dimensions are
    counted before sizes are compared, which in an exported graph may be symbols.
    """
    batch, n, m = keys.shape[0], queries.shape[1], keys.shape[1]
    look: Tensor | None = None
    if mask is not None:
        if mask.dim() == 3 and mask.shape == (batch * heads, n, m):
            mask = mask.view(batch, heads, n, m)
        elif mask.dim() != 2 or mask.shape != (n, m):
            raise OdeumError(
                f"the attention mask has shape {tuple(mask.shape)}, but must be {(n, m)} or {(batch * heads, n, m)}"
            )
        look = _look(mask, "attention mask")
    if padding is not None:
        if padding.shape != (batch, m):
            raise OdeumError(
                f"the key padding mask has shape {tuple(padding.shape)}, but must be {(batch, m)}: batch × length"
            )
        look = merge_masks(look, _look(padding, "key padding mask")[:, None, None, :])
    return look


def _look(mask: Tensor, what: str) -> Tensor:
    if mask.dtype == torch.bool:
        return ~mask
    if not mask.is_floating_point():
        raise OdeumError(
            f"the {what} has dtype {mask.dtype}, but must be bool (True = do not attend) or float (added to the scores)"
        )
    return mask
