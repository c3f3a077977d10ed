"""A training step of a tiny vision transformer beside timm: 65 tokens (32/4, batch 64) and 197 (224/16, batch 8).

    script/bench vision            # two minutes; writes benchmarks/results/vision.json

Freed memory is kept, for all of them: a step maps up to 28,000 pages anew where it is not, one contestant's more than
another's, by the luck of who allocated what before.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from turns import (
    DEVICE,
    compiled,
    installed,
    keep_freed_memory,
    record,
    rows,
    show,
    step,
    take_turns,
    with_both_settings,
)

from odeum.models import build

SHAPES = {"65 tokens": (32, 4, 32), "197 tokens": (224, 16, 8)}
ROUNDS = 9
PEER = "timm deit_tiny"


def contestants(size: int, patch: int, batch: int) -> dict[str, Callable[..., None]]:
    """Training steps by name, each with a model of its own."""
    images = torch.randn(batch, 3, size, size, device=DEVICE)
    labels = torch.randint(0, 100, (batch,), device=DEVICE)
    found = {}
    for architecture in ("sequential", "parallel"):
        model = build(architecture, "deit_tiny", image_size=size, patch_size=patch, classes=100).train().to(DEVICE)
        found[architecture] = step(model, lambda m=model: m(images=images, labels=labels).loss)
    if installed("timm"):
        import timm

        theirs = timm.create_model("deit_tiny_patch16_224", img_size=size, patch_size=patch, num_classes=100)
        theirs = theirs.train().to(DEVICE)
        found[PEER] = step(theirs, lambda: nn.functional.cross_entropy(theirs(images), labels))
        if (fast := compiled(theirs)) is not None:
            found[f"{PEER}, compiled"] = step(theirs, lambda: nn.functional.cross_entropy(fast(images), labels))
    return found


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kept, tables = keep_freed_memory(), {}
    for name, shape in SHAPES.items():
        runs = contestants(*shape)
        reference = PEER if PEER in runs else "sequential"
        table = rows(take_turns(with_both_settings(runs), ROUNDS), reference)
        show(f"{name}: a training step, and the ratio to {reference}", table)
        tables[name] = {"reference": reference, "rows": table}
    record("vision", {"tables": tables, "shapes": SHAPES, "rounds": ROUNDS, "freed memory is kept": kept, "seed": 0})


if __name__ == "__main__":
    main()
