"""Chooses the launcher from the command-line options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from odeum.errors import OdeumError, choose
from odeum.lab.launch.inline import Inline
from odeum.lab.launch.local import Local, cores, gpus, jobs_for
from odeum.lab.launch.worker import Event, Tell
from odeum.lab.train.distributed import ranks

if TYPE_CHECKING:
    from odeum.lab.train.job import Job


class Launcher(Protocol):
    """Carries out runs; a context manager, because worker processes are reused between calls."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def run(self, runs: Sequence[Job], tell: Tell) -> list[Event]: ...


PLACES = {"ray": ("ray", "ray"), "slurm": ("submitit", "slurm")}
"""values of --on: the package that each needs, and the extra that installs it"""
RUNS_PER_CORE = 8
"""most concurrent runs per core; more would only fill the memory"""


def check_jobs(jobs: str, on: str | None = None) -> None:
    """Raises `OdeumError` for an invalid number of concurrent runs."""
    if jobs != "auto" and not (jobs.isascii() and jobs.isdecimal() and int(jobs) > 0):
        raise OdeumError(f"--jobs must be auto or a positive number of parallel runs, not '{jobs}'")
    most = RUNS_PER_CORE * max(cores(), len(gpus()))
    if on is None and jobs != "auto" and int(jobs) > most:
        raise OdeumError(
            f"--jobs {jobs} is more than {most} parallel runs, the maximum for {cores()} cores; use --jobs auto"
        )


def check_place(on: str) -> None:
    """Raises `OdeumError` if the value of --on is unknown or its package is not installed."""
    package, extra = PLACES[choose(on.partition(":")[0], PLACES, "launcher")]
    if package not in sys.modules and find_spec(package) is None:
        raise OdeumError(f"--on {on} needs the package {package}; `pip install odeum[{extra}]`, or use --jobs here")


def launcher(on: str | None, jobs: str, threads: int, directory: Path) -> Launcher:
    """`on`: none (this machine), ray[:address], slurm[:partition]; `jobs`: auto, or how many at once."""
    check_jobs(jobs, on)
    if ranks.size() > 1:
        if on is not None or jobs not in ("auto", "1"):
            raise OdeumError("under torchrun all processes work on one run; leave out --jobs and --on")
        return Inline()
    limit = None if jobs == "auto" else int(jobs)
    if on is None:
        count = jobs_for(jobs, threads)
        return Inline() if count == 1 else Local(count)
    name, _, place = on.partition(":")
    choose(name, PLACES, "launcher")
    from odeum.lab.launch import cluster

    if name == "ray":
        return cluster.Ray(place or None, limit)
    return cluster.Slurm(place or None, limit, directory)
