"""When TransEvolve's anchor pays: a training step with the shared exponential beside the fused form and `parallel`.

    script/bench forms            # three minutes; writes benchmarks/results/forms.json

One block of so many layers; a step is 4096 tokens in sequences of `length`. The ratio is that of the other's time to
the shared form's: above one, to share is faster. What `attention=auto` takes is read off this table.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from turns import over, record, take_turns

from odeum.architectures import stack
from odeum.kernels import matmul
from odeum.models.settings import Shape

WIDTH, HEADS, TOKENS, ROUNDS = 128, 2, 4096, 3
LAYERS, LENGTHS = (1, 2, 3, 6), (128, 512, 2048, 4096)


def step(architecture: str, layers: int, length: int) -> Callable[[], None]:
    model = stack(architecture, Shape(WIDTH, HEADS, layers, activation="relu"))
    x = torch.randn(TOKENS // length, length, WIDTH)

    def run() -> None:
        model(x).square().mean().backward()
        model.zero_grad(set_to_none=True)

    return run


def main() -> None:
    torch.set_num_threads(1)
    matmul.use_onednn()  # as in a run
    torch.manual_seed(0)
    forms = {form: f"transevolve:attention={form}" for form in ("shared", "fused")} | {"parallel": "parallel"}
    ratios: dict[str, dict[str, float]] = {}
    for length in LENGTHS:
        for layers in LAYERS:
            seconds = take_turns({name: step(words, layers, length) for name, words in forms.items()}, ROUNDS)
            row = {
                f"{name} / shared": over(seconds[name], seconds["shared"])["ratio"] for name in ("fused", "parallel")
            }
            ratios[f"{length} tokens, {layers} layers"] = row
            print(f"{length} tokens, {layers} layers", {name: round(ratio, 2) for name, ratio in row.items()})
    record("forms", {"ratios": ratios, "width": WIDTH, "heads": HEADS, "tokens": TOKENS, "rounds": ROUNDS, "seed": 0})


if __name__ == "__main__":
    main()
