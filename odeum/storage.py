"""Atomic files with checksums: JSON, bytes, directories and a lock; imports no torch.

Sealed files contain the checksum of their own bytes, computed with zeros in place of the checksum. So a file and its
checksum always agree, however a writer was interrupted.

Directories that this process holds open are written through their file descriptor: files follow a folder that is moved,
and a folder put in its place gets none of them. Files of a run carry the run's id, so that files of another run are
noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from odeum.errors import OdeumError

UNSEALED = "0" * 32
"""placeholder for the checksum while it is computed"""
PART_SUFFIX = ".part"
"""suffix of files that are still being written"""


class Damaged(OdeumError):
    """A file does not have the content that was written."""


def slug(spelling: str) -> str:
    """Returns a spelling such as `parallel:independent=6` as a folder name."""
    return re.sub(r"[^\w.]+", "-", spelling).strip("-")


def expanded(path: str | Path) -> Path:
    """Returns a user's path with `~` replaced by the home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise OdeumError(f"'{path}' refers to the home directory of an unknown user; give the full path") from None


def out_directory(given: str | None, default: Path) -> Path:
    """Returns the directory given by --out, or the default."""
    if given is None:
        return default
    if not given.strip() or "\0" in given:
        raise OdeumError(f"--out {given!r} is not a valid directory; give a path, or leave it out for '{default}'")
    return Path(given)


def check_directory(path: Path) -> None:
    """Raises `OdeumError` if `make_directory` would: a file is in the way, or the nearest folder takes no entries."""
    existing = next(p for p in (path, *path.parents) if os.path.lexists(p))
    if not existing.is_dir():
        raise _in_the_way(existing)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OdeumError(f"cannot write into the directory '{existing}'; give another --out")


def _in_the_way(obstacle: Path) -> OdeumError:
    what = "a link to nowhere" if obstacle.is_symlink() and not obstacle.exists() else "a file"
    return OdeumError(f"'{obstacle}' is {what}, so it cannot contain runs; give another --out")


