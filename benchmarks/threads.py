"""How much faster a training step becomes from one thread to two, ours and peers: elapsed time, so on an idle machine.

script/bench threads            # two minutes; writes benchmarks/results/threads.json
"""

from __future__ import annotations

import statistics
import time

import language
import torch
import vision
from turns import record, with_both_precisions

ROUNDS = 7


def main() -> None:
    torch.manual_seed(0)
    contestants = {
        f"language, {name}": run for name, run in language.contestants(10_000, (*language.OURS, "gpt-neox")).items()
    }
    contestants |= {f"images, {name}": run for name, run in vision.contestants(*vision.SHAPES["65 tokens"]).items()}
    plain = {name: run for name, run in contestants.items() if not name.endswith("compiled")}
    gains = {}
    for name, run in with_both_precisions(plain).items():
        seconds: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(1 + ROUNDS):
            for threads, times in seconds.items():
                torch.set_num_threads(threads)
                start = time.perf_counter()
                run()
                if turn:
                    times.append(time.perf_counter() - start)
        gains[name] = {"2 threads over 1": statistics.median(a / b for a, b in zip(*seconds.values(), strict=True))}
        print(f"{name:40} × {gains[name]['2 threads over 1']:.2f}", flush=True)
    record("threads", {"ratios": gains, "rounds": ROUNDS, "seed": 0})


if __name__ == "__main__":
    main()
