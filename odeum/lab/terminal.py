"""The border to the terminal: what is printed cannot command it, and is readable in whatever encoding it has.

Labels, file names, prompts and predictions come from anybody. While a verb runs, standard output and standard error are
guarded, so that no call site has to think of it.
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

# All controls but tab and line feed, the marks that reorder text (Unicode's embeddings, overrides and isolates), line
# separators, and bytes of a file's name that are no text.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

NARROWEST = 20
"""columns below which lines are left to the terminal"""
PLAINER = {
    **{"×": "x", "·": ".", "−": "-", "–": "-", "—": "-", "±": "+/-", "…": "...", "‑": "-"},
    **{"←": "<-", "→": "->", "↦": "->", "≈": "~", "≤": "<=", "≥": ">=", "∈": "in", "√": "sqrt", "∞": "inf"},
    **{"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "✓": "ok", "½": "1/2", "∘": "o", "⊙": "*", "∑": "sum"},
    **{"─": "-", "━": "-", "│": "|", "╷": " ", "╵": " ", "•": "*", "ℝ": "R"},
    **{"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "eps", "θ": "theta", "λ": "lambda", "μ": "mu"},
    **{"σ": "sigma", "τ": "tau", "φ": "phi", "ψ": "psi", "ω": "omega", "Φ": "Phi"},
    **{"Ψ": "Psi", "Σ": "Sum", "Δ": "Delta"},
}
"""what stands for a letter that an encoding does not have"""


def plain(text: str) -> str:
    """The text with its commands shown, as JSON would write them, instead of obeyed."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def not_computed(text: str) -> str:
    """A cell that a spreadsheet shows and does not compute: what begins a formula stands behind a quote."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and text else text


def degrade(text: str, encoding: str | None) -> str:
    """The text in letters that the encoding has."""
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
    """What may be written there: no commands, no letters that it does not have."""
    return degrade(plain(text), getattr(stream, "encoding", None))


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON for standard output: where letters would be lost they are escaped, so that nothing is."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return json.dumps(content, indent=indent, ensure_ascii=encoding != "utf8")


def fitting(line: str, columns: int) -> str:
    """As much of a line as fits, so that a terminal need not wrap it."""
    room, kept = columns, []
    for letter in line:
        room -= 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept)


def wrapped(text: str, columns: int) -> str:
    """Long lines broken between words, so that a terminal breaks none within one; other lines stay as they are."""
    if len(text) <= columns:
        return text
    lines = text.split("\n")
    return "\n".join(_folded(line, columns) if len(line) > columns else line for line in lines)


def _folded(line: str, columns: int) -> str:
    """One line as several; a word that is longer than the terminal is wide stays whole."""
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
    """How wide the terminal is that a stream writes to."""
    with contextlib.suppress(OSError, ValueError):
        if found := os.get_terminal_size(stream.fileno()).columns:
            return found
    return shutil.get_terminal_size().columns


def beneath(stream: TextIO) -> TextIO:
    """The stream itself, for whoever has commands of their own to send: a live line, a colour."""
    return stream.stream if isinstance(stream, Guarded) else stream


held_lines: list[str] = []
"""lines for standard error that wait until anything else is written"""


def tell_held_lines() -> None:
    """Write the lines that wait."""
    waiting, held_lines[:] = list(held_lines), []
    for line in waiting:
        print(line, file=sys.stderr)


class LiveLine:
    """A line that is written over in a terminal, as wide as that is; elsewhere every line stays."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.quiet = False

    def write(self, line: str, stay: bool) -> None:
        """Write over what was there; `stay` ends the line."""
        if self.quiet:
            return
        tell_held_lines()
        try:
            stream = beneath(self.stream)
            line = readable(line, stream)
            if self.live:  # a line that wraps could not be written over
                line = "\r\x1b[2K" + (line if stay else fitting(line, terminal_width(stream) - 1))
            stream.write(line + ("\n" if stay or not self.live else ""))
            stream.flush()
        except BrokenPipeError:  # nobody reads on; the work goes on
            self.quiet = True

    def clear(self) -> None:
        """Take away a line that did not stay."""
        if self.live and not self.quiet:
            beneath(self.stream).write("\r\x1b[2K")


class Guarded:
    """A stream that writes only what is readable, and says in a sentence what it could not write."""

    def __init__(self, stream: TextIO, name: str, wraps: bool = False) -> None:
        self.stream, self.title, self.wraps = stream, name, wraps

    def write(self, text: str) -> int:
        """Write what is readable of the text; sentences for a terminal are broken between words."""
        if held_lines:
            tell_held_lines()
        shown = wrapped(text, terminal_width(self.stream)) if self.wraps and self.stream.isatty() else text
        with self._told():
            self.stream.write(readable(shown, self.stream))
        return len(text)

    def flush(self) -> None:
        """Let what was written leave."""
        with self._told():
            self.stream.flush()

    @contextlib.contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            mute(self.stream)
            raise OdeumError(f"cannot write to {self.title}: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's: its encoding, its number, whether it is a terminal."""
        return getattr(self.stream, name)


def mute(stream: TextIO) -> None:
    """Let what is still to be written there go nowhere, also when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def guarded() -> Generator[None]:
    """Guard standard output and standard error; a process that was started without one has one that goes nowhere."""
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as held:
        out, err = (stream or held.enter_context(open(os.devnull, "w", encoding="utf-8")) for stream in before)
        strict = [(stream, stream.errors) for stream in (out, err) if isinstance(stream, io.TextIOWrapper)]
        for stream, _ in strict:
            stream.reconfigure(errors="replace")  # also for what goes beneath
        sys.stdout, sys.stderr = Guarded(out, "standard output"), Guarded(err, "standard error", wraps=True)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            for stream, errors in strict:
                with contextlib.suppress(ValueError, OSError):
                    stream.reconfigure(errors=errors)
