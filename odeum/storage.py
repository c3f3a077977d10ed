"""Files that are whole or not there: JSON, bytes, directories and the lock of a run; no torch."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError


def slug(spelling: str) -> str:
    """`parallel:independent=6` as the name of a folder."""
    return re.sub(r"[^\w.]+", "-", spelling).strip("-")


def make_directory(path: Path) -> None:
    """A directory to write into, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        there = next(p for p in (path, *path.parents) if p.is_file())
        raise OdeumError(f"'{there}' is a file, so there can be no runs in it; give another --out") from None
    except OSError as error:
        raise OdeumError(f"cannot make the directory '{path}': {error.strerror}; give another --out") from None


@contextlib.contextmanager
def alone_in(directory: Path) -> Generator[None]:
    """Two trainings must not write the same states: the second is refused. Where there are no locks, nothing is."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    number = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise OdeumError(f"another process is training in '{directory}'; wait for it, or give another --out") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(number)


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all: a reader, or a power cut, never sees half a file."""
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OdeumError(f"cannot write '{path}': {error.strerror}") from None


def sync(path: Path) -> None:
    """Let a file, or the names in a directory, reach the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
        return found
    except FileNotFoundError:
        raise OdeumError(f"'{path.parent}' is no finished run: it has no {path.name}") from None
    except (ValueError, OSError) as error:
        raise OdeumError(f"cannot read '{path}': {error}") from None
