"""A training step of a language model beside GPT-NeoX of the same size: 8 × 512 tokens, 10,000 and 32,000 words.

script/bench language            # two minutes; writes benchmarks/results/language.json
"""

from __future__ import annotations

from collections.abc import Callable

import decode
import torch
from torch import Tensor, nn
from turns import installed, record, rows, show, take_turns

from odeum.models import build

BATCH, ROUNDS = 8, 4


def step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        loss().backward()
        model.zero_grad(set_to_none=True)

    return run


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tables = {}
    for words in (10_000, 32_000):
        decode.SIZE["vocabulary"] = words
        ids = torch.randint(0, words, (BATCH, decode.SIZE["length"] + 1))
        inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        contestants = {}
        for name in ("parallel", "sequential", "transevolve"):
            model = build(name, "language_small", **decode.SIZE).train()
            contestants[name] = step(
                model, lambda m=model, x=inputs, y=labels: m(input_ids=x, labels=y, **m.in_training).loss
            )
        reference = "parallel"
        if installed("transformers"):
            reference, theirs = "gpt-neox", decode.neox().train()
            contestants[reference] = step(theirs, lambda m=theirs, x=inputs: m(input_ids=x, labels=x).loss)
        table = rows(take_turns(contestants, ROUNDS), reference)
        show(f"{words} words: a training step, and the ratio to {reference}", table)
        tables[f"{words} words"] = {"reference": reference, "rows": table}
    record("language", {"tables": tables, "size": {**decode.SIZE}, "batch": BATCH, "rounds": ROUNDS, "seed": 0})


if __name__ == "__main__":
    main()
