"""Softmax attention on a CPU: by plain products where oneDNN multiplies and sequences are short, else torch's kernel.

torch's fused kernel makes one small product per tile and head. oneDNN takes about 15 µs for the call of each, so for
short sequences one batched product over all heads is faster (`script/bench attention`: 2.9 times at 64 tokens in
float32, equal at 256). The fused kernel's memory does not grow with queries × keys, so it takes long sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from odeum.kernels.matmul import by_onednn, has_bfloat16_unit

MAX_BATCHED_SCORES = {torch.float32: 1 << 16, torch.bfloat16: 1 << 19}
"""queries × keys up to which batched products are faster than the fused kernel"""


def is_masked(mask: Tensor) -> Tensor:
    """Return True where a query may not look, of a boolean or an additive mask."""
    return ~mask if mask.dtype == torch.bool else mask == -torch.inf


def reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Compute softmax(q kᵀ / √d + mask) v over [batch, heads, length, d] by plain operations."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None and mask.is_floating_point():
        scores = scores + mask
        scores = scores.masked_fill(scores.amax(dim=-1, keepdim=True) == -torch.inf, 0.0)
    elif mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(q.dtype).min)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(dim=-1) @ v


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute the causal `reference` with the mask as the summand of the product: no pass of its own, nor backward."""
    *batch, length, width = q.shape
    q, k, v = (x.flatten(0, -3) for x in (q, k, v))
    mask = q.new_full((length, length), -torch.inf).triu(1).expand(q.shape[0], length, length)
    scores = torch.baddbmm(mask, q, k.transpose(-1, -2), alpha=width**-0.5)
    return (scores.softmax(dim=-1) @ v).unflatten(0, batch)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Compute `reference` by the faster way. The output of a query whose mask hides all keys is arbitrary.

    The mask broadcasts to the scores: True where a query may attend, or added. `causal` needs as many queries as keys
    and no mask.
    """
    onednn = not torch.compiler.is_compiling() and (by_onednn(q, k, v) or has_bfloat16_unit(q, k, v))
    if onednn and q.shape[-2] * k.shape[-2] <= MAX_BATCHED_SCORES[q.dtype]:
        plain = mask is None and q.dim() > 2 and q.shape == k.shape and q.shape[:-1] == v.shape[:-1]
        return causal_attention(q, k, v) if causal and plain else reference(q, k, v, mask, causal)
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
