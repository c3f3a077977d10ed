"""Open a task from a named data set or from files, and restore the task of a run."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import math
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.data.hub import fetch_any, is_hub_name
from odeum.lab.data.sniffing import recognise, sniff
from odeum.lab.data.unpacking import plain_files
from odeum.lab.tasks.base import Task
from odeum.lab.tasks.kind import DATA_SETS, KINDS, Data, Kind
from odeum.registry.options import check_options
from odeum.storage import Damaged, checksum, expanded, read_bytes, read_json


def open_task(
    data: str | Path, *more: str | Path, kind: str | None = None, like: Task | None = None, **options: Any
) -> Task:
    """The task of a named data set, or of files, whose kind is recognised unless `kind` names it.

    With `like`, the tokens (or the size and normalisation of images) are those of another task.
    """
    chosen = KINDS[kind if kind is not None else like.kind if like is not None else recognise(data, *more)]
    check_kind(chosen, data, *more)
    arguments: dict[str, Any] = {"options": make_options(chosen.name, **options)}
    if like is not None:
        if chosen.name != like.kind or "like" not in inspect.signature(chosen.task_class.open).parameters:
            raise OdeumError(f"data of the kind {chosen.name} cannot be read as that of a {like.kind} run")
        arguments["like"] = like
    with _without_collection():
        task = _open_paths(chosen, [data, *more], arguments)
    task.taken_over = like is not None
    return task


@contextmanager
def _without_collection() -> Generator[None]:
    """Context without cyclic garbage collection, which would visit millions of new objects repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _open_paths(kind: Kind, items: list[str | Path], arguments: dict[str, Any]) -> Task:
    if len(items) == 1 and str(items[0]) in DATA_SETS:
        return kind.task_class.open(items[0], **arguments)
    paths = [expanded(item) for item in items]
    local = [fetch_any(str(path)) if is_hub_name(str(path)) else path for path in paths]
    plain = [plain_files(path, getattr(arguments["options"], "encoding", None)) for path in local]
    if plain == paths:
        return kind.task_class.open(*items, **arguments)
    task = kind.task_class.open(*plain, **arguments)  # a run records the given paths, not those in the cache
    task.name = paths[0].name if is_hub_name(str(paths[0])) else paths[0].resolve().name
    task.source = tuple(str(path) if is_hub_name(str(path)) else str(path.resolve()) for path in paths)
    return task


def check_kind(kind: Kind, data: str | Path, *more: str | Path) -> None:
    """Raise OdeumError for a named set of another kind, or a path that no kind can read."""
    if not more and str(data) in DATA_SETS:
        if DATA_SETS[str(data)] != kind.name:
            raise OdeumError(f"'{data}' is a set of the kind {DATA_SETS[str(data)]}, not {kind.name}")
        return
    sniff(data, *more)


def make_options(kind: str, **options: Any) -> Data:
    """The options of a kind of data; raises OdeumError for unknown names and values out of range."""
    settings = KINDS[kind].options
    for key in options:
        choose(key, [f.name for f in dataclasses.fields(settings)], f"option of {kind} data")
    result = settings(**options)
    check_options(result, f" of {kind} data")
    return result


def _read(directory: str | Path) -> dict[str, Any]:
    path = Path(directory) / "task.json"
    if not path.exists():
        raise OdeumError(f"'{directory}' has no task.json, so it is not a run of Odeum")
    record = read_json(path)
    if {"name", "data", "settings", "options"} <= record.keys():
        return record
    raise Damaged(f"'{path}' is damaged: it does not describe the data of a run")


def _options(record: dict[str, Any]) -> tuple[Kind, Any]:
    if (kind := KINDS.get(record.get("kind"))) is None:
        raise OdeumError(
            f"the data of the run '{record['name']}' is of the kind {record.get('kind')}, which is not registered; "
            "name the file that registers it with --plugin"
        )
    known = {f.name for f in dataclasses.fields(kind.options)}
    return kind, make_options(kind.name, **{k: v for k, v in record["options"].items() if k in known})


def _check_files(record: dict[str, Any], directory: Path) -> None:
    """Raise Damaged if the files beside task.json do not match their checksums."""
    for name, wanted in record.get("files", {}).items():
        if Path(name).name != name:
            raise Damaged(f"'{directory / 'task.json'}' is damaged: it names the file '{name}' outside of its run")
        if checksum(read_bytes(directory / name)) != wanted:
            raise Damaged(f"'{directory / name}' is damaged: its content does not match its checksum in task.json")


def load_task(directory: str | Path) -> Task:
    """The task of a run, restored from task.json without the data; it can predict."""
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
    """Name of the first entry that contains NaN or infinity at any depth."""

    def bad(value: Any) -> bool:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return any(map(bad, inner)) if inner else isinstance(value, float) and not math.isfinite(value)

    return next((name for name, value in record.items() if bad(value)), None)


def reopen_task(directory: str | Path) -> Task:
    """The task of a run with its data, to evaluate or continue training."""
    record = _read(directory)
    with _described(Path(directory)):
        kind, options = _options(record)
        source = [str(path) for path in record["data"]]
    for path in source if record["name"] not in DATA_SETS else ():
        if not expanded(path).exists() and not is_hub_name(path):
            raise OdeumError(f"the data of '{directory}', '{path}', no longer exists")
    if not source:
        raise OdeumError(
            f"'{directory}' was imported and has no data; pass some, as in `odeum surgery {directory} DATA`"
        )
    like = load_task(directory) if record.get("taken_over") else None
    return open_task(*source, kind=kind.name, like=like, **dataclasses.asdict(options))


@contextmanager
def _described(directory: Path) -> Generator[None]:
    """Context in which errors of reading a record are raised as Damaged."""
    try:
        yield
    except OdeumError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration, RuntimeError, AssertionError) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise Damaged(f"'{directory / 'task.json'}' is damaged: it describes no data ({reason})") from None
