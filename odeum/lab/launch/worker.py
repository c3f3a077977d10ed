"""Workers: carry out runs one after another in one process, so that start-up and data loading happen once."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from odeum.errors import Notice
from odeum.lab.train.spec import RunSpec

if TYPE_CHECKING:
    from odeum.lab.train.job import Job


class Event(NamedTuple):
    """A progress event of a run, or its final event (one of FINAL_EVENTS)."""

    kind: str
    content: dict[str, Any]

    @property
    def ends(self) -> bool:
        return self.kind in FINAL_EVENTS


FINAL_EVENTS = ("done", "diverged", "cut off", "interrupted", "failed")
Listen = Callable[[Event], None]
Tell = Callable[[int, Event], None]
"""called with the index of a run and an event"""


class Reporting:
    """Replaces the progress line of a run: sends events to a listener instead of a terminal."""

    every = 0.5
    """seconds between two progress events"""

    def __init__(self, listen: Listen) -> None:
        self.listen = listen
        self.quiet = False
        self.last = 0.0

    def update(self, **numbers: float) -> None:
        now = time.monotonic()
        if not self.quiet and now - self.last >= self.every:
            self.last = now
            self.listen(Event("progress", numbers))

    def say(self, text: str) -> None:
        if not self.quiet:
            self.listen(Event("said", {"text": text}))

    def metrics(self, step: int, metrics: dict[str, Any]) -> None:
        if not self.quiet:
            self.listen(Event("metrics", {"step": step, **metrics}))


class Worker:
    """Carries out runs, and keeps the data of the last one open."""

    def __init__(self) -> None:
        self._key = ""
        self._task: Any = None

    def task(self, spec: RunSpec) -> Any:
        """The data of a run; runs of one comparison share it."""
        key = json.dumps([spec.source, spec.kind, dict(spec.options)])
        if key != self._key:
            from odeum.lab.tasks import open_task

            self._task = None  # two at once may not fit into memory
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Notice)  # the launching process has already printed them
                self._task = open_task(*spec.source, kind=spec.kind, **spec.options)
            self._key = key
        return self._task

    def execute(self, content: dict[str, Any], listen: Listen) -> Event:
        """Carry out the run of a spec that `RunSpec.to_json` wrote."""
        from odeum.registry.plugins import load_installed

        def job() -> Job:
            from odeum.lab.train.job import Job

            load_installed()
            spec = RunSpec.from_json(content)
            return Job(**vars(spec), task=self.task(spec))

        with warnings.catch_warnings():
            warnings.showwarning = _forward(listen)  # ty: ignore[invalid-assignment]
            return finish(job, listen)


def _forward(listen: Listen) -> Callable[..., None]:
    """Turns notices into events, and drops warnings of other libraries."""

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, Notice):
            listen(Event("said", {"text": str(message)}))

    return show


def finish(job: Callable[[], Job], listen: Listen) -> Event:
    """Carry out a run and return its final event, whatever error ends it, so that other runs continue."""
    from odeum.errors import OdeumError
    from odeum.lab.train.interrupt import Interrupted

    try:
        return attempt(job(), listen)
    except Interrupted as stop:
        return Event("interrupted", {"sentence": str(stop), "code": stop.code})
    except KeyboardInterrupt:
        return Event("interrupted", {"sentence": "interrupted", "code": 130})
    except OdeumError as error:
        return Event("failed", {"sentence": str(error) or type(error).__name__})
    except Exception as error:  # a bug in Odeum or in a plugin: keep the traceback
        import traceback

        text = traceback.format_exc()
        return Event("failed", {"sentence": f"{type(error).__name__}: {error}", "traceback": text})


def attempt(job: Job, listen: Listen) -> Event:
    """Train or continue a run. Divergence is a result, since the run would diverge again."""
    from odeum.errors import CutOff, Diverged
    from odeum.lab.train.run import train

    lost = {job.task.metric: math.nan, "loss": math.nan}
    try:
        return Event("done", train(job, Reporting(listen), record_divergence=True))
    except CutOff as error:
        return Event("cut off", {"sentence": str(error), "valid": lost, "test": lost})
    except Diverged as error:
        return Event("diverged", {"sentence": str(error), "failed": str(error), "valid": lost, "test": lost})


def serve(connection: Connection, environment: dict[str, str]) -> None:
    """Main loop of a worker process: receives specs and sends events until it gets None or the parent is gone."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; it sends SIGTERM, which saves and stops
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    worker = Worker()

    def tell(event: Event) -> None:
        try:
            connection.send(event)
        except OSError:  # the parent is gone: save and stop
            os.kill(os.getpid(), signal.SIGTERM)

    while True:
        try:
            content = connection.recv()
        except (EOFError, OSError):
            return
        if content is None:
            return
        tell(worker.execute(content, tell))
        sys.stdout.flush()
        sys.stderr.flush()


def _follow(parent: Any) -> None:
    """Stop this process when its parent dies."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