def make_directory(path: Path) -> None:
    """Creates a directory and its parents, and removes partial files of killed writers."""
    place = current_path(path)
    try:
        place.mkdir(parents=True, exist_ok=True)
        remove_abandoned_parts(place)
    except (FileExistsError, NotADirectoryError):
        raise _in_the_way(
            next((p for p in (path, *path.parents) if os.path.lexists(p) and not p.is_dir()), path)
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        short = str(path) if len(str(path)) < 100 else f"{str(path)[:80]}… ({len(str(path))} characters)"
        raise OdeumError(f"cannot create the directory '{short}': {reason}; give another --out") from None


@contextlib.contextmanager
def new_directory(given: str | Path) -> Generator[Path]:
    """Yields a temporary directory that becomes the given directory when the block ends; it must be new or empty.

    The target is created and locked first, so that an impossible name or a second process is refused before any work.
    """
    if not str(given).strip() or "\0" in str(given):
        raise OdeumError(f"{str(given)!r} is not a valid directory; give a path")
    target = expanded(given).absolute()
    if os.path.exists(target) and not (os.path.isdir(target) and not any(target.iterdir())):
        raise OdeumError(f"'{given}' already exists and is not empty; give a new or an empty directory")
    missing = [path for path in (target, *target.parents) if not os.path.lexists(path)]
    make_directory(target)
    part = _part_name(target)
    try:
        with lock_directory(target) as held:
            remove_abandoned_parts(target.parent)
            part.mkdir()
            with _locked(part):
                yield part
            if any(held.place.iterdir()):
                raise OdeumError(f"another process has written to '{given}' in the meantime; give another directory")
            held.check()
            part.rename(target.resolve())  # an empty directory gives way to it, at once
        sync(target.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with contextlib.suppress(OSError):
            for directory in missing:
                directory.rmdir()
        raise


# directories that this process holds


class OpenDirectory:
    """A directory that this process writes to through its file descriptor, even if it is renamed."""

    def __init__(self, path: Path) -> None:
        try:
            self.number = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise OdeumError(f"cannot open the directory '{path}': {error.strerror}; give another --out") from None
        self.name, self.path = path, path.absolute()
        self.prefix = os.path.join(self.path, "")
        self.run_id: str | None = None
        self.bound = False
        """whether records written here carry the run's id, and records read here must have it"""
        link = Path(f"/proc/self/fd/{self.number}")
        self.place = link if link.is_dir() else self.path
        """the directory through its descriptor on Linux; elsewhere its path, which is checked before every write"""

    def bind(self, run_id: str | None) -> None:
        """Sets the run id of records written here from now on (None: no id)."""
        self.run_id, self.bound = run_id, True

    def check(self) -> None:
        """Raises `Moved` if the path now names another directory, or none."""
        opened = os.fstat(self.number)
        try:
            current = os.stat(self.path)
        except OSError:
            current = None
        if current is not None and os.path.samestat(current, opened):
            return
        where = ""
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{self.number}")
            where = "" if target.endswith(" (deleted)") or not os.path.isdir(target) else f" to '{target}'"
        fate = f"moved away{where}" if where or opened.st_nlink else "removed"
        now = "" if current is None else ", and another directory is in its place"
        todo = "continue the run there with --out" if where else "give another --out, or start again"
        raise Moved(f"'{self.name}' was {fate} while this process wrote to it{now}; nothing more is written: {todo}")


class Moved(OdeumError):
    """A directory was moved, removed or replaced while it was written to."""


_held: list[OpenDirectory] = []


def find_open_directory(path: Path) -> OpenDirectory | None:
    """Returns the innermost open directory that contains a path, or None."""
    if not _held:
        return None
    name = os.path.join(_absolute(path), "")
    inside = [held for held in _held if name.startswith(held.prefix)]
    return max(inside, key=lambda held: len(held.prefix), default=None)


def _absolute(path: Path) -> str:
    """`path.absolute()` as text: comparing texts is much faster than comparing the parts of two paths."""
    return str(path if path.is_absolute() else path.absolute())


def current_path(path: Path) -> Path:
    """Returns the path to use for a file operation: through the descriptor if this process holds the directory open.

    Raises `Moved` if that directory was moved, removed or replaced.
    """
    held = find_open_directory(path)
    if held is None:
        return path
    held.check()
    return held.place / _absolute(path)[len(held.prefix) :]


@contextlib.contextmanager
def open_directory(directory: Path) -> Generator[OpenDirectory]:
    """Opens a directory without locking it, as worker processes of a run do."""
    held = OpenDirectory(directory)
    _held.append(held)
    try:
        yield held
    finally:
        _held.remove(held)
        os.close(held.number)


@contextlib.contextmanager
def lock_directory(directory: Path) -> Generator[OpenDirectory]:
    """Opens and locks a directory; raises `OdeumError` if another process has it. No lock where unsupported."""
    with open_directory(directory) as held:
        try:
            import fcntl

            fcntl.flock(held.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OdeumError(
                f"another process is writing to '{directory}'; wait for it, or give another --out"
            ) from None
        except (ImportError, OSError):  # a system, or a file system, without locks
            pass
        yield held


def remove_parts(directory: Path) -> None:
    """Removes partial files of killed writers; only for the process that has locked the directory."""
    for path in current_path(directory).glob(f".*{PART_SUFFIX}"):
        with contextlib.suppress(OSError):
            path.unlink()


def remove_abandoned_parts(directory: Path) -> None:
    """Removes partial files and directories whose writer no longer runs and holds no lock."""
    for path in directory.glob(f".*{PART_SUFFIX}"):
        match = re.fullmatch(rf"\.(\d+)-[0-9a-f]{{8}}{re.escape(PART_SUFFIX)}", path.name)
        if match is None or _is_running(int(match[1])):
            continue
        with contextlib.suppress(OSError, ImportError), _locked(path, must=True):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # a process of another user
        return True
    return True


def _part_name(path: Path) -> Path:
    return path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}")


@contextlib.contextmanager
def _locked(path: Path, must: bool = False) -> Generator[None]:
    """Locks a file or directory through a descriptor; with `must`, raises `OSError` if it cannot be locked."""
    try:
        import fcntl
    except ImportError:
        if must:
            raise
        yield
        return
    number = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if must:
                raise
        yield
    finally:
        os.close(number)


# writing

_unsynced: ContextVar[set[Path] | None] = ContextVar("unsynced", default=None)


@contextlib.contextmanager
def sync_together() -> Generator[set[Path]]:
    """Syncs each directory that files are written to in the block once, at its end, not after every file.

    Each file is synced before it gets its name all the same, so no file is ever seen in part. Yields the directories
    still to be synced; a caller that syncs one later may remove it.
    """
    directories: set[Path] = set()
    token = _unsynced.set(directories)
    try:
        yield directories
    finally:
        _unsynced.reset(token)
    for directory in directories:
        sync(directory)


@contextlib.contextmanager
def atomic_write(path: Path) -> Generator[IO[bytes]]:
    """Yields a file that gets its name once all of it is on the disk; the temporary name is unique."""
    target = current_path(path)
    part = _part_name(target)
    try:
        with contextlib.ExitStack() as lock:
            with open(part, "xb") as file:
                lock.enter_context(_locked(part))
                yield file
                file.flush()
                os.fsync(file.fileno())
            current_path(path)  # writing may have taken long
            os.replace(part, target)
        if (unsynced := _unsynced.get()) is None:
            sync(target.parent)
        else:
            unsynced.add(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):  # a disk that takes no file may not give one up either
            part.unlink(missing_ok=True)
        if isinstance(error, OSError | ValueError) and not isinstance(error, OdeumError):
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise OdeumError(f"cannot write '{path}': {reason}") from None
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically: readers never see part of it, even after a power failure."""
    with atomic_write(path) as file:
        file.write(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a sealed JSON object, with the run's id inside the directory of a run."""
    text = json.dumps({**content, **run_id_entry(path), "checksum": UNSEALED}, indent=1, ensure_ascii=False) + "\n"
    # Bytes of a file's name that are no UTF-8 become what JSON escapes them as.
    write_sealed(path, text.encode(errors="backslashreplace"))


def write_sealed(path: Path, head: bytes, body: Iterable[bytes | memoryview] = ()) -> None:
    """Writes `head` and `body`, then puts the checksum of both in place of the last zeros in `head`."""
    place = head.rindex(UNSEALED.encode())
    taken = _hash(head)
    with atomic_write(path) as file:
        file.write(head)
        for part in body:
            taken.update(part)
            file.write(part)
        file.seek(place)
        file.write(taken.hexdigest().encode())


def run_id_entry(path: Path) -> dict[str, str]:
    """Returns the record entry with the run's id; empty outside a run that this process writes."""
    held = find_open_directory(path)
    return {} if held is None or held.run_id is None else {"run_id": held.run_id}


def begin_run(directory: Path) -> None:
    """Starts a new run in an open directory: records written there from now on carry its id."""
    held = find_open_directory(directory)
    assert held is not None
    held.bind(secrets.token_hex(8))


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
        with open(current_path(path), "ab+") as file:
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
    """Flushes a file, or the entries of a directory, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# reading


def _hash(begin: bytes = b"") -> Any:
    return hashlib.blake2b(begin, digest_size=len(UNSEALED) // 2)


def checksum(content: bytes) -> str:
    """Returns the checksum of bytes that do not contain it."""
    return _hash(content).hexdigest()


def check_seal(path: Path, seal: object, head: bytes, body: Iterable[bytes] = (), run_id: object = None) -> None:
    """Raises `Damaged` if a file was changed, or belongs to another run than the open directory.

    Files without checksum and run id come from other libraries and are accepted.
    """
    held = find_open_directory(path)
    if held is not None and held.bound and run_id != held.run_id:
        raise Damaged(f"'{path}' {_of_another(run_id)} than run.json beside it")
    if seal is None and run_id is None:
        return
    if isinstance(seal, str) and re.fullmatch(rf"[0-9a-f]{{{len(UNSEALED)}}}", seal):
        before, match, after = head.rpartition(seal.encode())
        digest = _hash(before + UNSEALED.encode() + after)
        for part in body:
            digest.update(part)
        if match and digest.hexdigest() == seal:
            return
    raise Damaged(f"'{path}' is damaged: its content does not match its checksum, so it is not what was written")


def _of_another(run_id: object) -> str:
    return "names no run, so it is of another run" if run_id is None else f"is of another run ({run_id})"


def check_one_run(run_ids: Mapping[Path, object]) -> None:
    """Raises `Damaged` if files in one directory belong to different runs."""
    (first, run_id), *others = run_ids.items()
    for path, other in others:
        if other != run_id:
            named = "which names none" if run_id is None else run_id
            raise Damaged(
                f"'{path}' {_of_another(other)} than {first.name} beside it ({named}): files of two runs were mixed; "
                "copy one run whole"
            )


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a sealed file."""
    raw, content = _parsed(path)
    check_seal(path, content.pop("checksum", None), raw, run_id=content.get("run_id"))
    return content


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | Damaged]]:
    """Yields the number and object of each line of a .jsonl file; for a damaged line, its error."""
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
    if not os.path.lexists(current_path(path)):
        raise OdeumError(f"'{path.parent}' is not a finished run: it has no {path.name}")
    raw = read_bytes(path)
    return raw, _object(path, raw)


def _object(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw.decode("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        return content
    except RecursionError:
        raise Damaged(f"'{path}' is damaged: it is nested too deeply") from None
    except ValueError as error:
        raise Damaged(f"'{path}' is damaged: {error}") from None


def read_bytes(path: Path) -> bytes:
    """Returns the content of a regular file; raises `Damaged` for pipes, devices and directories."""
    place = current_path(path)
    try:
        if place.exists() and not place.is_file():
            raise Damaged(f"cannot read '{path}': it is {'a directory' if place.is_dir() else 'no regular file'}")
        return place.read_bytes()
    except OSError as error:
        raise Damaged(f"cannot read '{path}': {error.strerror}") from None
