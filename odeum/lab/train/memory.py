"""Memory of a run: glibc's reuse of freed memory, and peak usage of the GPU or of the process."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import sys
import time
from pathlib import Path

import torch

RETAINED_BYTES = 1 << 30
"""most bytes of freed memory that stay with the process"""
LARGE_BLOCK = 1 << 25
"""size in bytes from which freed blocks always return to the system (the largest value glibc accepts)"""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next step, unless the user has set malloc options.

    By default glibc may or may not return pages to the system after each step, depending on the order of earlier
    allocations. Mapping them again takes a fifth of a small model's step. Peak memory does not change.
    """
    if "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return
    map_threshold, trim_threshold = -3, -1
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(map_threshold, LARGE_BLOCK):  # setting one threshold disables automatic tuning of the other
            mallopt(trim_threshold, RETAINED_BYTES)


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak to what is in use. On Linux this works for the process too; elsewhere its peak only grows.

    Freed memory that the process holds returns to the system first: it would hide as much of what is used afterwards.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: the allocator's on a GPU, else the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = _status("VmHWM")
    return peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class MemoryWatch:
    """Peak memory, read at most twice per second: reading it takes as long as a small layer."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peak, self.read_at = 0, -math.inf

    def recent_peak(self) -> int:
        """Peak memory in bytes, at most half a second old."""
        now = time.monotonic()
        if now - self.read_at > 0.5:
            self.peak, self.read_at = peak_memory(self.device), now
        return self.peak


def memory_now(device: torch.device) -> int:
    """Current memory in bytes, or the peak where only that is available."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _status("VmRSS") or peak_memory(device)


def _status(key: str) -> int | None:
    """A field of /proc/self/status in bytes; None if there is none."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().split("\n")
        return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024
    return None
