"""Signs of life between processes, so that one that has stopped is told from one whose disk is slow."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from odeum.lab.train.distributed import ranks
from odeum.lab.train.distributed.ranks import Lost

EVERY = 1.0
"""seconds between two signs of a process"""


class Beats:
    """Every process counts up in the launcher's store, in a thread that goes on while the process writes or reads."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        """seconds after which a process without a sign is given up"""
        self.store: Any = None
        with contextlib.suppress(RuntimeError, KeyError, ValueError):  # no store: then only long timeouts end a wait
            mine, self.store = ranks.open_store(), ranks.open_store()
            threading.Thread(target=self._beat, args=(mine,), daemon=True).start()

    def _beat(self, store: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the launcher is gone
            while True:
                store.add(_key(ranks.rank()), 1)
                time.sleep(EVERY)

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait for others; raise `Lost` when one of them has given no sign of life for too long."""
        pause, begin = 0.001, time.monotonic()
        seen = {rank: (-1, begin) for rank in range(ranks.size()) if rank != ranks.rank()}
        looked = begin
        while not done():
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            now = time.monotonic()
            if self.store is None or now - looked < EVERY:
                continue
            looked = now
            for rank, (count, since) in seen.items():
                beats = self._beats(rank, count)
                if beats != count:
                    seen[rank] = beats, now
                elif now - since > self.silence:
                    raise Lost(
                        f"process {rank} of this run has given no sign of life for {self.silence:.0f} seconds; "
                        "the same command continues from the last saved state"
                    )

    def _beats(self, rank: int, count: int) -> int:
        with contextlib.suppress(RuntimeError):  # who has the store does not answer
            return self.store.add(_key(rank), 0)
        return count


def _key(rank: int) -> str:
    return f"odeum/beat/{ranks.attempt()}/{rank}"
