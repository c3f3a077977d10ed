"""Where named data lies, and reading that says which file is wrong and where."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    from odeum.data import hub

    reason = hub.fetch(name, cache() / folder)
    if reason is None:
        return cache() / folder
    raise OdeumError(
        f"the data set '{name}' is not here: put {', '.join(missing[:6])}{' …' if len(missing) > 6 else ''} into "
        f"'{homes()[0] / folder}' (ODEUM_DATA names the folder above it); {reason}"
    )


def read_text(path: Path) -> str:
    """A whole UTF-8 file, its lines ended by \\n alone; a byte that is not UTF-8 is named with its offset."""
    raw = _read(path)
    try:
        text = raw.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise OdeumError(
            f"'{path}' is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}; convert it, "
            "for example with iconv -t utf-8"
        ) from None
    if not text.strip():
        raise OdeumError(f"'{path}' is empty")
    return text


def read_lines(path: Path) -> list[str]:
    """Lines without their ends; only \\n ends a line (U+0085 and the like are part of the text)."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise OdeumError(f"there is no file '{path}'") from None
    except OSError as error:
        raise OdeumError(f"'{path}' cannot be read: {error.strerror}") from None


def rows_of(path: Path) -> Iterator[str]:
    """Lines with their \\n, for csv, which needs them to keep quoted line breaks."""
    for line in read_text(path).split("\n"):
        yield line + "\n"


def write_atomically(path: Path, content: bytes) -> None:
    """All or nothing, so that a cache is never half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)
