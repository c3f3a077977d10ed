"""Peak memory and time of a training step by kind of gradient, and how the reversible schemes behave.

    python benchmarks/memory.py            # about five minutes; writes benchmarks/results/memory.json

Memory: each row is a process of its own, a stack of layers, one step to have the gradients in place, then the highest
memory of a second step above what the process has at its begin: what a step keeps and passes, weights and their
gradients aside. Reversible hands over new gradients of all weights at once, before they are added to those there are:
`states` is the peak without them. `adjoint` and torchdiffeq's `odeint_adjoint` are Euler steps of one field; their
memory does not depend on how many weights there are. Times: all kinds of a depth take turns in one process, one thread,
CPU time of a training step; the ratio to backpropagation is taken in each turn.

Growth: the largest factor by which one step of dt = 1 multiplies a state with its twin where dx/dt = μ x. Drift: how
far the first state is met again, relative, in single precision, fresh and after some steps of AdamW.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.errors import Diverged
from odeum.fields import Context, Field, Sum
from odeum.fields.base import Carry
from odeum.integrators import Coupled, Leapfrog, Method, Momentum, ReversibleHeun, RevNet
from odeum.integrators.reversing import reconstruction_drift
from odeum.lab.train.memory import peak_memory, reset_peak_memory
from odeum.models.settings import Shape

RESULT = Path(__file__).parent / "results" / "memory.json"
DEPTHS = (6, 12, 24, 48)
SIZE = {"width": 64, "heads": 4, "hidden": 256}
BATCH, LENGTH = 16, 128
ADJOINT = "parallel:weights=knots,knots=1"
KINDS = {
    "backprop": "sequential",
    "checkpointed": "sequential:gradient=checkpointed",
    "reversible": "reversible",
    "adjoint": f"{ADJOINT},gradient=adjoint",
    "torchdiffeq adjoint": ADJOINT,
}
SCHEMES = {
    "revnet": "reversible",
    "revnet on a grid": "reversible:grid=16",
    "momentum": "reversible:scheme=momentum",
    "momentum, one velocity step a layer": "reversible:scheme=momentum,method=euler",
    "heun": "reversible:scheme=heun",
    "leapfrog": "reversible:scheme=leapfrog",
    "coupling": "reversible:scheme=coupling,method=euler",
    "coupling of rk4": "reversible:scheme=coupling,method=rk4",
}
METHODS: dict[str, Method] = {
    "revnet": RevNet(),
    "momentum": Momentum(0.9),
    "heun": ReversibleHeun(),
    "leapfrog": Leapfrog(),
    "coupling": Coupled(),
}
RATES = {"-2": -2.0, "-1": -1.0, "-0.1": -0.1, "-0.01": -0.01, "i/2": 0.5j, "i": 1j}


def solver_of(kind: str, depth: int) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """A stack, and its forward pass."""
    model = stack(KINDS[kind], Shape(depth=depth, **SIZE))
    if kind != "torchdiffeq adjoint":
        return model, model
    from torchdiffeq import odeint_adjoint

    field = model.flows[0].field  # ty: ignore

    class Theirs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = field

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            return self.field(t.item(), x, Context())

    theirs, ends = Theirs(), torch.tensor([0.0, float(depth)])

    def forward(x: Tensor) -> Tensor:
        out = odeint_adjoint(theirs, x, ends, method="euler", options={"step_size": 1.0})
        return model.norm(out[-1])  # ty: ignore

    return model, forward


def stepper(kind: str, depth: int) -> tuple[nn.Module, Callable[[Tensor], None]]:
    """A stack, and a step of its training but for the optimizer's."""
    torch.manual_seed(0)
    model, forward = solver_of(kind, depth)
    return model, lambda x: forward(x).pow(2).sum().backward()


def memory(kind: str, depth: int) -> dict[str, float]:
    """Bytes of a training step, in this process, and of the weights' gradients."""
    torch.set_num_threads(1)
    model, step = stepper(kind, depth)
    x = torch.randn(BATCH, LENGTH, SIZE["width"])
    device = torch.device("cpu")
    step(x[:1, :8])
    reset_peak_memory(device)
    before = peak_memory(device)
    step(x)
    return {"bytes": peak_memory(device) - before, "gradients": sum(weight.nbytes for weight in model.parameters())}


