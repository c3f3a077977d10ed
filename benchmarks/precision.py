"""Training steps in fp32 and under bfloat16 autocast, ours and peers: language models, vision transformers, encoders.

    script/bench precision            # three minutes; writes benchmarks/results/precision.json

Needs a processor with bfloat16 instructions (AVX512-BF16 or AMX), or a GPU. A row's ratio is against the peer
in the same precision; `bf16 over fp32` is each contestant against itself.
"""

from __future__ import annotations

from collections.abc import Callable

import language
import torch
import vision
from torch import nn
from turns import BF16, DEVICE, keep_freed_memory, over, record, rows, show, step, take_turns, with_both_precisions

from odeum.architectures import stack
from odeum.kernels.matmul import processor_has_bfloat16
from odeum.models.settings import Shape

ROUNDS, WORDS = 3, 10_000
ENCODER = "nn.TransformerEncoder"


def encoders(length: int, batch: int) -> dict[str, Callable[..., None]]:
    """Steps of stacks with relu: ours, and torch's own layer."""
    width, heads, depth = 256, 4, 6
    x = torch.randn(batch, length, width, device=DEVICE)
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    peer = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
    models = {ENCODER: peer}
    models |= {name: stack(name, Shape(width, heads, depth, activation="relu")) for name in ("sequential", "parallel")}
    return {
        name: step(model.train().to(DEVICE), lambda m=model: m(x).square().mean()) for name, model in models.items()
    }


def main() -> None:
    if DEVICE.type == "cpu" and not processor_has_bfloat16():
        raise SystemExit("this processor has no bfloat16 instructions: nothing to measure")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tables, gains = {}, {}

    def measure(title: str, contestants: dict[str, Callable[..., None]], reference: str) -> None:
        runs = {name: run for name, run in contestants.items() if not name.endswith("compiled")}
        seconds = take_turns(with_both_precisions(runs), ROUNDS)
        table = rows(seconds, reference)
        show(f"{title}: a training step, and the ratio to {reference}", table)
        tables[title] = {"reference": reference, "rows": table}
        gains[title] = {name: over(seconds[name], seconds[name + BF16])["ratio"] for name in runs}
        print("  bf16 over fp32:", {name: round(gain, 2) for name, gain in gains[title].items()})

    names = "parallel", "sequential", "gpt-neox"
    measure("language, 128 wide", language.contestants(WORDS, names), "gpt-neox")
    measure("language, 512 wide", language.contestants(WORDS, names, width=512, batch=2), "gpt-neox")
    keep_freed_memory()  # as in `vision`
    for title, shape in vision.SHAPES.items():
        measure(f"images, {title}", vision.contestants(*shape), vision.PEER)
    measure("encoder, 128 tokens", encoders(128, 16), ENCODER)
    measure("encoder, 512 tokens", encoders(512, 4), ENCODER)
    record("precision", {"tables": tables, "ratios": gains, "rounds": ROUNDS, "words": WORDS, "seed": 0})


if __name__ == "__main__":
    main()
