"""One run after the other in this very process: what torchrun needs, and what --jobs 1 means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odeum.launch.spec import RunSpec
from odeum.launch.worker import Event, Worker


class Inline:
    """The launcher without processes; `task` spares a second reading of data that is open already."""

    def __init__(self, progress: Callable[[RunSpec], Any] | None = None) -> None:
        self.worker = Worker()
        self.progress = progress

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def run(self, specs: Sequence[RunSpec], tell: Callable[[int, Event], None]) -> list[Event]:
        """Carry out these runs; an interrupted one is the last."""
        ended: list[Event] = []
        for number, spec in enumerate(specs):
            event = self.worker.carry_out(spec, lambda event, number=number: tell(number, event))
            tell(number, event)
            ended.append(event)
            if event.kind == "interrupted":
                break
        missing = Event("interrupted", {"sentence": "not begun"})
        return [*ended, *[missing] * (len(specs) - len(ended))]

    def close(self) -> None:
        """Nothing is left to end."""
