"""Unpack data into the cache: gzip, ZIP, Parquet, NumPy arrays, folders written by `Dataset.save_to_disk`.

Unpacked bytes are counted while they are written, so that a small file cannot fill a disk; nothing is unpickled.
Formats that are not unpacked here are refused when they are read (see `files`).
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from odeum.errors import OdeumError, set_display_name
from odeum.lab.data.files import DATA_SUFFIXES, IMAGE_SUFFIXES, TEXT_SUFFIXES, regular
from odeum.lab.data.homes import cache
from odeum.models.limits import SWITCH, limits_off, refuse_above

RATIO = 200
"""largest allowed ratio of unpacked to packed bytes; texts reach about 10, decompression bombs 1,000"""
ALWAYS_ALLOWED = 100e6
"""unpacked bytes that are allowed whatever the ratio"""
MEMBERS = 5_000_000
"""largest number of files in an archive"""
CHUNK = 1 << 20
_ZIP = b"PK\x03\x04"


class UnpackedSize:
    """Counts unpacked bytes as they are written; raises `OdeumError` above the limit."""

    def __init__(self, *archives: Path) -> None:
        self.archive = archives[0] if archives else Path("an empty data set")
        packed = sum(path.stat().st_size for path in archives)
        self.left = max(ALWAYS_ALLOWED, RATIO * float(packed))

    def take(self, size: int) -> None:
        """Count `size` more bytes."""
        self.left -= size
        if self.left < 0 and not limits_off():
            raise OdeumError(
                f"'{self.archive}' unpacks to more than {RATIO} times its size; to unpack it anyway, set {SWITCH}=off"
            )

    def count(self, members: int) -> None:
        """Check the number of files in an archive."""
        refuse_above(members, MEMBERS, f"'{self.archive}'", f"{members:,} files")


def plain_files(path: Path, encoding: str | None = None) -> Path:
    """The path, or the path of its unpacked content; converts texts of another encoding to UTF-8."""
    for fits, unpack, what in PACKED_FORMS:
        if fits(path):
            path = _kept(path, lambda packed, out, write=unpack: write(packed, out), what)
            break
    if encoding is None:
        return path
    try:
        "".encode(encoding)
    except (LookupError, UnicodeError):  # Python's codec `undefined` raises UnicodeError
        raise OdeumError(
            f"unknown encoding '{encoding}'; give one that Python knows, such as latin-1 or utf-16"
        ) from None
    return _kept(path, lambda plain, out: _as_utf8(plain, out, encoding), f"text in {encoding}", encoding)


def _kept(path: Path, unpack: Callable[[Path, Path], None], what: str, more: str = "") -> Path:
    """The unpacked content of a path, in the cache by its state; safe with several processes."""
    home = cache() / "unpacked" / _state(path, more)
    if not home.exists():
        part = home.with_name(f"{home.name}.{os.getpid()}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        set_display_name(part, path)
        try:
            unpack(path, part)
            part.rename(home)
        except MemoryError:
            raise
        except Exception as error:  # damaged data raises all kinds of errors in the libraries
            if home.exists():  # another process was first
                return _called(home, path)
            if isinstance(error, OdeumError):
                raise
            raise OdeumError(f"'{path}' is {what} that cannot be read: {error}") from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return _called(home, path)


def _called(home: Path, path: Path) -> Path:
    """The unpacked content, with the display name of the packed file in messages."""
    inside = _inside(home)
    set_display_name(home, path)
    if inside.is_file() and path.suffix.lower() != ".zip":
        set_display_name(inside, path)  # one file became one file
    return inside


def _state(path: Path, more: str) -> str:
    """Hash of path, sizes and modification times."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    return hashlib.blake2b(repr((str(path.resolve()), stats, more)).encode(), digest_size=12).hexdigest()


def _inside(home: Path) -> Path:
    """The only file or folder in a folder; otherwise the folder itself."""
    items = [p for p in home.iterdir() if not p.name.startswith((".", "__MACOSX"))]
    return _inside(items[0]) if len(items) == 1 and items[0].is_dir() else items[0] if len(items) == 1 else home


def _copy(source: BinaryIO, target: Path, room: UnpackedSize) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as out:
        while chunk := source.read(CHUNK):
            room.take(len(chunk))
            out.write(chunk)


def _begins(path: Path, start: bytes) -> bool:
    """Whether a file begins with these bytes."""
    with open(path, "rb") as file:
        return file.read(len(start)) == start


# gzip


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz" and Path(path.stem).suffix.lower() in DATA_SUFFIXES and path.is_file()


def _gunzip(path: Path, out: Path) -> None:
    with gzip.open(regular(path)) as source:
        _copy(source, out / path.stem, UnpackedSize(path))  # ty: ignore[invalid-argument-type]


# ZIP


def _is_zip(path: Path) -> bool:
    if path.suffix.lower() != ".zip" or not path.is_file():
        return False
    return any(PurePosixPath(name).suffix.lower() in DATA_SUFFIXES for name in _names(path))


