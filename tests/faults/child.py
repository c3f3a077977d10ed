"""A command in a forked child: torch is imported once, in the parent, and each fault costs a fraction of a second."""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from odeum.lab.cli import main

KILLED = 137
"""what a child ends with that ended itself as SIGKILL would"""
BROKEN = 70
"""what a child ends with that has a traceback to show"""
LIMIT = 120.0
"""seconds after which a child hangs"""
ROOM = 1 << 20
"""bytes that a child can print"""


class Ending(NamedTuple):
    """How a child ended."""

    code: int
    """its exit code; minus the signal that ended it; None of them is a hang, which is 124"""
    text: str
    """what it printed"""

    @property
    def sentence(self) -> bool:
        """Whether it refused as it should: code 2, one sentence at the end, no traceback."""
        return self.code == 2 and "Traceback" not in self.text and "odeum: " in self.text


class Child:
    """A running command."""

    def __init__(self, words: list[str], prepare: Callable[[], object] = lambda: None) -> None:
        # A pipe that holds all of it, since a limit on the length of files must not cut off what the child says.
        self.output, self.input = os.pipe()
        fcntl.fcntl(self.input, fcntl.F_SETPIPE_SZ, ROOM)
        sys.stdout.flush()
        signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # none may find a child that is still its parent
        self.number = os.fork()
        if self.number == 0:
            code = BROKEN
            try:
                code = self._live(words, prepare)
            finally:  # or the parent's own clean-up would run in the child
                os._exit(code)  # looked up now: a fault may stand there
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        os.close(self.input)

    def _live(self, words: list[str], prepare: Callable[[], object]) -> int:
        os.dup2(self.input, 1)
        os.dup2(self.input, 2)
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0), write_through=True)
        sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0), write_through=True)
        try:
            prepare()
            # What is interrupted before the command begins is no matter of the command: it ends by the signal.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return main(words)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 0
        except BaseException:
            traceback.print_exc()
            return BROKEN

    def end(self, limit: float = LIMIT) -> Ending:
        """Wait for its end; a child that hangs is killed."""
        until = time.monotonic() + limit
        status = None
        while status is None and time.monotonic() < until:
            done, found = os.waitpid(self.number, os.WNOHANG)
            if done:
                status = found
            else:
                time.sleep(0.002)
        if status is None:
            os.kill(self.number, signal.SIGKILL)
            os.waitpid(self.number, 0)
        os.set_blocking(self.output, False)  # a grandchild may hold the other end
        with os.fdopen(self.output, "rb") as pipe:
            text = (pipe.read(ROOM) or b"").decode(errors="replace")
        return Ending(124 if status is None else os.waitstatus_to_exitcode(status), text)


def call(*words: str, prepare: Callable[[], object] = lambda: None, limit: float = LIMIT) -> Ending:
    """Run a command to its end."""
    return Child(list(words), prepare).end(limit)


class Operations:
    """Counts what a process does to files, and ends it, signals it, or lets the disk fail, before one of them."""

    def __init__(self, at: int = 0, error: int | None = None, number: int | None = None) -> None:
        self.at, self.error, self.number, self.count = at, error, number, 0

    def __call__(self) -> None:
        """Before each operation."""
        self.count += 1
        if not self.at:
            return
        if self.number is not None:
            if self.count == self.at:
                os.kill(os.getpid(), self.number)
            return
        if self.error is None and self.count == self.at:
            os._exit(KILLED)
        if self.error is not None and self.count >= self.at:
            raise OSError(self.error, os.strerror(self.error))

    def watch(self) -> None:
        """Stand before every call of this process that changes a file or a folder."""
        for name in ("replace", "rename", "fsync", "unlink", "remove", "rmdir", "mkdir", "link", "symlink", "truncate"):
            setattr(os, name, self._before(getattr(os, name)))
        opened = builtins.open

        def watched(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            if set(mode) & set("wax+") and isinstance(file, str | os.PathLike):
                self()
            return opened(file, mode, *rest, **more)

        builtins.open = io.open = watched  # ty: ignore

    def _before(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*words: Any, **more: Any) -> Any:
            self()
            return do(*words, **more)

        return watched


def count_operations(*words: str) -> int:
    """How many operations a command takes."""
    reading, writing = os.pipe()
    operations = Operations()

    def prepare() -> None:
        operations.watch()
        leave = os._exit

        def last(code: int) -> None:
            os.write(writing, str(operations.count).encode())
            leave(code)

        os._exit = last  # ty: ignore

    ending = call(*words, prepare=prepare)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    if ending.code != 0:
        raise RuntimeError(f"{words} ended with {ending.code}: {ending.text}")
    return int(text)


@contextlib.contextmanager
def within(folder: str) -> Generator[None]:
    """Somewhere else for a while."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
