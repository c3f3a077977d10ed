"""What the benchmarks share: contestants that take turns in one process on one thread, and a record of what was run."""

from __future__ import annotations

import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "timm", "x-transformers", "torchdiffeq", "numpy")


def installed(package: str) -> bool:
    """Whether a peer can be asked; one that is not installed is left out and named."""
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"{package} is not installed: its rows are left out")
    return found


def take_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """CPU seconds of this process for each call, in turns, so that whatever slows the machine slows all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warm_up + rounds):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            if turn >= warm_up:
                seconds[name].append(time.process_time() - start)
    return seconds


def rows(seconds: Mapping[str, list[float]], reference: str, share: float = 1.0) -> dict[str, dict[str, float]]:
    """Milliseconds (of a `share` of a call: one token of many) and the median of (reference time / own time)."""
    return {
        name: {
            "milliseconds": 1e3 * share * statistics.median(times),
            "ratio": statistics.median(a / b for a, b in zip(seconds[reference], times, strict=True)),
        }
        for name, times in seconds.items()
    }


def show(title: str, table: Mapping[str, Mapping[str, float]]) -> None:
    """The rows, to read along."""
    print(title)
    for name, row in table.items():
        print(f"  {name:34} {row['milliseconds']:10.3f} ms   × {row['ratio']:.2f}")


def record(name: str, body: Mapping[str, Any]) -> None:
    """Write results/NAME.json with versions, date, command, and how busy the machine was."""
    versions = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found = {
        **body,
        "threads": torch.get_num_threads(),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
        "versions": versions,
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["script/bench", name, *sys.argv[1:]]),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
