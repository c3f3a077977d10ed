"""Where the answers of `odeum predict` go: standard output, or a file of rows (.csv) or objects (.jsonl)."""

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
from odeum.storage import atomic_write, make_directory

if TYPE_CHECKING:
    from odeum.lab.data.inputs import PredictInput
    from odeum.lab.tasks import Task

ENDINGS = (".csv", ".jsonl")


class Answers(Protocol):
    """What takes answers one after another, in the order of their inputs."""

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """An answer, or the mistake that stands in its place."""
        ...

    def finish(self) -> None:
        """All answers have come."""
        ...


def _record(task: Task, item: PredictInput, sample: int | None) -> dict[str, Any]:
    """What was asked, and where it stood."""
    where = {} if item.file is None else {"file": item.file} | ({} if item.row is None else {"row": item.row})
    return {**where, "input": with_display_names(item.text), **({} if sample is None else {"sample": sample})}


class Printed:
    """A line an answer on standard output; mistakes were told on standard error."""

    def __init__(self, task: Task, form: str) -> None:
        self.task, self.form = task, form

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """Print it."""
        if isinstance(answer, OdeumError):
            return
        if self.form == "text":
            print(self.task.shown(with_display_names(item.text), answer), flush=True)
        else:
            print(to_json({**_record(self.task, item, sample), "output": self.task.plain(answer)}), flush=True)

    def finish(self) -> None:
        """Nothing is left to do."""


class Encoded:
    """A file of bytes that takes texts."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, text: str) -> int:
        """Write the text as UTF-8."""
        return self.file.write(text.encode("utf-8", errors="backslashreplace"))


class LineFile:
    """An object per line."""

    def __init__(self, task: Task, file: Encoded) -> None:
        self.task, self.file = task, file

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """Write it; a mistake is an object with `error`."""
        wrong = isinstance(answer, OdeumError)
        outcome = {"error": str(answer)} if wrong else {"output": self.task.plain(answer)}
        line = json.dumps({**_record(self.task, item, sample), **outcome}, ensure_ascii=False)
        self.file.write(line + "\n")

    def finish(self) -> None:
        """Nothing is left to do."""


class RowFile:
    """A row an answer. The first answer says which columns there are; mistakes before it wait for them."""

    def __init__(self, task: Task, file: Encoded) -> None:
        self.task, self.file = task, file
        self.writer: Any = None
        self.columns: list[str] = []
        self.waiting: list[dict[str, Any]] = []

    def add(self, item: PredictInput, answer: Any, sample: int | None) -> None:
        """Write it; a mistake is a row with nothing but `error`."""
        asked = {"file": "", "row": "", **_record(self.task, item, sample)}
        if isinstance(answer, OdeumError):
            self._write({**asked, "error": str(answer)})
            return
        row = {**asked, **self.task.cells(answer), "error": ""}
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
        """Write what waits."""
        if self.waiting:
            self._begin(list(self.waiting[0]))


def _cell(value: Any) -> Any:
    """Texts of strangers are not computed; what is a number, a class "-1" too, stays one."""
    if not isinstance(value, str) or not_computed(value) is value:
        return value
    try:
        float(value)
    except ValueError:
        return not_computed(value)
    return value


@contextlib.contextmanager
def open_answers(task: Task, form: str, out: str | None, overwrite: bool, inputs: Sequence[str]) -> Generator[Answers]:
    """Standard output, or the file, which takes its name when all answers are in it.

    A file that is there, or that is read, is not written over.
    """
    if out is None:
        yield Printed(task, form)
        return
    if "\0" in out:
        raise OdeumError(f"--out {out!r} names no file; give a path")
    path = Path(out).expanduser()
    if path.suffix.lower() not in ENDINGS:
        raise OdeumError(f"--out {out} should end in {' or '.join(ENDINGS)}, which says what is written")
    if any(path.exists() and Path(name).exists() and path.samefile(name) for name in inputs if name != "-"):
        raise OdeumError(f"--out {out} is one of the inputs; name another file")
    if path.exists() and not (overwrite and path.is_file()):
        raise OdeumError(f"--out {out} is there already; name another file, or say --overwrite to replace it")
    make_directory(path.parent)
    with atomic_write(path) as file:
        answers = (RowFile if path.suffix.lower() == ".csv" else LineFile)(task, Encoded(file))
        yield answers
        answers.finish()


class Tally:
    """How many are answered, on standard error, where the answers themselves are not seen."""

    def __init__(self, seen: bool, total: int | None) -> None:
        self.line, self.total = LiveLine(), total
        self.quiet = seen or not self.line.live
        self.began = self.last = time.monotonic()
        self.count = 0

    def add(self, count: int) -> None:
        """So many more."""
        self.count += count
        now = time.monotonic()
        if self.quiet or now - self.last < 0.2:
            return
        self.last = now
        of = f" of {self.total}" if self.total else ""
        self.line.write(f"answered {self.count}{of}  {self.count / max(now - self.began, 1e-9):.0f}/s", stay=False)

    def close(self) -> None:
        """Take the line away."""
        if not self.quiet:
            self.line.clear()


def answers_are_seen(out: str | None) -> bool:
    """Whether somebody reads the answers as they come."""
    return out is None and sys.stdout.isatty()
