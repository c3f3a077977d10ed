"""List and read a user's files, with errors that name the file and the place.

Does not import torch: the options of a command depend on a first look at the data.
"""

from __future__ import annotations

import csv
import itertools
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from odeum.errors import OdeumError, notice
from odeum.models.limits import available_memory

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
TABLE_SUFFIXES = {".csv", ".tsv", ".jsonl", ".json"}
TEXT_SUFFIXES = {".txt", ".text", ".md", ".tokens", ".raw"}
DATA_SUFFIXES = IMAGE_SUFFIXES | TABLE_SUFFIXES | TEXT_SUFFIXES

_UNPACK = "unpack it first"
_AS_TABLE = "save it as .csv, .tsv or .jsonl"
_AS_TEXT = "save its text as .txt"
_ARRAYS = "give images as files, one sub-folder per class, or texts as a table or .txt"
_ARRAY = "give a folder with only images.npy and labels.npy, or an .npz of both"
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "compressed by gzip", _UNPACK),
    (b"BZh", "compressed by bzip2", _UNPACK),
    (b"\xfd7zXZ", "compressed by xz", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", _UNPACK),
    (b"7z\xbc\xaf", "a 7z archive", _UNPACK),
    (b"Rar!", "a RAR archive", _UNPACK),
    (b"PAR1", "a Parquet table", _AS_TABLE),
    (b"ARROW1", "an Arrow table", _AS_TABLE),
    (b"SQLite format 3", "an SQLite database", _AS_TABLE),
    (b"\x89HDF", "an HDF5 file", _ARRAYS),
    (b"\x93NUMPY", "a NumPy array", _ARRAY),
    (b"%PDF-", "a PDF", _AS_TEXT),
    (b"{\\rtf", "an RTF document", _AS_TEXT),
    (b"\xd0\xcf\x11\xe0", "an old Office document", f"{_AS_TEXT}, or as .csv if it is a table"),
    (b"\x89PNG", "an image", "give a folder with one sub-folder of images per class"),
    (b"\xff\xd8\xff", "an image", "give a folder with one sub-folder of images per class"),
    (b"GIF8", "an image", "give a folder with one sub-folder of images per class"),
    (b"\xff\xfe", "text in UTF-16", "convert it with iconv -f utf-16 -t utf-8"),
    (b"\xfe\xff", "text in UTF-16", "convert it with iconv -f utf-16 -t utf-8"),
)
"""first bytes of files that are not plain text, what they are, and what to do"""
ZIPPED = {
    ".npz": ("a file of NumPy arrays", _ARRAYS),
    ".xlsx": ("an Excel workbook", _AS_TABLE),
    ".ods": ("a spreadsheet", _AS_TABLE),
    ".docx": ("a Word document", _AS_TEXT),
    ".odt": ("a document", _AS_TEXT),
    ".epub": ("an EPUB book", _AS_TEXT),
    ".pt": ("a PyTorch file", _ARRAYS),
}
WINDOWS_SIGNS = "€‚„…‘’“”•–—°«»§£©®´·¡¿ªº½¼²³"
"""cp1252 characters beyond letters that occur in Western texts"""
DELIMITERS = ",;|\t"
"""delimiters of a .csv, the usual one first"""
LOOK = 1 << 16  # bytes at the beginning of a file by which its format is recognised


def entries(folder: Path) -> list[Path]:
    """The entries of a folder in sorted order, without hidden ones."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise OdeumError(f"'{folder}' cannot be read as a folder: {error.strerror}") from None


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and its sub-folders except hidden ones; links are followed, cycles are refused.

    Includes pipes and broken links with the extension of a data file, so that reading them raises an error.
    """
    yield from _walk(folder, (folder.resolve(),))


