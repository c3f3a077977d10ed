"""Lines that say what is being done with large data while it is read; no torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from odeum.errors import OdeumError, with_display_names
from odeum.lab.data.files import files_below
from odeum.storage import expanded

LARGE = 4_000_000
"""bytes or characters that may take a second or more; below this nothing is said"""
MOST_FILES = 5000
"""files of a folder whose sizes are added"""

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def reports_reading(listener: Callable[[str], None]) -> Generator[None]:
    """Passes each line to `listener` while data is read in the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_stage(stage: str, size: int) -> None:
    """Report the stage that begins, if reporting is on and the stage is long."""
    listener = _listener.get()
    if listener is not None and size >= LARGE:
        listener(with_display_names(f"{stage} ({size / 1e6:,.0f} MB)"))


def report_files(source: Sequence[str]) -> None:
    """Reports that files are about to be read, if they are large."""
    try:
        paths = [expanded(item) for item in source]
        found = itertools.chain.from_iterable(files_below(path) if path.is_dir() else [path] for path in paths)
        size = sum(path.stat().st_size for path in itertools.islice(found, MOST_FILES) if path.is_file())
    except (OSError, ValueError, OdeumError):  # the reader says what is wrong
        return
    report_stage("reading " + " and ".join(f"'{path.name}'" for path in paths), size)
