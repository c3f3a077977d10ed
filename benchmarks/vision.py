"""A training step of a tiny vision transformer beside timm: 65 tokens (32/4, batch 64) and 197 (224/16, batch 8).

    script/bench vision            # two minutes; writes benchmarks/results/vision.json

Freed memory is kept, for all of them: a step maps up to 28,000 pages anew where it is not, one contestant's more than
another's, by the luck of who allocated what before.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from turns import compiled, installed, keep_freed_memory, record, rows, show, take_turns, with_both_settings

from odeum.models import build

SHAPES = {"65 tokens": (32, 4, 32), "197 tokens": (224, 16, 8)}
ROUNDS = 9


def step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        loss().backward()
        model.zero_grad(set_to_none=True)

    return run


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kept, tables = keep_freed_memory(), {}
    for name, (size, patch, batch) in SHAPES.items():
        pictures, labels = torch.randn(batch, 3, size, size), torch.randint(0, 100, (batch,))
        contestants = {}
        for architecture in ("sequential", "parallel"):
            model = build(architecture, "deit_tiny", image_size=size, patch_size=patch, classes=100).train()
            contestants[architecture] = step(model, lambda m=model, x=pictures, y=labels: m(images=x, labels=y).loss)
        reference = "sequential"
        if installed("timm"):
            import timm

            reference = "timm deit_tiny"
            theirs = timm.create_model(
                "deit_tiny_patch16_224", img_size=size, patch_size=patch, num_classes=100
            ).train()
            contestants[reference] = step(
                theirs, lambda m=theirs, x=pictures, y=labels: nn.functional.cross_entropy(m(x), y)
            )
            if (fast := compiled(theirs)) is not None:
                contestants["timm deit_tiny, compiled"] = step(
                    theirs, lambda m=fast, x=pictures, y=labels: nn.functional.cross_entropy(m(x), y)
                )
        table = rows(take_turns(with_both_settings(contestants), ROUNDS), reference)
        show(f"{name}: a training step, and the ratio to {reference}", table)
        tables[name] = {"reference": reference, "rows": table}
    record("vision", {"tables": tables, "shapes": SHAPES, "rounds": ROUNDS, "freed memory is kept": kept, "seed": 0})


if __name__ == "__main__":
    main()
