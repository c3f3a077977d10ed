"""Draw the README's figure: one trained network's tokens, the same field under Lie–Trotter, Euler and RK4."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from odeum.inspection import inspect, plane
from odeum.lab.tasks.opening import reopen_task
from odeum.lab.tasks.run import load

METHODS = {"lie-trotter": "Lie–Trotter: the transformer", "euler": "Euler: the parallel layer", "rk4": "RK4"}


def main(run: str, out: str) -> None:
    batch = reopen_task(run).sample(1)
    paths = []
    for method in METHODS:
        model = load(run).solve_by(solver=method).model.eval()
        paths.append(inspect(model, batch).states[:, 0])
    assert all(np.array_equal(path[0], paths[0][0]) for path in paths)  # the same start
    matplotlib.rcParams |= {"svg.hashsalt": "paths", "font.family": "DejaVu Sans", "svg.fonttype": "none"}
    figure, row = plt.subplots(1, 3, figsize=(10.5, 3.7), sharex=True, sharey=True, layout="constrained")
    for axes, title, path in zip(row, METHODS.values(), plane(*paths), strict=True):
        colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.92, path.shape[1]))
        for token, colour in enumerate(colours):
            axes.plot(*path[:, token].T, color=colour, lw=1.1, marker=".", ms=3, alpha=0.85)
        axes.scatter(*path[0].T, s=20, facecolors="white", edgecolors=colours, zorder=3)
        axes.scatter(*path[-1].T, s=30, color=colours, zorder=3)
        axes.set_title(title, fontsize=11)
        axes.set(xticks=[], yticks=[])
    figure.savefig(Path(out), metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main(*sys.argv[1:])
