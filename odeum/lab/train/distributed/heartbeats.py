"""Heartbeats between processes, which distinguish a dead process from a slow one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from odeum.lab.train.distributed import ranks
from odeum.lab.train.distributed.ranks import ProcessLost

EVERY = 1.0
"""seconds between two heartbeats of a process"""


class Heartbeats:
    """Each process increments a counter in the launcher's store, in a thread that runs during input and output."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        """seconds without a heartbeat after which a process counts as lost"""
        self.store: Any = None
        with contextlib.suppress(RuntimeError, KeyError, ValueError):  # no store: then only long timeouts end a wait
            thread_store, self.store = ranks.open_store(), ranks.open_store()
            threading.Thread(target=self._beat, args=(thread_store,), daemon=True).start()

    def _beat(self, store: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the launcher is gone
            while True:
                store.add(_key(ranks.rank()), 1)
                time.sleep(EVERY)

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until `done` returns True. Raises `ProcessLost` if another process sends no heartbeat for too long."""
        pause, begin = 0.001, time.monotonic()
        seen = {rank: (-1, begin) for rank in range(ranks.size()) if rank != ranks.rank()}
        checked = begin
        while not done():
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            now = time.monotonic()
            if self.store is None or now - checked < EVERY:
                continue
            checked = now
            for rank, (count, since) in seen.items():
                beats = self._beats(rank, count)
                if beats != count:
                    seen[rank] = beats, now
                elif now - since > self.silence:
                    raise ProcessLost(
                        f"process {rank} of this run has given no sign of life for {self.silence:.0f} seconds; "
                        "the same command continues from the last saved state"
                    )

    def _beats(self, rank: int, count: int) -> int:
        with contextlib.suppress(RuntimeError):  # the store's host does not answer
            return self.store.add(_key(rank), 0)
        return count


def _key(rank: int) -> str:
    return f"odeum/beat/{ranks.attempt()}/{rank}"
