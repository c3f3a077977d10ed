"""What the benchmarks share: contestants that take turns in one process on one thread, and a record of what was run."""

from __future__ import annotations

import ctypes
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from odeum.kernels import matmul

RESULTS = Path(__file__).parent / "results"
DEVICE = torch.device(os.environ.get("ODEUM_BENCH_DEVICE", "cpu"))
"""where the models of `language`, `vision` and `precision` are: `script/bench --device cuda`, which we have not run"""
PACKAGES = (
    *("torch", "transformers", "timm", "x-transformers", "torchdiffeq", "ctranslate2", "gguf", "llama-cpp-python"),
    "numpy",
)

if importlib.util.find_spec("torchvision") and torch.version.cuda is None:
    # PyPI's torchvision, which timm needs, is built for CUDA: beside a torch without it neither timm nor transformers
    # load before its operators are declared.
    OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _cpu_seconds() -> tuple[float, float] | None:
    """What all processes have computed so far, and what this one and its children have; None where it cannot be known.

    A process that is measured itself sees little of its neighbours in its CPU time, but shares caches and memory.
    """
    try:
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft = map(int, ticks[:7])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


BEGUN, BUSY_BEFORE = time.monotonic(), _cpu_seconds()


def others() -> float | None:
    """How many cores other processes kept busy in the mean since this one began."""
    now = _cpu_seconds()
    if now is None or BUSY_BEFORE is None:
        return None
    everything, own = (after - before for after, before in zip(now, BUSY_BEFORE, strict=True))
    return round(max(0.0, everything - own) / (time.monotonic() - BEGUN), 2)


def installed(package: str) -> bool:
    """Whether a peer can be asked; one that is not installed is left out and named."""
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"{package} is not installed: its rows are left out")
    return found


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed, for every contestant; whether it can (glibc).

    By itself glibc gives memory back once enough of it is free at the heap's end, which happens to one contestant after
    every call and to another never, by the luck of who allocated what before: thousands of pages to be mapped anew.
    """
    trim_threshold, map_threshold, much = -1, -3, 1 << 30
    try:
        ask = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(ask(trim_threshold, much) and ask(map_threshold, much))


def take_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of each call, in turns, so that whatever slows the machine slows all of them.

    On a CPU the CPU time of this process; on a GPU elapsed time until its queue is empty.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warm_up + rounds):
        for name, run in contestants.items():
            start = _now()
            run()
            if turn >= warm_up:
                seconds[name].append(_now() - start)
    return seconds


def _now() -> float:
    if DEVICE.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


MKL = ", products by MKL"
ONEDNN = ", products by oneDNN"
"""of every contestant under the other matmul setting than the one that the plain name stands for"""


def with_both_settings(
    contestants: Mapping[str, Callable[[], object]], *, usual: bool = True
) -> dict[str, Callable[[], object]]:
    """Every contestant, ours and peers, under both matmul settings, where this processor has two (`kernels/matmul.py`).

    A plain name stands for the `usual` setting of the task: oneDNN in training, MKL in decoding.
    """
    if DEVICE.type != "cpu" or not matmul.onednn_is_faster():
        return dict(contestants)

    def under(run: Callable[[], object], onednn: bool) -> Callable[[], object]:
        def turn() -> None:
            torch.set_float32_matmul_precision("medium" if onednn else "highest")
            try:
                run()
            finally:
                torch.set_float32_matmul_precision("highest")

        return turn

    other = MKL if usual else ONEDNN
    usually = {name: under(run, usual) for name, run in contestants.items()}
    return {**usually, **{name + other: under(run, not usual) for name, run in contestants.items()}}


BF16 = ", bf16"


def step(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[..., None]:
    """Forward and backward; with `low`, the forward pass alone is under bfloat16 autocast, as torch advises."""

    def run(low: bool = False) -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=low):
            value = loss()
        value.backward()
        model.zero_grad(set_to_none=True)

    return run


def with_both_precisions(contestants: Mapping[str, Callable[..., object]]) -> dict[str, Callable[[], object]]:
    """Every `step` in fp32 by the faster matmul setting of this processor, and under bfloat16 autocast."""
    onednn = DEVICE.type == "cpu" and matmul.onednn_is_faster()

    def under(run: Callable[..., object], low: bool) -> Callable[[], object]:
        def turn() -> None:
            torch.set_float32_matmul_precision("medium" if onednn else "highest")
            run(low)

        return turn

    return {name + suffix: under(run, bool(suffix)) for suffix in ("", BF16) for name, run in contestants.items()}


def unpacked(run: Callable[[], object]) -> Callable[[], object]:
    """Decoding of ours without packed weights, as on processors on which oneDNN is not faster."""

    def turn() -> None:
        with mock.patch.object(matmul, "onednn_is_faster", lambda: False):
            run()

    return turn


def compiled(model: torch.nn.Module) -> Any:
    """A peer by torch.compile, or None where there is no C++ compiler."""
    return torch.compile(model) if shutil.which("g++") else None


def over(one: list[float], other: list[float]) -> dict[str, float]:
    """The median over the rounds of (one time / the other), with the smallest and the largest of these ratios."""
    ratios = sorted(a / b for a, b in zip(one, other, strict=True))
    return {"ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}


def rows(seconds: Mapping[str, list[float]], reference: str, share: float = 1.0) -> dict[str, dict[str, float]]:
    """Milliseconds (of a `share` of a call: one token of many) and (reference time / own time).

    The reference runs under the same matmul setting and precision as the row, where it ran under both.
    """

    def peer(name: str) -> list[float]:
        suffix = next((suffix for suffix in (MKL, ONEDNN, BF16) if name.endswith(suffix)), "")
        return seconds.get(reference + suffix, seconds[reference])

    return {
        name: {"milliseconds": 1e3 * share * statistics.median(times), **over(peer(name), times)}
        for name, times in seconds.items()
    }


def show(title: str, table: Mapping[str, Mapping[str, float]]) -> None:
    """The rows, to read along."""
    print(title)
    for name, row in table.items():
        print(
            f"  {name:34} {row['milliseconds']:10.3f} ms   × {row['ratio']:.2f} ({row['least']:.2f}–{row['most']:.2f})"
        )


def processor() -> str:
    """Name of the GPU, or of the processor with its family and model, since a virtual machine may hide the name."""
    if DEVICE.type == "cuda":
        return torch.cuda.get_device_name()
    name = str(torch.cpu.get_capabilities().get("cpu_name", platform.machine()))
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return name
    fields = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    if {"cpu family", "model"} <= fields.keys():
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    return name


def record(name: str, body: Mapping[str, Any]) -> None:
    """Write results/NAME.json (of a GPU: NAME-cuda.json) with versions, date, command, and how busy others kept it."""
    device = ["--device", DEVICE.type] if DEVICE.type != "cpu" else []
    versions = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found = {
        **body,
        "threads": torch.get_num_threads(),
        "machine": {
            "processor": processor(),
            "vectors": torch.backends.cpu.get_cpu_capability(),
            "settings": "both" if DEVICE.type == "cpu" and matmul.onednn_is_faster() else "one",
            "cores": os.cpu_count(),
            "others": others(),
        },
        "versions": versions,
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["script/bench", *device, name, *sys.argv[1:]]),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{'-'.join([name, *device[1:]])}.json").write_text(json.dumps(found, indent=2) + "\n")