def _walk(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    for path in entries(folder):
        if path.is_file() or (not path.is_dir() and path.suffix.lower() in DATA_SUFFIXES):
            yield path
        elif path.is_dir():
            real = path.resolve()
            if real in above or real in above[0].parents:
                raise OdeumError(f"'{path}' is a link to '{real}', which contains it; remove the link")
            yield from _walk(path, (*above, real))


def half_characters(text: str) -> bool:
    """Whether a text contains an unpaired surrogate, which no encoding can write."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def regular(path: Path) -> Path:
    """The path if it is a regular file; raises `OdeumError` for pipes, devices and folders."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise OdeumError(f"there is no file '{path}'") from None
    except (OSError, ValueError) as error:
        raise OdeumError(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISREG(mode):
        return path
    if stat.S_ISDIR(mode):
        raise OdeumError(f"'{path}' is a folder, where a file was expected; give the files in it")
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"), (stat.S_ISSOCK, "socket"))
    what = next((name for test, name in kinds if test(mode)), "special file")
    raise OdeumError(f"'{path}' is a {what}, not a regular file; save its output to a file first")


def foreign_format(head: bytes, suffix: str) -> tuple[str, str] | None:
    """Format of a file and what to do, by its first bytes; None if it may be plain text."""
    if head.startswith(b"PK\x03\x04"):
        return ZIPPED.get(suffix, ("a ZIP archive", _UNPACK))
    if head.startswith(b"RIFF"):
        return "an image or a recording", _ARRAYS
    form = next(((what, remedy) for start, what, remedy in SIGNATURES if head.startswith(start)), None)
    if form is None and b"\0" in head:
        return "a binary file", "give plain text in UTF-8"
    return form


def refuse_foreign(path: Path) -> None:
    """Raise `OdeumError` for a file that is not plain text, such as an archive or a PDF."""
    with _opened(regular(path)) as file:
        try:
            head = file.read(LOOK)
        except OSError as error:
            raise OdeumError(f"'{path}' cannot be read: {error.strerror}") from None
        _refuse(path, head)


def read_whole(path: Path) -> bytes:
    """The content of a regular file; raises `OdeumError` if it does not fit into memory."""
    size = regular(path).stat().st_size
    memory = available_memory()
    if 3 * size > memory:  # the bytes, the decoded text and its tokens
        raise OdeumError(f"'{path}' has {size / 1e9:.3g} GB, too much for the {memory / 1e9:.3g} GB of memory here")
    with _opened(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """The content of a UTF-8 file with \\n as line end; an error names the offset of a byte that is not UTF-8."""
    raw = read_whole(path)
    if is_utf16(raw):
        return _as_text(path, raw, "utf-16")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise OdeumError(f"'{path}' begins as text in UTF-16 but is truncated or damaged; save it as UTF-8")
    _refuse(path, raw[:LOOK])
    try:
        text = _with_line_ends(raw.decode())
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data" and error.end == len(raw)  # within a character
        if not cut and (text := _mixed_lines(raw)) is not None:
            notice(f"'{path}' mixes UTF-8 and cp1252 (Windows); each of its lines is read as what it is")
            return text
        if not cut and _may_be_windows(raw):
            notice(f"'{path}' is not UTF-8 and is read as cp1252 (Windows); --data.encoding names another encoding")
            return _as_text(path, raw, "cp1252")
        raise OdeumError(
            f"'{path}' is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}; convert it, "
            "for example with iconv -t utf-8"
        ) from None
    if (place := raw.find(b"\0")) >= 0:
        raise OdeumError(f"'{path}' is not plain text: it has a zero byte at offset {place}")
    if not text.strip():
        raise OdeumError(f"'{path}' is empty")
    return text


def is_utf16(raw: bytes) -> bool:
    """Whether bytes begin with a UTF-16 byte-order mark and decode as UTF-16."""
    if not raw.startswith((b"\xff\xfe", b"\xfe\xff")) or len(raw) % 2:
        return False
    try:
        return "\0" not in raw.decode("utf-16")
    except UnicodeDecodeError:
        return False


def _may_be_windows(raw: bytes) -> bool:
    """Whether bytes look like cp1252 text of a Western language: few letters beyond ASCII, no control characters."""
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:
        return False
    letters = sum(letter.isalpha() for letter in text)
    beyond = [letter for letter in text if letter > "\x7f"]
    odd = sum(not ((letter.isalpha() and letter not in "ÿþÞðÐ") or letter in WINDOWS_SIGNS) for letter in beyond)
    controls = any(letter < " " and letter not in "\t\n\r\f" for letter in text)
    return not controls and len(beyond) < 0.3 * max(letters, 1) and odd <= 0.2 * len(beyond)


def _mixed_lines(raw: bytes) -> str | None:
    """The text of files of two encodings joined: some lines are UTF-8 beyond ASCII, others cp1252; None otherwise."""
    lines, both = [], [0, 0]
    for line in raw.split(b"\n"):
        try:
            lines.append(line.decode())
            both[0] += not line.isascii()
        except UnicodeDecodeError:
            if not _may_be_windows(line):
                return None
            lines.append(line.decode("cp1252"))
            both[1] += 1
    return _with_line_ends("\n".join(lines)) if min(both) > 0 else None


def _with_line_ends(text: str) -> str:
    """The text without a byte-order mark and with \\n as line end; \\r alone ends a line if it does so everywhere."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")


def _as_text(path: Path, raw: bytes, encoding: str) -> str:
    text = _with_line_ends(raw.decode(encoding))
    if not text.strip():
        raise OdeumError(f"'{path}' is empty")
    return text


def read_lines(path: Path) -> list[str]:
    """Lines without line ends; only \\n ends a line, unlike in `str.splitlines`."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def rows_of(path: Path) -> Iterator[str]:
    """Lines with line ends, which `csv` needs to keep quoted line breaks."""
    yield from map(str.__add__, read_text(path).split("\n"), itertools.repeat("\n"))


def table_rows(file: Iterator[str], suffix: str) -> Iterator[list[str]]:
    """Rows of an open CSV (quoted; the most frequent delimiter of the first line) or TSV (unquoted)."""
    if suffix == ".tsv":
        return (line.rstrip("\r\n").split("\t") for line in file)
    first = next(file, "")
    if stated := re.fullmatch(r'"?sep=(.)"?\s*', first):  # Excel's line about the delimiter
        return csv.reader(file, delimiter=stated[1])
    delimiter = max(DELIMITERS, key=first.count)
    return csv.reader(itertools.chain([first], file), delimiter=delimiter)


def _opened(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise OdeumError(f"'{path}' cannot be read: {error.strerror}") from None


def _refuse(path: Path, head: bytes) -> None:
    if path.suffix.lower() in TABLE_SUFFIXES | TEXT_SUFFIXES and is_utf16(head[: len(head) // 2 * 2]):
        return
    if form := foreign_format(head, path.suffix.lower()):
        raise OdeumError(f"'{path}' is {form[0]}, not plain text; {form[1]}")
