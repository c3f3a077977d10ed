"""A user's files: found in a fixed order, known by what they are, and read in words that say which is wrong and where.

Nothing here needs torch: the first look at the data decides which options a command has.
"""

from __future__ import annotations

import csv
import itertools
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
_ARRAYS = "give images as files, one sub-folder a class, or texts as a table or .txt"
_ARRAY = "give the folder that holds images.npy and labels.npy and nothing else, or an .npz of both"
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
    (b"\x93NUMPY", "an array of NumPy", _ARRAY),
    (b"%PDF-", "a PDF", _AS_TEXT),
    (b"{\\rtf", "a document in RTF", _AS_TEXT),
    (b"\xd0\xcf\x11\xe0", "an old Office document", f"{_AS_TEXT}, or as .csv if it is a table"),
    (b"\x89PNG", "an image", "give the folder that holds one sub-folder of images a class"),
    (b"\xff\xd8\xff", "an image", "give the folder that holds one sub-folder of images a class"),
    (b"GIF8", "an image", "give the folder that holds one sub-folder of images a class"),
    (b"\xff\xfe", "text in UTF-16", "convert it with iconv -f utf-16 -t utf-8"),
    (b"\xfe\xff", "text in UTF-16", "convert it with iconv -f utf-16 -t utf-8"),
)
"""how files begin that are no plain text, what they are, and what to do"""
ZIPPED = {
    ".npz": ("a file of NumPy arrays", _ARRAYS),
    ".xlsx": ("an Excel workbook", _AS_TABLE),
    ".ods": ("a spreadsheet", _AS_TABLE),
    ".docx": ("a Word document", _AS_TEXT),
    ".odt": ("a document", _AS_TEXT),
    ".epub": ("a book in EPUB", _AS_TEXT),
    ".pt": ("a file of PyTorch", _ARRAYS),
}
WINDOWS_SIGNS = "€‚„…‘’“”•–—°«»§£©®´·¡¿ªº½¼²³"
"""signs of cp1252 that texts of Western languages hold"""
LOOK = 1 << 16  # bytes at the beginning of a file that tell what it is


def entries(folder: Path) -> list[Path]:
    """What a folder holds, in a fixed order, hidden files left out."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise OdeumError(f"'{folder}' cannot be read as a folder: {error.strerror}") from None


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and the folders in it, but hidden ones; links are followed, never in a circle.

    What is named like data but is no regular file (a pipe, a link to nowhere) is among them: who reads it says so.
    """
    yield from _walk(folder, (folder.resolve(),))


