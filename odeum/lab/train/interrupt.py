"""Graceful stops: termination signals, and requeueing under Slurm."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from typing import Any

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)]
"""signals that terminate the process by default; a closed terminal sends SIGHUP, Slurm the others"""
REQUEUING = [number for number in ENDING if number != getattr(signal, "SIGHUP", None)]


class Interrupted(KeyboardInterrupt):
    """A signal stopped the work. Training has saved its state, and the same command continues it."""

    def __init__(self, sentence: str, number: int = signal.SIGINT) -> None:
        super().__init__(sentence)
        self.code = 128 + number
        """exit code of a process that this signal stopped"""


@contextlib.contextmanager
def signals_raise() -> Generator[None]:
    """Turn termination signals into `Interrupted`, so that half-written files are removed.

    Ignored signals (nohup) and signals with another handler are left alone.
    """

    def end(number: int, frame: Any) -> None:
        raise Interrupted(f"stopped by {signal.Signals(number).name}", number)

    before = {}
    try:
        with contextlib.suppress(ValueError):  # only the main thread may listen
            for number in ENDING:
                if signal.getsignal(number) == signal.SIG_DFL:
                    before[number] = signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class graceful_stop:
    """The first Ctrl-C (or SIGTERM) finishes the step and saves a checkpoint; a second Ctrl-C stops at once.

    A launcher with its own handler for SIGUSR1 or SIGUSR2 (submitit) is called after the checkpoint was saved.
    """

    def __init__(self) -> None:
        self.asked = 0
        """number of the signal received, 0 if none"""

    def __enter__(self) -> graceful_stop:
        self.before = {}
        with contextlib.suppress(ValueError):  # only the main thread may listen
            for number in (signal.SIGINT, *ENDING):
                if signal.getsignal(number) != signal.SIG_IGN:
                    self.before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = self.asked or number

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        launcher = self.before.get(signal.Signals(self.asked)) if self.asked in REQUEUING else None
        if kind is Interrupted and callable(launcher) and self.asked != signal.SIGTERM:
            launcher(self.asked, None)


def requeue(code: int) -> bool:
    """Ask Slurm to requeue this job if its signal stopped the process. Returns whether Slurm accepted.

    A cancelled job gets SIGTERM too, but is no longer in the state RUNNING.
    """
    job, slurm = os.environ.get("SLURM_JOB_ID"), shutil.which("scontrol")
    if code - 128 not in REQUEUING or not job or slurm is None:
        return False
    try:
        about = subprocess.run(
            [slurm, "show", "job", "--oneliner", job], capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()
        if "JobState=RUNNING" not in about or "Requeue=1" not in about:
            return False
        return subprocess.run([slurm, "requeue", job], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
