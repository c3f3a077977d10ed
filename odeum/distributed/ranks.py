"""Which process of how many this is, as torchrun says it; without torch, so that a mistake is told at once.

All processes of a run get the same words and so make the same mistakes: one of them speaks.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from odeum.errors import OdeumError


class Lost(OdeumError):
    """Another process has ended or does not answer. Why is said by that one, if it still can."""


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """The first process speaks and writes."""
    return rank() == 0


def complain(error: BaseException) -> None:
    """Print `odeum: sentence`, once for all processes that have this to say."""
    if size() == 1 or _first(str(error), only_if_silent=isinstance(error, Lost)):
        print(f"odeum: {' '.join(str(error).splitlines())}", file=sys.stderr, flush=True)
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):  # what torchrun shows last
        sentence = {"py_callstack": str(error), "timestamp": str(int(time.time()))}
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
            json.dump({"message": {"message": str(error), "extraInfo": sentence}}, file)


def leave(code: int) -> int:
    """End with this code; a process among several ends at once, whatever its connections still wait for."""
    if size() > 1 and code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _first(sentence: str, only_if_silent: bool) -> bool:
    """Ask the launcher's store whether somebody spoke before; without a store everybody does."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    with contextlib.suppress(RuntimeError, KeyError, ValueError):
        store = _store()
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        spoken = store.add(f"odeum/spoken/{attempt}", 0 if only_if_silent else 1)
        if only_if_silent and spoken:
            return False
        return store.add(f"odeum/{attempt}/{sentence}", 1) == 1
    return True


def _store() -> Any:
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=5))