def measured(kind: str, depth: int) -> dict[str, float]:
    """The same in a process of its own, which gives back what it frees."""
    command = [sys.executable, __file__, "--one", kind, "--depth", str(depth)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def timed(depth: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a training step of each kind, which take turns; the first turn does not count."""
    x = torch.randn(BATCH, LENGTH, SIZE["width"])
    steps = {kind: stepper(kind, depth)[1] for kind in KINDS}
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds + 1):
        for kind, step in steps.items():
            start = time.process_time()
            step(x)
            seconds[kind].append(time.process_time() - start)
    return {kind: own[1:] for kind, own in seconds.items()}


def row(depth: int, rounds: int) -> dict[str, dict[str, float]]:
    """All kinds of a depth beside backpropagation."""
    found = {kind: measured(kind, depth) for kind in KINDS}
    seconds = timed(depth, rounds)
    out = {}
    for kind, own in found.items():
        states = own["bytes"] - (own["gradients"] if kind == "reversible" else 0.0)
        out[kind] = {
            "mebibytes": own["bytes"] / 2**20,
            "states_mebibytes": states / 2**20,
            "memory_ratio": own["bytes"] / found["backprop"]["bytes"],
            "seconds": statistics.median(seconds[kind]),
            "time_ratio": statistics.median(a / b for a, b in zip(seconds[kind], seconds["backprop"], strict=True)),
        }
        shown = out[kind]
        print(
            f"depth {depth:2}  {kind:20} {shown['mebibytes']:7.1f} MiB, states {shown['states_mebibytes']:7.1f} MiB, "
            f"{shown['memory_ratio']:5.2f} of backprop's; {shown['time_ratio']:5.2f} × its time",
            flush=True,
        )
    return out


class Rate(Field):
    """dx/dt = μ x; a complex μ turns pairs."""

    def __init__(self, rate: complex) -> None:
        super().__init__()
        rate = complex(rate)
        self.matrix = torch.tensor([[rate.real, -rate.imag], [rate.imag, rate.real]], dtype=torch.float64)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return x @ self.matrix.mT


def growth(method: Method, rate: complex) -> float:
    """The spectral radius of a step of (state, twin); the rate is shared by two terms."""
    field = Sum(Rate(rate / 2), feedforward=Rate(rate / 2))
    columns = []
    for column in torch.eye(4, dtype=torch.float64):
        carry = Carry(method.history_from_tensor(column[2:].view(1, 1, 2)))
        x = method.step(field, 0.0, 1.0, column[:2].view(1, 1, 2), Context(carry=carry))
        kept = method.history_tensor(carry.state)
        assert kept is not None
        columns.append(torch.cat((x.flatten(), kept.flatten())))
    return torch.linalg.eigvals(torch.stack(columns, 1)).abs().max().item()


def behaviour(spelling: str, depth: int, steps: int) -> dict[str, float]:
    """A stack in single precision: size of the last state beside the first, and drift, fresh and trained."""
    torch.manual_seed(0)
    model = stack(spelling, Shape(depth=depth, **SIZE))
    teacher = stack("sequential", Shape(depth=2, **SIZE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(4, 32, SIZE["width"])
    with torch.no_grad():
        *_, last = model.trajectory(x)  # ty: ignore
    found = {"size": (last.pow(2).mean() / x.pow(2).mean()).sqrt().item()}
    for step in range(steps + 1):
        x = torch.randn(4, 32, SIZE["width"])
        loss = (model(x) - teacher(x).detach()).pow(2).mean()
        optimizer.zero_grad()
        try:
            loss.backward()
        except Diverged:
            return {**found, "failed_at": step}
        if step in (0, steps):
            found["drift" if step == 0 else "drift_trained"] = reconstruction_drift(model) or 0.0
            found["loss" if step == 0 else "loss_trained"] = loss.item()
        optimizer.step()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=list(KINDS))
    parser.add_argument("--depth", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--busy", action="store_true", help="say in the record that the machine did other work")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(memory(options.one, options.depth)))
        return
    torch.set_num_threads(1)
    rows = {str(depth): row(depth, options.rounds) for depth in DEPTHS}
    factors = {name: {at: growth(method, rate) for at, rate in RATES.items()} for name, method in METHODS.items()}
    for name, own in factors.items():
        print(f"growth a step  {name:10}", "  ".join(f"μ={at}: {factor:.3f}" for at, factor in own.items()))
    schemes = {}
    for name, spelling in SCHEMES.items():
        schemes[name] = behaviour(spelling, 48, options.steps)
        print(
            f"48 layers  {name:36}", "  ".join(f"{key} {value:.3g}" for key, value in schemes[name].items()), flush=True
        )
    record = {
        "rows": rows,
        "growth": factors,
        "schemes_at_depth_48": schemes,
        "size": {**SIZE, "batch": BATCH, "length": LENGTH},
        "training_steps": options.steps,
        "times_to_be_rerun": options.busy,
        "rounds": options.rounds,
        "threads": 1,
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "torchdiffeq": importlib.metadata.version("torchdiffeq"),
        },
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python", "benchmarks/memory.py", *sys.argv[1:]]),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
