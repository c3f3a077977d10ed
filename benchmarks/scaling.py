"""How the time of a training step grows with length, depth, width and batch: the slope in a log–log plot.

    script/bench scaling            # two minutes; writes benchmarks/results/scaling.json

One size grows by doublings while the others stay; the slope is that of the least-squares line through log time over log
size. In theory 1 for depth and batch, between 1 and 2 for length and width.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from turns import record, take_turns

from odeum.architectures import stack
from odeum.kernels import matmul
from odeum.models.settings import Shape

BASE = {"length": 128, "depth": 2, "width": 128, "batch": 4}
GROWTH = {"length": (128, 256, 512, 1024), "depth": (2, 4, 8), "width": (64, 128, 256), "batch": (4, 8, 16)}
ARCHITECTURES = ("sequential", "parallel", "rk4", "transevolve")


def step(architecture: str, length: int, depth: int, width: int, batch: int) -> Callable[[], None]:
    model = stack(architecture, Shape(width, 2, depth, activation="relu"))
    x = torch.randn(batch, length, width)

    def run() -> None:
        model(x).square().mean().backward()
        model.zero_grad(set_to_none=True)

    return run


def slope(sizes: tuple[int, ...], seconds: list[float]) -> float:
    x, y = [math.log(size) for size in sizes], [math.log(time) for time in seconds]
    return statistics.linear_regression(x, y).slope


def main() -> None:
    torch.set_num_threads(1)
    matmul.use_onednn()  # as in a run
    torch.manual_seed(0)
    slopes: dict[str, dict[str, float]] = {}
    for architecture in ARCHITECTURES:
        slopes[architecture] = {}
        for what, sizes in GROWTH.items():
            runs = {str(size): step(architecture, **{**BASE, what: size}) for size in sizes}
            seconds = take_turns(runs, rounds=3)
            slopes[architecture][what] = slope(sizes, [min(times) for times in seconds.values()])
        print(architecture, {what: round(value, 2) for what, value in slopes[architecture].items()})
    record("scaling", {"slopes": slopes, "base": BASE, "growth": GROWTH, "seed": 0})


if __name__ == "__main__":
    main()
