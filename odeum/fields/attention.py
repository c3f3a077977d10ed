"""Attention: the interaction term G of the field."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from odeum.draws import drawing
from odeum.errors import OdeumError
from odeum.fields.base import Context, Field, Rotary, Source
from odeum.fields.noise import Dropout
from odeum.hooks import runs_its_class_alone
from odeum.kernels.attention import attention, is_masked


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, length, width] -> [batch, heads, length, width / heads]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[batch, heads, length, head width] -> [batch, length, width]."""
    return x.transpose(1, 2).flatten(-2)


def rotate(x: Tensor, rotary: Rotary | None) -> Tensor:
    """Applies rotary positions to [batch, heads, length, head width]."""
    if rotary is None:
        return x
    half = (rotary.width or x.shape[-1]) // 2
    cos, sin = turning(rotary, half, x)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)


def turning(rotary: Rotary, half: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns cosines and sines of the rotary angles for `half` pairs of features; cached for the pass."""
    known = None if rotary.tables is None else rotary.tables.get((half, x.dtype))
    if known is not None:
        return known
    exact = torch.promote_types(x.dtype, torch.float32)
    steps = torch.arange(half, device=x.device, dtype=exact)
    if rotary.width is None:
        rates = torch.exp(steps * (-math.log(rotary.base) / half))
    else:  # pretrained: rounded as by the library that trained it, since thousands of positions multiply the rounding
        rates = 1.0 / rotary.base ** (2.0 * steps / rotary.width)
        rates = rates if rotary.scaling is None else scaled_rates(rates, rotary.scaling)
    angles = rotary.positions.to(exact).unsqueeze(-1) * rates
    table = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if rotary.tables is not None:
        rotary.tables[half, x.dtype] = table
    return table


def scaled_rates(rates: Tensor, scaling: Any) -> Tensor:
    """Angles per position, slower by `models.pretrained.RotaryScaling`."""
    slow = rates / scaling.factor
    if not scaling.original:
        return slow
    turns = scaling.original * rates / (2 * math.pi)  # within the length of the first training
    share = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)
    return (1 - share) * slow + share * rates


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raises `OdeumError` for a mask of the wrong dtype or not broadcastable to [batch, heads, queries, keys]."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise OdeumError(
            f"an attention mask is boolean (True where a query may attend) or floating (added to the scores), "
            f"not {mask.dtype}"
        )
    pairs = list(zip(reversed(mask.shape), reversed(shape), strict=False))
    fits = mask.shape[-1] == shape[-1] and all(have in (1, want) for have, want in pairs)
    if not 2 <= mask.dim() <= len(shape) or not fits:
        raise OdeumError(
            f"an attention mask of shape {list(mask.shape)} does not broadcast to "
            f"[batch, heads, queries, keys] = {list(shape)}"
        )


def visible(source: Source, queries: int, keys: int, device: torch.device) -> tuple[Tensor | None, bool]:
    """The mask and the causal flag for scaled_dot_product_attention.

    The causal kernel aligns the first query with the first key; with a cache the last ones are aligned, and one
    new query sees everything. A causal kernel takes no mask besides, so the two are merged when both are there.
    """
    mask = source.mask
    if not source.causal or queries == 1:
        return mask, False
    if mask is None and queries == keys:
        return None, True
    order = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return merge_masks(order, mask), False


def merge_masks(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Merges two masks: hidden if either hides, floating values are added (True = visible)."""
    if one is None or other is None:
        return other if one is None else one
    if one.dtype == torch.bool and other.dtype == torch.bool:
        return one & other
    if one.dtype == torch.bool:
        one, other = other, one
    return one.masked_fill(~other, -torch.inf) if other.dtype == torch.bool else one + other


def attend(q: Tensor, k: Tensor, v: Tensor, source: Source) -> Tensor:
    """Scaled dot-product attention over [batch, heads, length, head width]; a query that sees nothing gets zeros."""
    if source.mask is not None:
        check_mask(source.mask, (*q.shape[:-1], k.shape[-2]))
    mask, causal = visible(source, q.shape[-2], k.shape[-2], q.device)
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    out = attention(q, k, v, mask, causal)
    if mask is None:
        return out
    return out.masked_fill(is_masked(mask).all(dim=-1, keepdim=True), 0.0)


def attend_over_depth(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, source: Source) -> Tensor:
    """One softmax over the positions and, for each query, the keys of earlier layers at its own position.

    `keys` and `values` are [batch, heads, queries, layers, head width].
    """
    if source.mask is not None:
        check_mask(source.mask, (*q.shape[:-1], k.shape[-2]))
    mask, causal = visible(source, q.shape[-2], k.shape[-2], q.device)
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    q = q / math.sqrt(q.shape[-1])
    scores = q @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.to(q.dtype)
    over_depth = (keys @ q.unsqueeze(-1)).squeeze(-1)
    weights = torch.cat((scores, over_depth), -1).softmax(-1)
    here, depth = weights.split((k.shape[-2], keys.shape[-2]), dim=-1)
    return here @ v + (depth.unsqueeze(-2) @ values).squeeze(-2)


def check_heads(width: int, heads: int, what: str = "heads", whole: str = "the width") -> None:
    if heads < 1 or width % heads:
        raise OdeumError(f"{what} ({heads}) must divide {whole} ({width})")


class SelfAttention(Field):
    """Multi-head attention of the state with itself, by one fused projection and the fused kernel."""

    symbol = "G"
    role = "attention"

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        key_value_heads: int | None = None,
        head_width: int | None = None,
        head_norm: Callable[[int], nn.Module] | None = None,
        joint_norm: bool = False,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_heads(width, heads)
        size, groups = head_width or width // heads, key_value_heads or heads
        check_heads(heads, groups, "key-value heads", "heads")
        self.heads = heads
        self.shared = heads // groups  # heads of queries that read one head of keys and values
        self.sizes = (heads * size, groups * size, groups * size)
        self.counts = (heads, groups, groups)
        self.qkv = nn.Linear(width, sum(self.sizes), bias=bias)
        self.out = nn.Linear(heads * size, width, bias=bias)
        self.dropout = Dropout(dropout)
        self.joint_norm = joint_norm  # whether one norm acts on all heads together
        self.q_norm = None if head_norm is None else head_norm(heads * size if joint_norm else size)
        self.k_norm = None if head_norm is None else head_norm(groups * size if joint_norm else size)
        with drawing("qkv"):
            reset(self.qkv, parts=3 if groups == heads else 1)
        with drawing("out"):
            reset(self.out)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        source = context.own
        q, k, v = self.queries_keys_values(x, source.rotary)
        past = source.past
        if past is not None:
            past.note(k, v)
            v = v if past.added is None else v + past.added
        if source.cache is not None:
            k, v = source.cache.extend(k, v)
        earlier = () if past is None else (torch.stack(tensors, -2) for tensors in (past.keys, past.values) if tensors)
        k, v, *depth = (x.repeat_interleave(self.shared, dim=1) if self.shared > 1 else x for x in (k, v, *earlier))
        seen = attend_over_depth(q, k, v, *depth, source) if depth else attend(q, k, v, source)
        return self.dropout(self.out(merge_heads(seen)), context.noise)

    def queries_keys_values(self, x: Tensor, rotary: Rotary | None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns q, k and v by heads; x of [batch, length, 3, width] has an input for each of them."""
        if x.dim() < 4:
            parts = self.qkv(x).split(self.sizes, dim=-1)
        elif type(self.qkv) is nn.Linear and runs_its_class_alone(self.qkv):
            bias = (None,) * 3 if self.qkv.bias is None else self.qkv.bias.split(self.sizes)
            maps = zip(x.unbind(-2), self.qkv.weight.split(self.sizes), bias, strict=True)
            parts = [nn.functional.linear(*arguments) for arguments in maps]
        else:  # an adapter, a quantized map, a hook, a replaced forward: all of it for each input
            projected = self.qkv(x).split(self.sizes, dim=-1)
            parts = [part.select(-2, place) for place, part in enumerate(projected)]
        if self.joint_norm and self.q_norm is not None and self.k_norm is not None:
            parts = [self.q_norm(parts[0]), self.k_norm(parts[1]), parts[2]]
        q, k, v = (split_heads(part, count) for part, count in zip(parts, self.counts, strict=True))
        if not self.joint_norm and self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return rotate(q, rotary), rotate(k, rotary), v

    def formula(self, x: str) -> str:
        return f"{self.symbol}({x})"

    def extra_repr(self) -> str:
        return f"width={self.out.out_features}, heads={self.heads}"


class CrossAttention(Field):
    """Multi-head attention of the state to a memory: the encoder's output."""

    symbol = "C"
    role = "cross"

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(width, 2 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.dropout = Dropout(dropout)
        with drawing("q"):
            reset(self.q)
        with drawing("kv"):
            reset(self.kv, parts=2)
        with drawing("out"):
            reset(self.out)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Returns k and v by heads."""
        k, v = self.kv(memory).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        source = context.other
        memory = source.memory
        if memory is None:
            raise OdeumError("cross-attention needs a memory: give Context(other=Source(memory=...))")
        if source.cache is None:
            k, v = self.keys_values(memory)
        else:
            k, v = source.cache.constant(lambda: self.keys_values(memory))
        q = split_heads(self.q(x), self.heads)
        return self.dropout(self.out(merge_heads(attend(q, k, v, source))), context.noise)

    def formula(self, x: str) -> str:
        return f"{self.symbol}({x}, M)"

    def extra_repr(self) -> str:
        return f"width={self.out.out_features}, heads={self.heads}"


def reset(*linears: nn.Linear, parts: int = 1) -> None:
    """Glorot weights (each of `parts` stacked matrices by its own fan) and zero biases."""
    for layer in linears:
        for weight in layer.weight.chunk(parts):
            nn.init.xavier_uniform_(weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
