"""The most memory a run took: the device's on a GPU, the process's elsewhere."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

import torch


def reset_peak_memory(device: torch.device) -> None:
    """Begin to measure. On Linux the process's peak can be reset; elsewhere it only grows."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = _status("VmHWM")
    return peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_now(device: torch.device) -> int:
    """Bytes; where only the peak is known, that."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _status("VmRSS") or peak_memory(device)


def _status(key: str) -> int | None:
    """What Linux says of this process, in bytes."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().split("\n")
        return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024
    return None
