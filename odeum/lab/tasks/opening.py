"""Open a task from a named data set or from files, and restore the task of a run."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

from odeum.errors import OdeumError, choose
from odeum.lab.data.hub import fetch_any, is_hub_name
from odeum.lab.data.sniffing import recognise, sniff
from odeum.lab.data.unpacking import plain_files
from odeum.lab.tasks.base import Task
from odeum.lab.tasks.kind import DATA_SETS, KINDS, Data, Kind
from odeum.storage import Damaged, checksum, read_bytes, read_json

MAY_BE_ZERO = {"seed", "fold", "context", "length_penalty"}


def open_task(
    data: str | Path, *more: str | Path, kind: str | None = None, like: Task | None = None, **options: Any
) -> Task:
    """The task of a named set, or of a path recognised by what it holds; `kind` overrules the recognition.

    With `like`, the tokens (or the size and colours of images) are those of another task, for a model that knows them.
    """
    found = KINDS[kind if kind is not None else like.kind if like is not None else recognise(data, *more)]
    refuse_another_kind(found, data, *more)
    own: dict[str, Any] = {"options": make_options(found.name, **options)}
    if like is not None:
        if found.name != like.kind or "like" not in inspect.signature(found.task_class.open).parameters:
            raise OdeumError(f"data of the kind {found.name} cannot be read as that of a {like.kind} run")
        own["like"] = like
    task = _opened(found, [data, *more], own)
    task.taken_over = like is not None
    return task


def _opened(found: Kind, items: list[str | Path], own: dict[str, Any]) -> Task:
    if len(items) == 1 and str(items[0]) in DATA_SETS:
        return found.task_class.open(items[0], **own)
    given = [Path(item).expanduser() for item in items]
    there = [fetch_any(str(path)) if is_hub_name(str(path)) else path for path in given]
    plain = [plain_files(path, getattr(own["options"], "encoding", None)) for path in there]
    if plain == given:
        return found.task_class.open(*items, **own)
    task = found.task_class.open(*plain, **own)  # a run remembers what was given, not what the cache holds
    task.name = given[0].name if is_hub_name(str(given[0])) else given[0].resolve().name
    task.source = tuple(str(path) if is_hub_name(str(path)) else str(path.resolve()) for path in given)
    return task


def refuse_another_kind(kind: Kind, data: str | Path, *more: str | Path) -> None:
    """A named set is of one kind, which nothing overrules; a path may be read in another way than it looks."""
    if not more and str(data) in DATA_SETS:
        if DATA_SETS[str(data)] != kind.name:
            raise OdeumError(f"'{data}' is a set of the kind {DATA_SETS[str(data)]}, not {kind.name}")
        return
    sniff(data, *more)


def make_options(kind: str, **options: Any) -> Data:
    """The options of that kind of data, checked."""
    settings = KINDS[kind].options
    hints = get_type_hints(settings)
    for key, value in options.items():
        choose(key, hints, f"option of {kind} data")
        allowed = [a for a in get_args(hints[key]) if isinstance(a, str)]
        if allowed and value is not None:
            choose(str(value), allowed, key)
        elif isinstance(value, int | float) and not isinstance(value, bool) and value <= 0 and key not in MAY_BE_ZERO:
            raise OdeumError(f"{key} of {kind} data should be positive, not {value}")
        elif key == "fold" and not 0 <= value < 2**31:
            raise OdeumError(f"fold of {kind} data should be a number from 0 to 2³¹ − 1, not {value}")
    return settings(**options)


def _read(directory: str | Path) -> dict[str, Any]:
    path = Path(directory) / "task.json"
    if not path.exists():
        raise OdeumError(f"'{directory}' holds no task.json, so it is no run of Odeum")
    record = read_json(path)
    if {"name", "data", "settings", "options"} <= record.keys():
        return record
    raise Damaged(f"'{path}' is damaged: it does not describe the data of a run")


def _options(record: dict[str, Any]) -> tuple[Kind, Any]:
    if (kind := KINDS.get(record.get("kind"))) is None:
        raise OdeumError(
            f"the data of the run '{record['name']}' is of the kind {record.get('kind')}, which is not known here; "
            "name the file that registers it with --plugin"
        )
    known = {f.name for f in dataclasses.fields(kind.options)}
    return kind, make_options(kind.name, **{k: v for k, v in record["options"].items() if k in known})


def _check_files(record: dict[str, Any], directory: Path) -> None:
    """See that the files beside task.json are those that it was written with."""
    for name, wanted in record.get("files", {}).items():
        if Path(name).name != name:
            raise Damaged(f"'{directory / 'task.json'}' is damaged: it names the file '{name}' outside of its run")
        if checksum(read_bytes(directory / name)) != wanted:
            raise Damaged(f"'{directory / name}' is damaged: its content does not match its checksum in task.json")


def load_task(directory: str | Path) -> Task:
    """A task that can predict, from a run's task.json, without the data."""
    directory = Path(directory)
    record = _read(directory)
    with _described(directory):
        _check_files(record, directory)
        kind, options = _options(record)
        if (name := _not_finite(record)) is not None:
            raise Damaged(f"'{directory / 'task.json'}' is damaged: its {name} holds numbers that are not finite")
        task = kind.task_class.restore(record["name"], options, record, directory)
        task.facts()  # they are needed later, where a mistake would not be the file's
        return task


def _not_finite(record: dict[str, Any]) -> str | None:
    """The first entry with a number, at any depth, by which nothing can be computed."""

    def bad(value: Any) -> bool:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return any(map(bad, inner)) if inner else isinstance(value, float) and not math.isfinite(value)

    return next((name for name, value in record.items() if bad(value)), None)


def reopen_task(directory: str | Path) -> Task:
    """The task of a run with its data again, to evaluate or to go on."""
    record = _read(directory)
    with _described(Path(directory)):
        kind, options = _options(record)
        source = [str(path) for path in record["data"]]
    for path in source if record["name"] not in DATA_SETS else ():
        if not Path(path).expanduser().exists() and not is_hub_name(path):
            raise OdeumError(f"the data of '{directory}', '{path}', is not there any more")
    if not source:
        raise OdeumError(
            f"'{directory}' was imported, and has no data of its own; `odeum refine {directory} DATA` gives it some"
        )
    like = load_task(directory) if record.get("taken_over") else None
    return open_task(*source, kind=kind.name, like=like, **dataclasses.asdict(options))


@contextmanager
def _described(directory: Path) -> Generator[None]:
    """Within it, a record that is not what a task writes is a damaged file and not a bug."""
    try:
        yield
    except OdeumError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration, RuntimeError, AssertionError) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise Damaged(f"'{directory / 'task.json'}' is damaged: it describes no data ({reason})") from None
