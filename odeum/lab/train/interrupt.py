"""Stopping without losing anything: signals that end a process, and Slurm's, after which a job starts again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from typing import Any

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)]
"""signals whose default is to end the process at once; a terminal that is closed sends SIGHUP, Slurm the others"""
REQUEUING = [number for number in ENDING if number != getattr(signal, "SIGHUP", None)]


class Interrupted(KeyboardInterrupt):
    """A signal ended the work. A training has saved its state, and the same command continues it."""

    def __init__(self, sentence: str, number: int = signal.SIGINT) -> None:
        super().__init__(sentence)
        self.code = 128 + number
        """what a process ends with that this signal ended"""


@contextlib.contextmanager
def signals_raise() -> Generator[None]:
    """Let signals that would end the process at once raise `Interrupted`, so that half-written files are removed.

    Signals that are ignored (nohup) or handled by somebody else stay so.
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


class stop_softly:
    """The first Ctrl-C (or SIGTERM) lets the step finish and the state be saved; a second Ctrl-C insists.

    A launcher that listens to SIGUSR1 or SIGUSR2 itself (submitit) gets the signal when the state is saved.
    """

    def __init__(self) -> None:
        self.asked = 0
        """the number of the signal that came, if one did"""

    def __enter__(self) -> stop_softly:
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
    """Ask Slurm to start this job again if its signal ended the process; whether it will.

    A job that is cancelled gets SIGTERM too, but is not running any more.
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
