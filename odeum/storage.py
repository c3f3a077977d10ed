"""Files that are whole or not there, and tell when they are damaged: JSON, bytes, directories, a lock; no torch.

A sealed file carries the checksum of its own bytes, taken with zeros in the checksum's place, so that a file and its
checksum can never be of two minds, however a writer was interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from odeum.errors import OdeumError, notice

UNSEALED = "0" * 32
"""what stands in a checksum's place while the checksum is taken"""
PART_SUFFIX = ".part"
"""how the name of a file ends that is still being written"""


class Damaged(OdeumError):
    """A file of a run is not what was written."""


def slug(spelling: str) -> str:
    """`parallel:independent=6` as the name of a folder."""
    return re.sub(r"[^\w.]+", "-", spelling).strip("-")


def out_directory(given: str | None, default: Path) -> Path:
    """The directory that --out names, or the default."""
    if given is None:
        return default
    if not given.strip() or "\0" in given:
        raise OdeumError(f"--out {given!r} names no directory; give a path, or leave it out for '{default}'")
    return Path(given)


def make_directory(path: Path) -> None:
    """A directory to write into, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        there = next((p for p in (path, *path.parents) if os.path.lexists(p) and not p.is_dir()), path)
        what = "a link to nowhere" if there.is_symlink() and not there.exists() else "a file"
        raise OdeumError(f"'{there}' is {what}, so there can be no runs in it; give another --out") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        shown = str(path) if len(str(path)) < 100 else f"{str(path)[:80]}… ({len(str(path))} characters)"
        raise OdeumError(f"cannot make the directory '{shown}': {reason}; give another --out") from None


@contextlib.contextmanager
def new_directory(given: str | Path) -> Generator[Path]:
    """Where to write what is to become this directory: it must be new or empty, and is filled whole or not at all.

    It is made and locked first, so that a name that cannot be, and a second process, are refused before any work.
    """
    if not str(given).strip() or "\0" in str(given):
        raise OdeumError(f"{str(given)!r} names no directory; give a path")
    place = Path(given).expanduser().absolute()
    if os.path.exists(place) and not (os.path.isdir(place) and not any(place.iterdir())):
        raise OdeumError(f"'{given}' is there already; name a new or an empty directory")
    missing = [path for path in (place, *place.parents) if not os.path.lexists(path)]
    make_directory(place)
    part = place.parent / f".{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}"
    try:
        with alone_in(place):
            part.mkdir()
            yield part
            if any(place.iterdir()):
                raise OdeumError(f"another process has filled '{given}' meanwhile; name another directory")
            part.rename(place.resolve())  # an empty directory gives way to it, at once
        sync(place.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with contextlib.suppress(OSError):
            for made in missing:
                made.rmdir()
        raise


@contextlib.contextmanager
def alone_in(directory: Path) -> Generator[None]:
    """Two trainings must not write the same states: the second is refused. Where there are no locks, nothing is."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        number = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise OdeumError(f"cannot open the directory '{directory}': {error.strerror}; give another --out") from None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise OdeumError(f"another process is writing to '{directory}'; wait for it, or give another --out") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(number)


def sweep(directory: Path) -> None:
    """Remove what a killed writer left half done; only for whoever is alone in the directory."""
    for path in directory.glob(f".*{PART_SUFFIX}"):
        with contextlib.suppress(OSError):
            path.unlink()


# writing


@contextlib.contextmanager
def writing(path: Path) -> Generator[IO[bytes]]:
    """A file that takes its name when all of it is on the disk; its writer's name for it is nobody else's."""
    part = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):  # a disk that takes no file may not give one up either
            part.unlink(missing_ok=True)
        if isinstance(error, OSError | ValueError):
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise OdeumError(f"cannot write '{path}': {reason}") from None
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Whole or not at all: a reader, or a power cut, never sees half a file."""
    with writing(path) as file:
        file.write(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A sealed object."""
    text = json.dumps({**content, "checksum": UNSEALED}, indent=1, ensure_ascii=False) + "\n"
    # Bytes of a file's name that are no UTF-8 become what JSON escapes them as.
    write_sealed(path, text.encode(errors="backslashreplace"))