def _walk(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    for path in entries(folder):
        if path.is_file() or (not path.is_dir() and path.suffix.lower() in DATA_SUFFIXES):
            yield path
        elif path.is_dir():
            real = path.resolve()
            if real in above or real in above[0].parents:
                raise OdeumError(f"'{path}' is a link back to '{real}', which holds it; take it out")
            yield from _walk(path, (*above, real))


def half_characters(text: str) -> bool:
    """Whether there is half of a pair of surrogates in a text, which is no character: such a text cannot be written."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def regular(path: Path) -> Path:
    """The path of a file that can be read from beginning to end; a pipe, a device or a folder is named."""
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
    raise OdeumError(f"'{path}' is a {what} and not a regular file; save what it gives to a file first")


def foreign_format(head: bytes, suffix: str) -> tuple[str, str] | None:
    """What a file is that is no plain text, and what to do, told by its first bytes; none if it may be text."""
    if head.startswith(b"PK\x03\x04"):
        return ZIPPED.get(suffix, ("a ZIP archive", _UNPACK))
    if head.startswith(b"RIFF"):
        return "an image or a recording", _ARRAYS
    found = next(((what, remedy) for start, what, remedy in SIGNATURES if head.startswith(start)), None)
    if found is None and b"\0" in head:
        return "a binary file", "give plain text in UTF-8"
    return found


def refuse_foreign(path: Path) -> None:
    """A sentence for a file that is no plain text: archives, Parquet, PDF and the like would be read as prose."""
    with _opened(regular(path)) as file:
        _refuse(path, file.read(LOOK))


def read_whole(path: Path) -> bytes:
    """A whole regular file, unless it is larger than the memory."""
    size = regular(path).stat().st_size
    memory = available_memory()
    if 3 * size > memory:  # the bytes, the text, and what is made of it
        raise OdeumError(f"'{path}' has {size / 1e9:.3g} GB, too much for the {memory / 1e9:.3g} GB of memory here")
    with _opened(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """A whole UTF-8 file, its lines ended by \\n alone; a byte that is not UTF-8 is named with its offset."""
    raw = read_whole(path)
    if is_utf16(raw):
        return _as_text(path, raw, "utf-16")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise OdeumError(f"'{path}' begins as text in UTF-16 but is cut or damaged; save it as UTF-8")
    _refuse(path, raw[:LOOK])
    try:
        text = raw.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data" and error.end == len(raw)  # within a character
        if not cut and _may_be_windows(raw):
            notice(f"'{path}' is not UTF-8 and is read as cp1252 (Windows); --data.encoding names another encoding")
            return _as_text(path, raw, "cp1252")
        raise OdeumError(
            f"'{path}' is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}; convert it, "
            "for example with iconv -t utf-8"
        ) from None
    if (place := raw.find(b"\0")) >= 0:
        raise OdeumError(f"'{path}' is no plain text: it has a zero byte at offset {place}")
    if not text.strip():
        raise OdeumError(f"'{path}' is empty")
    return text


def is_utf16(raw: bytes) -> bool:
    """Whether bytes begin with the mark of UTF-16, as Excel and Notepad write it, and decode as such."""
    if not raw.startswith((b"\xff\xfe", b"\xfe\xff")) or len(raw) % 2:
        return False
    try:
        return "\0" not in raw.decode("utf-16")
    except UnicodeDecodeError:
        return False


def _may_be_windows(raw: bytes) -> bool:
    """Whether bytes read like a Windows text of a Western language: few letters beyond ASCII, and no controls."""
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:
        return False
    letters = sum(letter.isalpha() for letter in text)
    beyond = [letter for letter in text if letter > "\x7f"]
    odd = sum(
        not ((letter.isalpha() and letter not in "ÿþÞðÐ") or letter in "€‚„…‘’“”•–—°«»§£©®´·¡¿ªº½¼²³")
        for letter in beyond
    )
    controls = any(letter < " " and letter not in "\t\n\r\f" for letter in text)
    return not controls and len(beyond) < 0.3 * max(letters, 1) and odd <= 0.2 * len(beyond)


def _as_text(path: Path, raw: bytes, encoding: str) -> str:
    text = raw.decode(encoding).removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.strip():
        raise OdeumError(f"'{path}' is empty")
    return text


def read_lines(path: Path) -> list[str]:
    """Lines without their ends; only \\n ends a line (U+0085 and the like are part of the text)."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def rows_of(path: Path) -> Iterator[str]:
    """Lines with their \\n, for csv, which needs them to keep quoted line breaks."""
    for line in read_text(path).split("\n"):
        yield line + "\n"


def table_rows(file: Iterator[str], suffix: str) -> Iterator[list[str]]:
    """The rows of an open CSV (quoted, comma or semicolon) or TSV (unquoted)."""
    if suffix == ".tsv":
        return (line.rstrip("\r\n").split("\t") for line in file)
    first = next(file, "")
    delimiter = ";" if first.count(";") > first.count(",") else ","
    return csv.reader(itertools.chain([first], file), delimiter=delimiter)


def _opened(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise OdeumError(f"'{path}' cannot be read: {error.strerror}") from None


def _refuse(path: Path, head: bytes) -> None:
    if path.suffix.lower() in TABLE_SUFFIXES | TEXT_SUFFIXES and is_utf16(head[: len(head) // 2 * 2]):
        return
    if found := foreign_format(head, path.suffix.lower()):
        raise OdeumError(f"'{path}' is {found[0]}, not plain text; {found[1]}")
