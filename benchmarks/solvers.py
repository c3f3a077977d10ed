"""What an integrator costs beside what it must cost: a step of RK4 in Euler steps, recomputing beside keeping.

    script/bench solvers            # a few minutes; writes benchmarks/results/solvers.json

`rk4` is the time of a Runge–Kutta step over that of an Euler step of the same field: four evaluations, so 4.0 would be
free of overhead. `checkpointed` is over backpropagation through the same layers: a forward pass more, so 4/3 at most.
`torchdiffeq` integrates the same field by the same tableau. Freed memory is kept, for all of them: what is asked is
what the integrator costs, and not whose turn it was to have its pages mapped anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from turns import installed, keep_freed_memory, record, take_turns

from odeum.architectures import stack
from odeum.fields import Context
from odeum.kernels import matmul
from odeum.models.settings import Shape

SIZES = {"tokens 65, width 192": (16, 65, 192), "tokens 512, width 128": (2, 512, 128)}
DEPTH = 2


def layers(architecture: str, width: int, activation: str) -> nn.Module:
    torch.manual_seed(0)
    return stack(architecture, Shape(width, 2, DEPTH, activation=activation))  # ty: ignore[invalid-argument-type]


def training_step(model: Callable[..., Tensor], weights: list[Tensor], x: Tensor) -> Callable[[], None]:
    def step() -> None:
        model(x).square().mean().backward()
        for weight in weights:
            weight.grad = None

    return step


def peer(width: int, activation: str) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """torchdiffeq's rk4 (the 3/8 rule) over the fields of our layers."""
    from torchdiffeq import odeint

    model = layers("parallel:method=rk4-38", width, activation)
    fields = [flow.field for flow in model.flows]  # ty: ignore[not-iterable]
    time = torch.tensor([0.0, 1.0])

    def run(x: Tensor) -> Tensor:
        for field in fields:
            x = odeint(lambda t, y, field=field: field(0.0, y, Context()), x, time, method="rk4")[-1]
        return x

    return run, list(model.parameters())


def main() -> None:
    torch.set_num_threads(1)
    matmul.use_onednn()  # as in a run
    kept = keep_freed_memory()
    found: dict[str, dict[str, float]] = {}
    for size, (batch, tokens, width) in SIZES.items():
        for activation in ("relu", "gelu"):
            x = torch.randn(batch, tokens, width)
            contestants = {}
            for name in ("parallel", "rk4", "parallel:gradient=checkpointed", "rk4:gradient=checkpointed"):
                model = layers(name, width, activation)
                contestants[name] = training_step(model, list(model.parameters()), x)
            if installed("torchdiffeq"):
                contestants["torchdiffeq rk4"] = training_step(*peer(width, activation), x)
            still = {name: layers(name, width, activation).eval() for name in ("parallel", "rk4")}

            def evaluate(model: nn.Module, x: Tensor = x) -> None:
                with torch.inference_mode():
                    model(x)

            contestants |= {f"{name}, inference": lambda m=model: evaluate(m) for name, model in still.items()}
            seconds = take_turns(contestants, rounds=21)

            def over(one: str, other: str, seconds: dict[str, list[float]] = seconds) -> float:
                return statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))

            row = {
                "rk4 / euler, training": over("rk4", "parallel"),
                "rk4 / euler, inference": over("rk4, inference", "parallel, inference"),
                "checkpointed / backprop, euler": over("parallel:gradient=checkpointed", "parallel"),
                "checkpointed / backprop, rk4": over("rk4:gradient=checkpointed", "rk4"),
            }
            if "torchdiffeq rk4" in seconds:
                row["torchdiffeq rk4 / rk4"] = over("torchdiffeq rk4", "rk4")
            found[f"{size}, {activation}"] = row
            print(f"{size}, {activation}")
            for name, ratio in row.items():
                print(f"  {name:34} {ratio:.3f}")
    record("solvers", {"ratios": found, "depth": DEPTH, "sizes": SIZES, "freed memory is kept": kept})


if __name__ == "__main__":
    main()
