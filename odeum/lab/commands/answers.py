"""Writers of the answers of `odeum predict`: standard output, a CSV file or a JSON Lines file."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from odeum.errors import OdeumError, with_display_names
from odeum.lab.terminal import LiveLine, not_computed, to_json
from odeum.storage import atomic_write, expanded, make_directory

if TYPE_CHECKING:
    from odeum.lab.data.inputs import PredictInput
    from odeum.lab.tasks import Task

ENDINGS = (".csv", ".jsonl")


class Answers(Protocol):
    """Receives answers in the order of their inputs."""

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """Add an answer, or the error in its place."""
        ...

    def finish(self) -> None:
        """Called after the last answer."""
        ...


def _record(task: Task, item: PredictInput, sample: int | None) -> dict[str, Any]:
    """The input, with its file and row."""
    where = {} if item.file is None else {"file": item.file} | ({} if item.row is None else {"row": item.row})
    return {**where, "input": with_display_names(item.text), **({} if sample is None else {"sample": sample})}


class PrintedAnswers:
    """Prints one line per answer to standard output; errors have been printed to standard error."""

    def __init__(self, task: Task, form: str) -> None:
        self.task, self.form = task, form

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """Print the answer."""
        if isinstance(answer, OdeumError):
            return
        if self.form == "text":
            print(self.task.format_answer(with_display_names(item.text), answer), flush=True)
        else:
            print(to_json({**_record(self.task, item, sample), "output": self.task.as_json(answer)}), flush=True)

    def finish(self) -> None:
        """Does nothing."""


class Utf8File:
    """A text interface to a binary file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, text: str) -> int:
        """Write the text as UTF-8."""
        return self.file.write(text.encode("utf-8", errors="backslashreplace"))


class LineFile:
    """Writes one JSON object per line."""

    def __init__(self, task: Task, file: Utf8File) -> None:
        self.task, self.file = task, file

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """Write the answer; an error is an object with `error`."""
        wrong = isinstance(answer, OdeumError)
        outcome = {"error": str(answer)} if wrong else {"output": self.task.as_json(answer)}
        line = json.dumps({**_record(self.task, item, sample), **outcome}, ensure_ascii=False)
        self.file.write(line + "\n")

    def finish(self) -> None:
        """Does nothing."""


class RowFile:
    """Writes one CSV row per answer. The first answer defines the columns; errors before it are held back."""

    def __init__(self, task: Task, file: Utf8File) -> None:
        self.task, self.file = task, file
        self.writer: Any = None
        self.columns: list[str] = []
        self.waiting: list[dict[str, Any]] = []

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """Write the answer; an error is a row with only `error`."""
        record = {"file": "", "row": "", **_record(self.task, item, sample)}
        if isinstance(answer, OdeumError):
            self._write({**record, "error": str(answer)})
            return
        row = {**record, **self.task.as_columns(answer), "error": ""}
        self._begin(list(row))
        self._write(row)

    def _begin(self, columns: list[str]) -> None:
        if self.writer is None:
            self.writer, self.columns = csv.writer(self.file), columns
            self.writer.writerow([not_computed(column) for column in columns])
            for row in self.waiting:
                self._write(row)

    def _write(self, row: dict[str, Any]) -> None:
        if self.writer is None:
            self.waiting.append(row)
            return
        self.writer.writerow([_cell(row.get(column, "")) for column in self.columns])

    def finish(self) -> None:
        """Write errors that were held back, if there was no answer."""
        if self.waiting:
            self._begin(list(self.waiting[0]))


def _cell(value: Any) -> Any:
    """A cell that a spreadsheet does not read as a formula; numbers, also as text, are unchanged."""
    if not isinstance(value, str) or not_computed(value) is value:
        return value
    try:
        float(value)
    except ValueError:
        return not_computed(value)
    return value


@contextlib.contextmanager
def open_answers(task: Task, form: str, out: str | None, overwrite: bool, inputs: Sequence[str]) -> Generator[Answers]:
    """Context that yields the writer to standard output or to a file, which is complete when it gets its name.

    Raises `OdeumError` for an existing file or an input.
    """
    if out is None:
        yield PrintedAnswers(task, form)
        return
    if "\0" in out:
        raise OdeumError(f"--out {out!r} is not a file name; give a path")
    path = expanded(out)
    if path.suffix.lower() not in ENDINGS:
        raise OdeumError(f"--out {out} must end in {' or '.join(ENDINGS)}, which defines the format")
    if any(path.exists() and Path(name).exists() and path.samefile(name) for name in inputs if name != "-"):
        raise OdeumError(f"--out {out} is one of the inputs; name another file")
    if path.exists() and not (overwrite and path.is_file()):
        raise OdeumError(f"--out {out} exists already; name another file, or add --overwrite")
    make_directory(path.parent)
    with atomic_write(path) as file:
        answers = (RowFile if path.suffix.lower() == ".csv" else LineFile)(task, Utf8File(file))
        yield answers
        answers.finish()


class ProgressLine:
    """Number of answers, on standard error; not shown if the answers are printed to a terminal."""

    def __init__(self, seen: bool, total: int | None) -> None:
        self.line, self.total = LiveLine(), total
        self.quiet = seen or not self.line.live
        self.began = self.last = time.monotonic()
        self.count = 0

    def add(self, count: int) -> None:
        """Count more answers."""
        self.count += count
        now = time.monotonic()
        if self.quiet or now - self.last < 0.2:
            return
        self.last = now
        of = f" of {self.total}" if self.total else ""
        self.line.write(f"answered {self.count}{of}  {self.count / max(now - self.began, 1e-9):.0f}/s", stay=False)

    def close(self) -> None:
        """Clear the line."""
        if not self.quiet:
            self.line.clear()


def answers_are_seen(out: str | None) -> bool:
    """Whether answers are printed to a terminal."""
    return out is None and sys.stdout.isatty()
