"""TransEvolve beside nn.TransformerEncoderLayer and beside its published form ported to torch: training steps.

One thread, process CPU time, contestants take turns in one run, medians of the ratios of neighbouring steps. Each lives
in a process of its own, as when it is trained: in one process they would lend each other memory that is already mapped.
A step is 4096 tokens in sequences of 512 to 4096, with and without dropout; `--single` takes one sequence a step.
Peak memory is the growth of the process's largest resident set over one step at 4096 tokens.

    OMP_NUM_THREADS=1 python benchmarks/transevolve.py            # writes benchmarks/results/transevolve.json
    OMP_NUM_THREADS=1 python benchmarks/transevolve.py --single   # writes benchmarks/results/transevolve-single.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from odeum.architectures import stack
from odeum.kernels import matmul
from odeum.models.settings import Shape

WIDTH, HEADS, DEPTH = 256, 4, 6
LENGTHS = (512, 1024, 2048, 4096)
LONG = (4096, 8192)
TOKENS = 4096
"""of a step, in as many sequences as that makes"""
DROPOUT = 0.1
"""what the paper trains with, and nn.TransformerEncoderLayer unless told otherwise"""
WARM_UP = 2
SEED = 0


class PublishedLayer(nn.Module):
    """A layer as the released code computes it: evolution and mask are added to the scores, then softmax."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-3), nn.LayerNorm(WIDTH, eps=1e-3)
        self.c = nn.Parameter(torch.randn(WIDTH) * math.sqrt(2.0 / WIDTH))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, measured: tuple[Tensor, ...], depth: int, padded: Tensor) -> Tensor:
        a0, a1, a2, a3 = measured
        p = torch.arange(WIDTH // 2) * (depth * math.pi / 64)
        signal = (self.c * torch.cat((p.sin(), p.cos()))).view(HEADS, -1)
        rows, columns = torch.einsum("bhlt,ht->bhl", a1, signal), torch.einsum("bhlt,ht->bhl", a2, signal)
        both = torch.einsum("ht,ht->h", a3, signal * signal)
        scores = a0 + (rows[..., :, None] + columns[..., None, :]) + both[:, None, None]
        scores += padded * -1e9
        v = self.norm(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        x = x + self.dropout(self.out((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(-2)))
        return x + self.dropout(self.down(self.up(self.norm2(x)).relu()))


class Published(nn.Module):
    """A block as the released code computes it, with the dead columns."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        total = 2 * WIDTH
        self.wq, self.wk = (nn.Parameter(torch.empty(total, total)) for _ in range(2))
        nn.init.xavier_uniform_(self.wq)
        nn.init.xavier_uniform_(self.wk)
        self.layers = nn.ModuleList(PublishedLayer(dropout) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        q, k = (self.dropout(x @ w[:, :WIDTH].T) for w in (self.wq, self.wk))
        qh, kh = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in (q, k))
        a0 = qh @ kh.transpose(-1, -2) / math.sqrt(qh.shape[-1])
        tq, tk = (w[:, WIDTH:].unflatten(1, (HEADS, -1)) for w in (self.wq, self.wk))
        a1, a2 = torch.einsum("dht,bld->bhlt", tk, q), torch.einsum("dht,bld->bhlt", tq, k)
        measured = (a0, a1, a2, torch.einsum("dht,dht->ht", tq, tk))
        padded = x.new_zeros(len(x), 1, x.shape[1], x.shape[1])  # the released code makes it for every batch
        for depth, layer in enumerate(self.layers):
            x = layer(x, measured, depth, padded)
        return self.norm(x)


def transevolve(form: str, dropout: float) -> nn.Module:
    shape = Shape(WIDTH, HEADS, DEPTH, activation="relu", norm_eps=1e-3, dropout=dropout)
    return stack(f"transevolve:attention={form}", shape)


def torch_encoder(dropout: float) -> nn.Module:
    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=dropout, batch_first=True, norm_first=True)

    return nn.Sequential(*(layer() for _ in range(DEPTH)), nn.LayerNorm(WIDTH))


CONTESTANTS: dict[str, Callable[[float], nn.Module]] = {
    "shared": partial(transevolve, "shared"),
    "fused": partial(transevolve, "fused"),
    "linear": partial(transevolve, "linear"),
    "nn.TransformerEncoderLayer": torch_encoder,
    "published": Published,
}
MKL = ", products by MKL"
"""of a contestant without oneDNN, where it is the faster library; ours and peers multiply by the same one"""
if matmul.onednn_is_faster():
    CONTESTANTS |= {name + MKL: make for name, make in CONTESTANTS.items()}


class Trainer:
    """One contestant with its optimizer: a step is forward, backward and update."""

    def __init__(self, name: str, dropout: float = 0.0) -> None:
        torch.manual_seed(SEED)
        self.model = CONTESTANTS[name](dropout).train()
        if not name.endswith(MKL):  # in a process of its own
            matmul.use_onednn()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)

    def step(self, x: Tensor) -> float:
        start = time.process_time()
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()
        return time.process_time() - start


def tokens(length: int, sequences: int = 1) -> Tensor:
    return torch.randn(sequences, length, WIDTH, generator=torch.Generator().manual_seed(SEED))


def serve(name: str, length: int, sequences: int, dropout: float, turns: Connection) -> None:
    """A contestant's process: a step and its CPU seconds for every word it hears."""
    torch.set_num_threads(1)
    trainer, x = Trainer(name, dropout), tokens(length, sequences)
    for _ in range(WARM_UP):
        trainer.step(x)
    while turns.recv():
        turns.send(trainer.step(x))


def race(
    names: list[str], length: int, rounds: int, sequences: int = 1, dropout: float = 0.0
) -> dict[str, float | list[float]]:
    """CPU seconds a step (medians), and how many times faster the first is than the others, step by step.

    "arithmetic" is how many times fewer multiply–adds it has: the speed that the products alone would give. The same
    by MKL's products on both sides, where oneDNN is faster.
    """
    spawn = multiprocessing.get_context("spawn")
    turns = {}
    for name in names:
        turns[name], theirs = spawn.Pipe()
        spawn.Process(target=serve, args=(name, length, sequences, dropout, theirs), daemon=True).start()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, turn in turns.items():
            turn.send(True)
            seconds[name].append(turn.recv())
    for turn in turns.values():
        turn.send(False)
    first, *others = (name for name in names if not name.endswith(MKL))
    out: dict[str, float | list[float]] = {name: round(statistics.median(times), 4) for name, times in seconds.items()}
    for other in others:
        ratios = sorted(b / a for a, b in zip(seconds[first], seconds[other], strict=True))
        out[f"{first} / {other}"] = round(statistics.median(ratios), 3)
        out[f"{first} / {other} range"] = [round(ratios[0], 3), round(ratios[-1], 3)]
        out[f"{first} / {other} arithmetic"] = round(operations(other, length) / operations(first, length), 3)
        if first + MKL in names:
            pairs = zip(seconds[first + MKL], seconds[other + MKL], strict=True)
            ratios = sorted(b / a for a, b in pairs)
            out[f"{first}{MKL} / {other}"] = round(statistics.median(ratios), 3)
            out[f"{first}{MKL} / {other} range"] = [round(ratios[0], 3), round(ratios[-1], 3)]
    return out


@cache
def operations(name: str, length: int) -> float:
    """Multiply–adds of the products of a step, forward and backward."""

    def products(count: int) -> Callable[..., int]:
        def formula(query: tuple[int, ...], key: tuple[int, ...], *_: Any, **__: Any) -> int:
            return count * 2 * math.prod(query) * key[-2]

        return formula

    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    counter = FlopCounterMode(
        display=False,
        custom_mapping={flash: products(2), back: lambda grad, *shapes, **words: products(5)(*shapes, **words)},
    )
    with counter:
        Trainer(name).model(tokens(length)).square().mean().backward()
    return counter.get_total_flops() / 2


def peak(name: str, length: int) -> float:
    """Megabytes by which the largest resident set grows in a step; run in a process of its own."""
    trainer = Trainer(name)
    trainer.step(tokens(64))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trainer.step(tokens(length))
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return growth / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def peak_in_process(name: str, length: int) -> float:
    command = [sys.executable, __file__, "--peak", name, "--length", str(length)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return round(float(done.stdout), 1)


@torch.no_grad()
def linear_error(length: int) -> dict[str, float]:
    """How far the linear form is from the exact one, with the same untrained weights."""
    torch.manual_seed(SEED)
    exact, linear = CONTESTANTS["shared"](0.0), CONTESTANTS["linear"](0.0)
    linear.load_state_dict(exact.state_dict(), strict=False)
    x = tokens(length)
    a, b = exact(x), linear(x)
    return {"relative error, untrained": round(float((a - b).norm() / a.norm()), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="steps of each contestant at 4096 tokens; up to four times as many at shorter lengths",
    )
    parser.add_argument("--single", action="store_true", help="one sequence a step; only the exact forms")
    parser.add_argument("--out", type=Path, help="a file, by default in benchmarks/results")
    parser.add_argument("--peak", choices=CONTESTANTS, help="only print one contestant's memory")
    parser.add_argument("--length", type=int, default=4096)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        print(peak(options.peak, options.length))
        return
    name = "transevolve-single.json" if options.single else "transevolve.json"
    out = options.out or Path(__file__).parent / "results" / name
    tokens_a_step = "length" if options.single else f"{TOKENS} (8192 of the longest)"
    result: dict[str, Any] = {
        "what": f"training step of {tokens_a_step} tokens in sequences of 'length', width {WIDTH}, {HEADS} heads, "
        f"1 block × {DEPTH} layers, float32",
        "command": "OMP_NUM_THREADS=1 python benchmarks/transevolve.py" + " --single" * options.single,
        "rounds": options.rounds,
        "date": datetime.date.today().isoformat(),
        "seed": SEED,
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()},
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "processor": torch.cpu.get_capabilities().get("cpu_name", platform.machine()),
        "products": "oneDNN" if matmul.onednn_is_faster() else "torch",
        "threads": 1,
    }

    def measured(row: dict[str, Any], key: str, length: int | None = None) -> None:
        print(key, length or "", json.dumps(row), flush=True)
        if length is None:
            result[key] = row
        else:
            result.setdefault(key, {})[length] = row

    if not options.single:
        # First, while this process is small: a child's largest resident set starts from its parent's.
        memory = {name: peak_in_process(name, 4096) for name in CONTESTANTS if not name.endswith(MKL)}
        measured(memory, "megabytes a step at 4096")
        measured({n: round(memory["published"] / m, 2) for n, m in memory.items()}, "times less memory than published")
    exact = ["shared", "nn.TransformerEncoderLayer", "published"]
    exact += [name + MKL for name in exact if name + MKL in CONTESTANTS]
    for dropout in (DROPOUT, 0.0):
        for length in LENGTHS:
            sequences = 1 if options.single else TOKENS // length
            rounds = options.rounds * min(4, LENGTHS[-1] // length)  # steps on short sequences are shorter and closer
            measured(race(exact, length, rounds, sequences, dropout), f"exact, dropout {dropout}", length)
    if not options.single:
        for length in LONG:
            row = race(["linear", "nn.TransformerEncoderLayer"], length, options.rounds)
            measured(row | linear_error(length), "linear", length)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
