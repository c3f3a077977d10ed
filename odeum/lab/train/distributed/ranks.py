"""Rank and world size as set by torchrun, and error output; without torch, so that errors appear at once.

All processes of a run get the same arguments and raise the same errors, so one of them prints.
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


class ProcessLost(OdeumError):
    """Another process has ended or does not answer. That process prints the cause, if it still can."""


def rank() -> int:
    """The rank of this process."""
    return _number("RANK", 0)


def size() -> int:
    """The number of processes."""
    return max(1, _number("WORLD_SIZE", 1))


def _number(name: str, default: int) -> int:
    """An integer from the environment; the default if it is missing or not an integer."""
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def check_launcher() -> None:
    """Raises `OdeumError` if the environment variables of torchrun are invalid or incomplete."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        value = os.environ.get(name, "1")
        if not value.isdecimal() or (name == "WORLD_SIZE" and not int(value)):
            raise OdeumError(f"the environment variable {name}={value!r} is not a number of processes; unset it")
    if size() > 1 and (missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]):
        raise OdeumError(
            f"the environment sets WORLD_SIZE={size()} but not {missing[0]}; start several processes with torchrun, or "
            "unset it"
        )


def is_main() -> bool:
    """Whether this is the first process, which prints and writes."""
    return rank() == 0


def print_error(error: BaseException) -> None:
    """Print `odeum: MESSAGE`, once for all processes with the same error."""
    if size() == 1 or _first(str(error), only_if_silent=isinstance(error, ProcessLost)):
        print(f"odeum: {' '.join(str(error).splitlines())}", file=sys.stderr, flush=True)
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):  # printed by torchrun at the end
        sentence = {"py_callstack": str(error), "timestamp": str(int(time.time()))}
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
            json.dump({"message": {"message": str(error), "extraInfo": sentence}}, file)


def exit_code(code: int) -> int:
    """Returns the exit code; with several processes, exits at once on an error, without waiting for connections."""
    if size() > 1 and code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _first(sentence: str, only_if_silent: bool) -> bool:
    """Ask the launcher's store whether this process is the first to print; without a store every process is."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    with contextlib.suppress(RuntimeError, KeyError, ValueError):
        store = open_store()
        printed = store.add(f"odeum/spoken/{attempt()}", 0 if only_if_silent else 1)
        if only_if_silent and printed:
            return False
        return store.add(f"odeum/{attempt()}/{sentence}", 1) == 1
    return True


def attempt() -> str:
    """How often the launcher has restarted the processes."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def open_store() -> Any:
    """Connect to the store that all processes of a run share."""
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=5))
