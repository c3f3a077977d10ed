"""Runs side by side on this machine: a few processes that are reused, cores and GPUs dealt out among them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.launch.worker import Event, Tell, serve
from odeum.lab.train.interrupt import Interrupted
from odeum.lab.train.spec import RunSpec

TRIES = 3
"""attempts per run if its process dies; each continues from the last checkpoint"""
GRACE = 60.0
"""seconds that a worker has to save its state after a request to stop"""


def cores() -> int:
    """The number of CPU cores available to this process."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def stop_code(stop: KeyboardInterrupt) -> int:
    """The exit code for an interruption by Ctrl-C or another signal."""
    return stop.code if isinstance(stop, Interrupted) else 130


def gpus() -> list[str]:
    """The GPUs as names for CUDA_VISIBLE_DEVICES, listed without creating a CUDA context."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in given.split(",") if name.strip()]
    with contextlib.suppress(OSError):
        return sorted(name[6:] for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit())
    return []


def threads_for(runs: int) -> int:
    """Threads per run: determined by the number of runs and cores, not by how many run at once."""
    return max(1, cores() // max(runs, 1))


def jobs_for(asked: str | int, threads: int) -> int:
    """`auto`: as many processes as there are GPUs or, without any, as cores for their threads."""
    if asked != "auto":
        number = int(asked)
        if number < 1:
            raise OdeumError(f"--jobs must be auto or a positive number of processes, not {asked}")
        return number
    return len(gpus()) or max(1, cores() // threads)


@dataclass
class Process:
    """A worker process and its current run."""

    process: Any
    connection: Connection
    run: int | None = None
    tries: dict[int, int] = field(default_factory=dict)


class Local:
    """As many worker processes as `jobs`, spawned once and reused; a context manager that ends them."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.workers: list[Process] = []
        self.stopping = False
        self._gpus = gpus()

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def run(self, runs: Sequence[RunSpec], tell: Tell) -> list[Event]:
        """Carry out these runs; returns how each ended, in their order, also after an interruption."""
        waiting = deque(range(len(runs)))
        ended: dict[int, Event] = {}
        tries = dict.fromkeys(waiting, 0)
        try:
            while len(ended) < len(runs) and not (self.stopping and not self._busy()):
                while waiting and not self.stopping and (worker := self._free(len(waiting))):
                    worker.run = waiting.popleft()
                    tries[worker.run] += 1
                    with contextlib.suppress(OSError):  # it has just died: seen below
                        worker.connection.send(runs[worker.run].spec().to_json())
                for worker in self._ready():
                    number = worker.run
                    event = self._hear(worker)
                    if number is None or event is None:
                        continue
                    if event.kind == "died":
                        if tries[number] < TRIES and not self.stopping:
                            tell(number, Event("said", {"text": f"{event.content['sentence']}; it is tried again"}))
                            waiting.appendleft(number)
                            continue
                        event = Event("failed", event.content)
                    if event.ends:
                        worker.run = None
                        ended[number] = event
                    tell(number, event)
        except KeyboardInterrupt as stop:
            self.stop()
            return self._drain(runs, tell, ended, stop_code(stop))
        return self._in_order(runs, ended, 130)

    def stop(self) -> None:
        """Ask every run to save its state and to stop."""
        self.stopping = True
        for worker in self._busy():
            with contextlib.suppress(OSError, ValueError):
                os.kill(worker.process.pid, signal.SIGTERM)

    def close(self) -> None:
        """End the workers: those that are idle at once, the others after they have saved."""
        self.stop()
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.connection.send(None)
        until = time.monotonic() + GRACE
        for worker in self.workers:
            worker.process.join(max(0.1, until - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.connection.close()
        self.workers = []

    def _busy(self) -> list[Process]:
        return [worker for worker in self.workers if worker.run is not None]

    def _free(self, wanted: int) -> Process | None:
        """An idle worker, or a new one while there may be more."""
        for worker in self.workers:
            if worker.run is None:
                return worker
        return self._spawn() if len(self.workers) < min(self.jobs, wanted + len(self.workers)) else None

    def _spawn(self) -> Process:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores()))}
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[len(self.workers) % len(self._gpus)]
        process = context.Process(target=serve, args=(theirs, environment), daemon=True)
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)  # libraries read these when they are loaded, before the worker's own code
        try:
            process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value
        theirs.close()
        worker = Process(process, mine)
        self.workers.append(worker)
        return worker

    def _ready(self, timeout: float | None = None) -> list[Process]:
        """The workers that have sent an event or have died."""
        handles = {worker.connection: worker for worker in self.workers}
        handles |= {worker.process.sentinel: worker for worker in self.workers}
        ready = wait(list(handles), timeout)
        return list({id(handles[handle]): handles[handle] for handle in ready}.values())  # ty: ignore[invalid-argument-type]

    def _hear(self, worker: Process) -> Event | None:
        """The next event of a worker; for a dead worker, which is removed, an event of kind `died`."""
        with contextlib.suppress(EOFError, OSError):
            if worker.connection.poll():
                return worker.connection.recv()
        if worker.process.is_alive():
            return None
        worker.process.join()
        self.workers.remove(worker)
        code = worker.process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return Event("died", {"sentence": f"the process of this run ended by {how}"})

    def _drain(self, specs: Sequence[RunSpec], tell: Tell, ended: dict[int, Event], code: int) -> list[Event]:
        """Receive the final events of runs that are saving their state."""
        until = time.monotonic() + GRACE
        while self._busy() and time.monotonic() < until:
            for worker in self._ready(1.0):
                number = worker.run
                event = self._hear(worker)
                if event is not None and number is not None and (event.ends or event.kind == "died"):
                    worker.run = None
                    if event.kind == "interrupted":  # by our own SIGTERM; what ended the whole was another signal
                        event = Event("interrupted", {**event.content, "code": code})
                    ended[number] = event
                    tell(number, event)
        return self._in_order(specs, ended, code)

    def _in_order(self, specs: Sequence[RunSpec], ended: dict[int, Event], code: int) -> list[Event]:
        missing = Event("interrupted", {"sentence": "stopped", "code": code})
        return [ended.get(number, missing) for number in range(len(specs))]
