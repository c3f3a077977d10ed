"""Runs one after another in this process: for torchrun and for --jobs 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odeum.lab.launch.worker import Event, Tell, attempt, finish
from odeum.lab.train.distributed import ranks

if TYPE_CHECKING:
    from odeum.lab.train.job import Job


class Inline:
    """The launcher without worker processes: a failed run does not stop the others, Ctrl-C does.

    Under torchrun all processes work on one run, so an error stops the call: no process continues alone.
    """

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing to close."""

    def run(self, runs: Sequence[Job], tell: Tell) -> list[Event]:
        """Carry out these runs. Returns the final event of each, in order."""
        ended: list[Event] = []
        for number, job in enumerate(runs):

            def listen(event: Event, number: int = number) -> None:
                tell(number, event)

            event = attempt(job, listen) if ranks.size() > 1 else finish(lambda job=job: job, listen)
            tell(number, event)
            ended.append(event)
            if event.kind == "interrupted":
                return [*ended, *[event] * (len(runs) - len(ended))]
        return ended
