"""A training loop as timm's users write it, with a layer of Odeum: `python examples/timm_loop.py [NAME] [STEPS]`.

Needs the extra `timm`. Learns to tell bright images from dark ones, so that it needs no data.
"""

from __future__ import annotations

import sys

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

import odeum.interop.timm  # noqa: F401  (registers the names)


def main(name: str = "odeum_deit_tiny_parallel", steps: int = 20, **changes: object) -> list[float]:
    """Train and return the losses."""
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=2, img_size=32, patch_size=8, drop_path_rate=0.05, **changes)
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.8)
    scheduler = CosineLRScheduler(optimizer, t_initial=steps, warmup_t=2)
    losses = []
    for step in range(steps):
        labels = torch.arange(16) % 2
        images = torch.randn(16, 3, 32, 32) + labels[:, None, None, None]
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(step + 1)
        losses.append(loss.item())
    print(f"{name}: loss {losses[0]:.3f} → {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