def _names(path: Path) -> list[str]:
    """Member names of an archive; for a damaged one, names that make it be opened and reported."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return ["?.txt", "?.npy"] if _begins(path, _ZIP) else []


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open an archive; its directory is at the end, so a truncated one has none."""
    if not zipfile.is_zipfile(path):
        raise OdeumError(f"'{path}' is a truncated ZIP archive; copy or download it again")
    return zipfile.ZipFile(path)


def _unzip(path: Path, out: Path) -> None:
    room = UnpackedSize(path)
    with open_zip(path) as archive:
        room.count(len(archive.infolist()))
        names: set[str] = set()
        for member in archive.infolist():
            name = PurePosixPath(member.filename.replace("\\", "/"))
            if member.filename in names:
                raise OdeumError(f"'{path}' contains '{member.filename}' twice; pack it again")
            names.add(member.filename)
            if member.is_dir():
                continue
            if member.flag_bits & 1:
                raise OdeumError(f"'{path}' is encrypted; unpack it with its password first")
            if stat.S_ISLNK(member.external_attr >> 16):
                raise OdeumError(
                    f"'{path}' contains the link '{member.filename}', which is not followed; pack its target"
                )
            if name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
                raise OdeumError(f"'{path}' contains '{member.filename}', a path outside of it; it is not unpacked")
            with archive.open(member) as source:
                _copy(source, out / name, room)  # ty: ignore[invalid-argument-type]


# tables with the extension of a text

FEWEST_LINES = 20
"""fewest lines of a tab-separated table that is recognised"""


def _is_tab_table(path: Path) -> bool:
    """Whether a text file has equally many tabs on each of its first lines, as SMSSpamCollection."""
    if path.suffix.lower() not in (*TEXT_SUFFIXES, "") or not path.is_file():
        return False
    with open(path, "rb") as file:
        lines = [line for line in itertools.islice(file, 500) if line.strip()]
    counts = {line.count(b"\t") for line in lines}
    return len(lines) >= FEWEST_LINES and len(counts) == 1 and 0 < counts.pop() < 20 and b"\0" not in lines[0]


def _as_tsv(path: Path, out: Path) -> None:
    shutil.copyfile(path, out / f"{path.stem}.tsv")


# encodings


def _as_utf8(path: Path, out: Path, encoding: str) -> None:
    """Convert all texts and tables of a path to UTF-8; copy images unchanged."""
    files = [p for p in sorted(path.rglob("*")) if p.is_file()] if path.is_dir() else [regular(path)]
    for file in files:
        target = out / (file.relative_to(path) if path.is_dir() else file.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix.lower() in IMAGE_SUFFIXES:
            shutil.copyfile(file, target)
            continue
        try:
            with (
                open(file, encoding=encoding, newline="") as source,
                open(target, "w", encoding="utf-8", newline="") as to,
            ):
                shutil.copyfileobj(source, to, CHUNK)
        except UnicodeError as error:
            raise OdeumError(f"'{file}' is not {encoding}: {error}; name another --data.encoding") from None


def _lazily(name: str) -> Callable[[Path, Path], None]:
    """A function of `packed_tables`, which needs NumPy or pyarrow, imported on first use."""

    def unpack(path: Path, out: Path) -> None:
        from odeum.lab.data import packed_tables

        getattr(packed_tables, name)(path, out)

    return unpack


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet" and path.is_file() and _begins(path, b"PAR1")


def _is_arrays(path: Path) -> bool:
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    return any(name.endswith(".npy") for name in _names(path))


def _is_array_folder(path: Path) -> bool:
    """Whether a folder contains only .npy files."""
    if not path.is_dir():
        return False
    files = [file for file in path.iterdir() if not file.name.startswith(".")]
    return bool(files) and all(file.suffix.lower() == ".npy" and file.is_file() for file in files)


def _is_saved_dataset(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


Form = tuple[Callable[[Path], bool], Callable[[Path, Path], None], str]
PACKED_FORMS: tuple[Form, ...] = (
    (_is_tab_table, _as_tsv, "a table of columns separated by tabs"),
    (_is_gzip, _gunzip, "a gzip file"),
    (_is_zip, _unzip, "a ZIP archive"),
    (_is_parquet, _lazily("unpack_parquet"), "a Parquet table"),
    (_is_arrays, _lazily("unpack_arrays"), "a file of NumPy arrays"),
    (_is_array_folder, _lazily("unpack_array_folder"), "a folder of NumPy arrays"),
    (_is_saved_dataset, _lazily("unpack_saved_dataset"), "a data set written by save_to_disk"),
)
"""recogniser, unpacker and description of each form"""


def lines_within(lines: Iterator[str], path: Path, room: UnpackedSize) -> None:
    """Write lines and count their bytes."""
    with open(path, "w", encoding="utf-8") as out:
        for line in lines:
            room.take(len(line))
            out.write(line)