def write_sealed(path: Path, head: bytes, body: Iterable[bytes | memoryview] = ()) -> None:
    """Write `head`, whose last zeros are the checksum's place, and `body`; then put the checksum of it all there."""
    place = head.rindex(UNSEALED.encode())
    taken = _hash(head)
    with writing(path) as file:
        file.write(head)
        for part in body:
            taken.update(part)
            file.write(part)
        file.seek(place)
        file.write(taken.hexdigest().encode())


def sealed_line(content: dict[str, Any]) -> bytes:
    """Return a sealed object as one line of a .jsonl file."""
    text = json.dumps({**content, "checksum": UNSEALED}, ensure_ascii=False).encode(errors="backslashreplace")
    before, _, after = text.rpartition(UNSEALED.encode())
    return before + _hash(text).hexdigest().encode() + after + b"\n"


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Append a sealed object to a .jsonl file; several processes may append at once.

    A line that a killed writer left unfinished stays behind as a damaged line, and the next one begins after it.
    """
    try:
        with open(path, "ab+") as file:
            with contextlib.suppress(ImportError, OSError):  # a system, or a file system, without locks
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            if unfinished := file.seek(0, os.SEEK_END) > 0:
                file.seek(-1, os.SEEK_END)
                unfinished = file.read(1) != b"\n"
            file.write(b"\n" * unfinished + sealed_line(content))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OdeumError(f"cannot write '{path}': {error.strerror}") from None


def sync(path: Path) -> None:
    """Let a file, or the names in a directory, reach the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# reading


def _hash(begin: bytes = b"") -> Any:
    return hashlib.blake2b(begin, digest_size=len(UNSEALED) // 2)


def checksum(content: bytes) -> str:
    """Of bytes that do not carry it themselves."""
    return _hash(content).hexdigest()


def check_seal(path: Path, seal: object, head: bytes, body: Iterable[bytes] = ()) -> None:
    """See that a file is what was written; of one that carries no checksum it is remembered."""
    if seal is None:
        _unsealed.add(path.parent)
        return
    if isinstance(seal, str) and re.fullmatch(rf"[0-9a-f]{{{len(UNSEALED)}}}", seal):
        before, found, after = head.rpartition(seal.encode())
        taken = _hash(before + UNSEALED.encode() + after)
        for part in body:
            taken.update(part)
        if found and taken.hexdigest() == seal:
            return
    raise Damaged(f"'{path}' is damaged: its content does not match its checksum, so it is not what was written")


_unsealed: set[Path] = set()


def remark_unsealed(directory: Path) -> None:
    """Say it if files were read from there that carry no checksum, as earlier versions wrote them."""
    if directory in _unsealed:
        _unsealed.remove(directory)
        notice(f"'{directory}' was written without checksums, so damage to its files would not be noticed")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a sealed file."""
    raw, found = _parsed(path)
    check_seal(path, found.pop("checksum", None), raw)
    return found


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | Damaged]]:
    """The number and the object of each line of a .jsonl file; for a damaged line, its error."""
    for number, raw in enumerate(read_bytes(path).split(b"\n"), start=1):
        if raw.strip():
            place = path.with_name(f"{path.name}:{number}")
            try:
                content = _object(place, raw)
                check_seal(place, content.pop("checksum", None), raw)
            except Damaged as error:
                yield number, error
            else:
                yield number, content


def _parsed(path: Path) -> tuple[bytes, dict[str, Any]]:
    if not os.path.lexists(path):
        raise OdeumError(f"'{path.parent}' is no finished run: it has no {path.name}")
    raw = read_bytes(path)
    return raw, _object(path, raw)


def _object(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw.decode("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
        return found
    except RecursionError:
        raise Damaged(f"'{path}' is damaged: it is nested too deeply") from None
    except ValueError as error:
        raise Damaged(f"'{path}' is damaged: {error}") from None


def read_bytes(path: Path) -> bytes:
    """All of a file; what has no end (a pipe, a device) is no file of a run."""
    try:
        if path.exists() and not path.is_file():
            raise Damaged(f"cannot read '{path}': it is {'a directory' if path.is_dir() else 'no regular file'}")
        return path.read_bytes()
    except OSError as error:
        raise Damaged(f"cannot read '{path}': {error.strerror}") from None
