"""One run after the other in this very process: what torchrun needs, and what --jobs 1 means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odeum.launch.worker import Event, Tell, attempt

if TYPE_CHECKING:
    from odeum.train import Job


class Inline:
    """The launcher without processes: what stops a run stops the call, as a command of one run does."""

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing is left to end."""

    def run(self, jobs: Sequence[Job], tell: Tell) -> list[Event]:
        """Carry out these runs; how each ended, in their order."""
        ended = []
        for number, job in enumerate(jobs):
            event = attempt(job, lambda event, number=number: tell(number, event))
            tell(number, event)
            ended.append(event)
        return ended
