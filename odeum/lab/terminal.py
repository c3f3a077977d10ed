"""Output to terminals: escapes control characters and replaces characters that the encoding lacks.

Labels, file names, prompts and predictions are untrusted. While a verb runs, standard output and standard error are
wrapped, so that call sites need not escape anything.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Generator
from typing import Any, TextIO

from odeum.errors import OdeumError

# Control characters except tab and line feed, bidirectional embeddings, overrides and isolates, line separators, and
# surrogates (bytes of file names that are not text).
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

NARROWEST = 20
"""width below which lines are not wrapped"""
PLAINER = {
    **{"×": "x", "·": ".", "−": "-", "–": "-", "—": "-", "±": "+/-", "…": "...", "‑": "-"},
    **{"←": "<-", "→": "->", "↦": "->", "≈": "~", "≤": "<=", "≥": ">=", "∈": "in", "√": "sqrt", "∞": "inf"},
    **{"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "✓": "ok", "½": "1/2", "∘": "o", "⊙": "*", "∑": "sum"},
    **{"─": "-", "━": "-", "│": "|", "╷": " ", "╵": " ", "•": "*", "ℝ": "R"},
    **{"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "eps", "θ": "theta", "λ": "lambda", "μ": "mu"},
    **{"σ": "sigma", "τ": "tau", "φ": "phi", "ψ": "psi", "ω": "omega", "Φ": "Phi"},
    **{"Ψ": "Psi", "Σ": "Sum", "Δ": "Delta"},
}
"""replacements of characters that an encoding lacks"""


def plain(text: str) -> str:
    """The text with control characters escaped as in JSON."""
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def not_computed(text: str) -> str:
    """A cell that a spreadsheet does not read as a formula: a quote is put in front."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and text else text


def degrade(text: str, encoding: str | None) -> str:
    """The text with characters that the encoding lacks replaced."""
    try:
        text.encode(encoding or "utf-8")
        return text
    except (UnicodeEncodeError, LookupError):
        return "".join(_letter(letter, encoding or "ascii") for letter in text)


def _letter(letter: str, encoding: str) -> str:
    bare = "".join(c for c in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(c))
    for wish in (letter, PLAINER.get(letter, bare), bare):
        with contextlib.suppress(UnicodeEncodeError, LookupError):
            wish.encode(encoding)
            return wish
    return "?"


def readable(text: str, stream: TextIO) -> str:
    """The text with control characters escaped, in the encoding of the stream."""
    return degrade(plain(text), getattr(stream, "encoding", None))


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON for standard output, in ASCII unless that is UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return json.dumps(content, indent=indent, ensure_ascii=encoding != "utf8")


def fitting(line: str, columns: int) -> str:
    """A line truncated to the number of columns, counting wide and combining characters."""
    room, letters = columns, []
    for letter in line:
        room -= 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            break
        letters.append(letter)
    return "".join(letters)


def wrapped(text: str, columns: int) -> str:
    """Wrap long lines between words."""
    if len(text) <= columns:
        return text
    lines = text.split("\n")
    return "\n".join(_folded(line, columns) if len(line) > columns else line for line in lines)


def _folded(line: str, columns: int) -> str:
    """Wrap one line; words longer than the width are not broken."""
    if not line.strip() or columns < NARROWEST:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(),
        columns,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def terminal_width(stream: TextIO) -> int:
    """Number of columns of the terminal of a stream."""
    with contextlib.suppress(OSError, ValueError):
        if columns := os.get_terminal_size(stream.fileno()).columns:
            return columns
    return shutil.get_terminal_size().columns


def beneath(stream: TextIO) -> TextIO:
    """The unwrapped stream, for code that writes terminal commands, such as live lines and colours."""
    return stream.stream if isinstance(stream, Guarded) else stream


held_lines: list[str] = []
"""lines for standard error that are held back until other output"""


def print_held_lines() -> None:
    """Write the lines that were held back."""
    waiting, held_lines[:] = list(held_lines), []
    for line in waiting:
        print(line, file=sys.stderr)


class LiveLine:
    """A status line that is overwritten in a terminal; elsewhere every line is kept."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.quiet = False

    def write(self, line: str, stay: bool) -> None:
        """Overwrite the line; `stay` ends it."""
        if self.quiet:
            return
        print_held_lines()
        try:
            stream = beneath(self.stream)
            line = readable(line, stream)
            if self.live:  # a wrapped line could not be overwritten
                line = "\r\x1b[2K" + (line if stay else fitting(line, terminal_width(stream) - 1))
            stream.write(line + ("\n" if stay or not self.live else ""))
            stream.flush()
        except BrokenPipeError:  # the reader is gone; the work continues
            self.quiet = True

    def clear(self) -> None:
        """Clear the line."""
        if self.live and not self.quiet:
            beneath(self.stream).write("\r\x1b[2K")


class Guarded:
    """A stream that escapes control characters and raises `OdeumError` if it cannot be written."""

    def __init__(self, stream: TextIO, name: str, wraps: bool = False) -> None:
        self.stream, self.title, self.wraps = stream, name, wraps

    def write(self, text: str) -> int:
        """Write the escaped text; wraps lines of standard error in a terminal."""
        if held_lines:
            print_held_lines()
        lines = wrapped(text, terminal_width(self.stream)) if self.wraps and self.stream.isatty() else text
        with self._errors():
            self.stream.write(readable(lines, self.stream))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with self._errors():
            self.stream.flush()

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            mute(self.stream)
            raise OdeumError(f"cannot write to {self.title}: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        """All other attributes are those of the stream."""
        return getattr(self.stream, name)


def mute(stream: TextIO) -> None:
    """Discard further output, also that at interpreter exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def guarded() -> Generator[None]:
    """Context in which standard output and standard error are wrapped; a missing one is replaced by a null device."""
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as held:
        out, err = (stream or held.enter_context(open(os.devnull, "w", encoding="utf-8")) for stream in before)
        strict = [(stream, stream.errors) for stream in (out, err) if isinstance(stream, io.TextIOWrapper)]
        for stream, _ in strict:
            stream.reconfigure(errors="replace")  # also for the unwrapped stream
        sys.stdout, sys.stderr = Guarded(out, "standard output"), Guarded(err, "standard error", wraps=True)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            for stream, errors in strict:
                with contextlib.suppress(ValueError, OSError):
                    stream.reconfigure(errors=errors)
