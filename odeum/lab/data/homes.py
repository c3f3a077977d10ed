"""Folders of named data sets, and the cache."""

from __future__ import annotations

import os
from pathlib import Path

from odeum.errors import OdeumError
from odeum.storage import expanded


def homes() -> list[Path]:
    """Folders that are searched for named data sets: $ODEUM_DATA, then the cache."""
    given = os.environ.get("ODEUM_DATA")
    return ([expanded(given)] if given else []) + [cache()]


def cache() -> Path:
    """Folder of downloaded and generated data."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "odeum"


def locate(name: str, folder: str, files: list[str]) -> Path:
    """The folder of a named data set with all `files`, downloaded if necessary; raises `OdeumError` if not possible."""
    missing = files
    for home in homes():
        missing = [f for f in files if not (home / folder / f).exists()]
        if not missing:
            return home / folder
    from odeum.lab.data import hub

    reason = hub.fetch(name, cache() / folder)
    if reason is None:
        return cache() / folder
    raise OdeumError(
        f"data set '{name}' not found. Put {', '.join(missing[:6])}{' …' if len(missing) > 6 else ''} into "
        f"'{homes()[0] / folder}', or set ODEUM_DATA to the folder above it; {reason}"
    )


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)
