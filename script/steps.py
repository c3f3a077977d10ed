"""Draw docs/steps.svg: five equal steps of four methods through one field of two terms, beside the exact path."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

import odeum
from odeum.integrators import EULER, RK4, FixedSteps, LieTrotter, Method, RungeKutta, Strang

OUT = Path(__file__).resolve().parents[1] / "docs" / "steps.svg"
START, STEPS, LENGTH = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64), 5, 0.6
TURN = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
PULL = torch.tensor([[-0.9, 0.0], [0.0, 0.1]], dtype=torch.float64)
METHODS: dict[str, Method] = {
    "Lie–Trotter: G, then F\nthe transformer layer": LieTrotter(),
    "Euler: G + F at once\nthe parallel layer": RungeKutta(EULER),
    "Strang: ½ F, G, ½ F\nthe Macaron layer": Strang(),
    "RK4: four evaluations\nthe RK4 layer": RungeKutta(RK4),
}


class Linear(odeum.Field):
    """A linear field of the plane."""

    def __init__(self, matrix: Tensor, about: str) -> None:
        super().__init__()
        self.matrix, self.role = matrix, about

    def forward(self, t: float, x: Tensor, context: odeum.Context) -> Tensor:
        return x @ self.matrix


def path(method: Method) -> Tensor:
    """Return the states after each step, [steps + 1, 2]."""
    field = odeum.Sum(attention=Linear(TURN, "attention"), feedforward=Linear(PULL, "feedforward"))
    stack = odeum.Stack([odeum.Flow(field, FixedSteps(method, steps=1), t1=LENGTH)], schedule=[0] * STEPS)
    with torch.no_grad():
        return torch.stack(list(stack.trajectory(START)))[:, 0, 0]


def main() -> None:
    times = torch.linspace(0, STEPS * LENGTH, 200, dtype=torch.float64)
    exact = torch.stack([(START[0] @ torch.linalg.matrix_exp(t * (TURN + PULL)))[0] for t in times])
    matplotlib.rcParams |= {"svg.hashsalt": "steps", "font.family": "DejaVu Sans", "svg.fonttype": "none"}
    figure, row = plt.subplots(1, len(METHODS), figsize=(11, 2.5), sharex=True, sharey=True, layout="constrained")
    for axes, (title, method) in zip(row, METHODS.items(), strict=True):
        axes.plot(*exact.T, color="0.65", lw=3, label="exact path")
        axes.plot(*path(method).T, color="#2a6f97", marker="o", ms=5, lw=1.4, label="layers")
        axes.plot(*START[0, 0], marker="o", ms=7, mfc="white", mec="#2a6f97", ls="")
        axes.set_title(title, fontsize=10)
        axes.set(xticks=[], yticks=[], aspect="equal")
    row[0].legend(fontsize=8, frameon=False)
    figure.savefig(OUT, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
