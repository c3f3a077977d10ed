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
    return _number("RANK", 0)


def size() -> int:
    return max(1, _number("WORLD_SIZE", 1))


def _number(name: str, default: int) -> int:
    """What a launcher says; what is no number is no launcher's."""
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def check_launcher() -> None:
    """Refuse an environment that says half of what torchrun says."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        value = os.environ.get(name, "1")
        if not value.isdecimal() or (name == "WORLD_SIZE" and not int(value)):
            raise OdeumError(f"the environment says {name}={value!r}, which is no number of processes; unset it")
    if size() > 1 and (missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]):
        raise OdeumError(
            f"the environment says WORLD_SIZE={size()} but not {missing[0]}; start several processes by torchrun, or "
            "unset it"
        )


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
        store = open_store()
        spoken = store.add(f"odeum/spoken/{attempt()}", 0 if only_if_silent else 1)
        if only_if_silent and spoken:
            return False
        return store.add(f"odeum/{attempt()}/{sentence}", 1) == 1
    return True


def attempt() -> str:
    """How often the launcher has started the processes again."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def open_store() -> Any:
    """A connection to the store that all processes of a run share."""
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=5))
