"""What a run keeps between steps, and how it is asked for its memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest
import torch

from odeum.lab.train import memory
from odeum.lab.train.memory import MemoryWatch, keep_freed_memory

FAULTS = """
import resource, sys
from odeum.lab.train.memory import keep_freed_memory
import torch
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    keep_freed_memory()
def step():
    kept = [torch.ones(300_000) for _ in range(20)]  # 24 MB in pieces, all of them freed
step(); step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str, **environment: str) -> int:
    plain = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES" and not k.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True, env=plain | environment
    )
    return int(done.stdout)


@pytest.mark.skipif(os.confstr("CS_GNU_LIBC_VERSION") is None, reason="another C library")
def test_pages_are_not_mapped_anew_in_every_step() -> None:
    pages = 24_000_000 // resource.getpagesize()
    assert faults("keep") < pages  # of twenty steps
    assert faults("keep", MALLOC_MMAP_THRESHOLD_="100000") > 10 * pages


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (AttributeError, OSError, TypeError):

        def none(name: object, error: type[Exception] = error) -> None:
            raise error

        monkeypatch.setattr("ctypes.CDLL", none)
        keep_freed_memory()


def test_the_system_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory, "peak_memory", lambda device: asked.append(1) or len(asked))
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    watch = MemoryWatch(torch.device("cpu"))
    assert [watch.recent_peak() for _ in range(3)] == [1, 1, 1]
    now[0] += 1.0
    assert watch.recent_peak() == 2
