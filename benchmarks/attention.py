"""Attention of a training step by plain products, and by torch's fused kernel: how many times faster the former is.

    script/bench attention            # a minute; writes benchmarks/results/attention.json

Where oneDNN multiplies. `causal` adds the mask within the product, `causal, by a mask` in a pass of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from turns import record, take_turns

from odeum.kernels import attention, matmul

HEADS, WIDTH, TOKENS, ROUNDS = 4, 64, 4096, 7
LENGTHS = (64, 128, 256, 362, 512, 724, 1024)


def steps(length: int, dtype: torch.dtype) -> dict[str, Callable[[], None]]:
    """Forward and backward passes over as many sequences as make 4096 tokens."""
    packed = torch.randn(TOKENS // length, length, 3, HEADS, WIDTH, dtype=dtype)
    q, k, v = (x.detach().requires_grad_() for x in packed.permute(2, 0, 3, 1, 4))
    fused = nn.functional.scaled_dot_product_attention
    computed: dict[str, Callable[[], Tensor]] = {
        "all": lambda: attention.reference(q, k, v, None, False),
        "all, fused": lambda: fused(q, k, v),
        "causal": lambda: attention.causal_attention(q, k, v),
        "causal, by a mask": lambda: attention.reference(q, k, v, None, True),
        "causal, fused": lambda: fused(q, k, v, is_causal=True),
    }
    weight = torch.randn_like(q)
    return {name: lambda compute=compute: compute().backward(weight) for name, compute in computed.items()}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    matmul.use_onednn()
    ratios: dict[str, dict[str, float]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        if dtype is torch.bfloat16 and not matmul.processor_has_bfloat16():
            continue
        for length in LENGTHS:
            seconds = {
                name: statistics.median(times) for name, times in take_turns(steps(length, dtype), ROUNDS).items()
            }
            ratios[f"{length} tokens, {str(dtype).removeprefix('torch.')}"] = row = {
                "fused / plain": seconds["all, fused"] / seconds["all"],
                "fused / plain, causal": seconds["causal, fused"] / seconds["causal"],
                "mask of its own / mask in the product": seconds["causal, by a mask"] / seconds["causal"],
            }
            print(length, dtype, {name: round(value, 2) for name, value in row.items()}, flush=True)
    record(
        "attention", {"ratios": ratios, "heads": HEADS, "width": WIDTH, "tokens": TOKENS, "rounds": ROUNDS, "seed": 0}
    )


if __name__ == "__main__":
    main()
