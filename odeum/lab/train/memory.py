"""Memory of a run: what it keeps between steps, and the most it took, of a GPU's or else of the process's."""

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

KEPT_BYTES = 1 << 30
"""bytes that are kept for the next step at most"""
LARGE_PIECE = 1 << 25
"""bytes from which a piece of memory is always the system's again when it is freed: the most glibc allows itself"""


def keep_freed_memory() -> None:
    """Ask glibc to keep what a step frees for the next one, unless its user has told it what to do.

    By itself it gives pages back after each step, or never, by the luck of who allocated what before; to have them
    mapped anew is a fifth of a small model's step. The most memory that a run takes is the same.
    """
    if "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return
    map_threshold, trim_threshold = -3, -1
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ask = ctypes.CDLL(None).mallopt
        if ask(map_threshold, LARGE_PIECE):  # told one threshold alone, it no longer finds the other by itself
            ask(trim_threshold, KEPT_BYTES)


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


class MemoryWatch:
    """The most memory so far, as of a moment ago: to ask the system takes as long as a small layer."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.known, self.asked = 0, -math.inf

    def lately(self) -> int:
        """Bytes."""
        now = time.monotonic()
        if now - self.asked > 0.5:
            self.known, self.asked = peak_memory(self.device), now
        return self.known


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
