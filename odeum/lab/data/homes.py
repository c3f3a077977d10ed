"""Where named data lies, and where what is downloaded or generated is kept."""

from __future__ import annotations

import os
from pathlib import Path

from odeum.errors import OdeumError


def homes() -> list[Path]:
    """Where named sets are looked for: $ODEUM_DATA, then our own cache."""
    given = os.environ.get("ODEUM_DATA")
    return ([Path(given).expanduser()] if given else []) + [cache()]


def cache() -> Path:
    """What Odeum downloads or generates is kept here."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "odeum"


def locate(name: str, folder: str, files: list[str]) -> Path:
    """The folder of a named set that holds all `files`, downloaded if need be; else a sentence on what to put where."""
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
        f"the data set '{name}' is not here: put {', '.join(missing[:6])}{' …' if len(missing) > 6 else ''} into "
        f"'{homes()[0] / folder}' (ODEUM_DATA names the folder above it); {reason}"
    )


def write_atomically(path: Path, content: bytes) -> None:
    """All or nothing, so that a cache is never half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)
