"""Stopping without losing anything."""

from __future__ import annotations

import contextlib
import signal
from typing import Any


class Interrupted(KeyboardInterrupt):
    """The state is saved; the same command continues."""

    def __init__(self, sentence: str, number: int = signal.SIGINT) -> None:
        super().__init__(sentence)
        self.code = 128 + number
        """what a process ends with that this signal ended"""


class stop_softly:
    """The first Ctrl-C (or SIGTERM) lets the step finish and the state be saved; a second Ctrl-C insists."""

    def __init__(self) -> None:
        self.asked = 0
        """the number of the signal that came, if one did"""

    def __enter__(self) -> stop_softly:
        self.before = {}
        with contextlib.suppress(ValueError):  # only the main thread may listen
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = self.asked or number

    def __exit__(self, *error: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
