"""Tasks: data, loss, metric and defaults; a named set or a path becomes one by `open_task`."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

from odeum.data.sniffing import recognise
from odeum.errors import OdeumError, choose
from odeum.settings.data import DATA, EARLIER, NAMED, Data
from odeum.tasks.base import Task

__all__ = ["NAMED", "Task", "load_task", "open_task", "reopen_task"]

_CLASSES = {
    "images": ("odeum.tasks.images", "ImageTask"),
    "language": ("odeum.tasks.language", "LanguageTask"),
    "classification": ("odeum.tasks.classification", "ClassificationTask"),
    "listops": ("odeum.tasks.listops", "ListOpsTask"),
    "translation": ("odeum.tasks.translation", "TranslationTask"),
}


MAY_BE_ZERO = {"seed", "context", "length_penalty"}


def _task_class(kind: str) -> Any:
    module, name = _CLASSES[kind]
    return getattr(importlib.import_module(module), name)


def open_task(data: str | Path, *more: str | Path, kind: str | None = None, **options: Any) -> Task:
    """The task of a named set, or of a path recognised by what it holds; `kind` overrules the recognition."""
    found = recognise(data, *more) if kind is None else choose(kind, DATA, "kind of data")
    settings = make_options(found, **options)
    return _task_class(found).open(data, *more, options=settings)


def make_options(kind: str, **options: Any) -> Data:
    """The options of that kind of data, checked."""
    settings = DATA[kind]
    hints = get_type_hints(settings)
    for key, value in options.items():
        choose(key, hints, f"option of {kind} data")
        allowed = [a for a in get_args(hints[key]) if isinstance(a, str)]
        if allowed and value is not None:
            choose(str(value), allowed, key)
        elif isinstance(value, int | float) and not isinstance(value, bool) and value <= 0 and key not in MAY_BE_ZERO:
            raise OdeumError(f"{key} of {kind} data should be positive, not {value}")
    return settings(**options)


def _read(directory: str | Path) -> dict[str, Any]:
    path = Path(directory) / "task.json"
    if not path.exists():
        raise OdeumError(f"'{directory}' holds no task.json, so it is no run of Odeum")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and {"name", "data", "settings", "options"} <= record.keys():
            return record
    except ValueError:
        pass
    raise OdeumError(f"'{path}' is damaged: it does not describe the data of a run")


def _options(record: dict[str, Any]) -> tuple[str, Data]:
    kind = next(k for k, settings in DATA.items() if settings.__name__ == record["settings"])
    known = {f.name for f in dataclasses.fields(DATA[kind])}
    options = {**EARLIER.get(record["settings"], {}), **record["options"]}
    return kind, DATA[kind](**{k: v for k, v in options.items() if k in known})


def load_task(directory: str | Path) -> Task:
    """A task that can predict, from a run's task.json, without the data."""
    record = _read(directory)
    kind, options = _options(record)
    return _task_class(kind).restore(record["name"], options, record, Path(directory))


def reopen_task(directory: str | Path) -> Task:
    """The task of a run with its data again, to evaluate or to go on."""
    record = _read(directory)
    kind, options = _options(record)
    for path in record["data"] if record["name"] not in NAMED else ():
        if not Path(path).expanduser().exists():
            raise OdeumError(f"the data of '{directory}', '{path}', is not there any more")
    return open_task(*record["data"], kind=kind, **dataclasses.asdict(options))
