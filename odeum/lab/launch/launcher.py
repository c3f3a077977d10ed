"""Which launcher, from the words of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from odeum.errors import OdeumError, choose
from odeum.lab.launch.inline import Inline
from odeum.lab.launch.local import Local, jobs_for
from odeum.lab.launch.worker import Event, Tell
from odeum.lab.train.distributed import ranks

if TYPE_CHECKING:
    from odeum.lab.train.job import Job


class Launcher(Protocol):
    """Carries out runs; a context, because processes may live on between two calls."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def run(self, runs: Sequence[Job], tell: Tell) -> list[Event]: ...


def check_jobs(jobs: str) -> None:
    """Refuse a number of runs at once that is none, before anything is read or measured."""
    if jobs != "auto" and not (jobs.isdecimal() and int(jobs) > 0):
        raise OdeumError(f"--jobs should be auto or a number of runs at once from 1 on, not '{jobs}'")


def launcher(on: str | None, jobs: str, threads: int, directory: Path) -> Launcher:
    """`on`: none (this machine), ray[:address], slurm[:partition]; `jobs`: auto, or how many at once."""
    check_jobs(jobs)
    if ranks.size() > 1:
        if on is not None or jobs not in ("auto", "1"):
            raise OdeumError("under torchrun all processes work on one run; leave --jobs and --on out")
        return Inline()
    limit = None if jobs == "auto" else int(jobs)
    if on is None:
        count = jobs_for(jobs, threads)
        return Inline() if count == 1 else Local(count)
    name, _, place = on.partition(":")
    choose(name, ("ray", "slurm"), "launcher")
    from odeum.lab.launch import cluster

    if name == "ray":
        return cluster.Ray(place or None, limit)
    return cluster.Slurm(place or None, limit, directory)
