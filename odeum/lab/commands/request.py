"""Arguments that train and compare share: the data, and the options of its kind."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from odeum.errors import OdeumError, choose, notice
from odeum.lab.commands.options import (
    Parser,
    asks_for_help,
    known_architectures,
    merge,
    named_model,
    preset,
    read_config,
    take,
)
from odeum.lab.data.progress import report_files, reports_reading
from odeum.lab.data.sniffing import recognise
from odeum.lab.tasks import DATA_SETS, KINDS, Kind
from odeum.lab.train.distributed import ranks
from odeum.lab.train.settings import MAY_CHANGE, Training
from odeum.models.pretrained import NOT_OFFERED
from odeum.models.settings import Model
from odeum.registry.names import ARCHITECTURES
from odeum.storage import slug

if TYPE_CHECKING:
    from odeum.lab.study.forecast import Forecast
    from odeum.lab.tasks import Task

END_OPTIONS = ("steps", "budget", "macs", "epochs")
TRACKER_NAMES = get_args(get_args(get_type_hints(Training)["track"])[0])
LONGEST_NAME = 60
"""characters of settings in a folder name; longer ones become a hash"""


class Request(NamedTuple):
    """The given options, without defaults of the data."""

    source: list[str]
    kind: Kind
    preset: Model | None
    given: dict[str, Any]


def read_request(parser: Parser, argv: list[str]) -> Request:
    """Parse in two passes: the data first, then the options of its kind."""
    path, argv = take(argv, "--config")
    config = read_config(path) if path else {}
    named, argv = take(argv, "--kind")
    chosen, argv = preset(argv)
    if chosen is None and isinstance(config.get("model"), str):
        chosen = named_model(config.pop("model"))
    parser.add_argument("source", nargs="*", type=str, metavar="DATA", help="name of a data set, or paths")
    parser.option("kind", f"kind of data (default: recognised): {', '.join(KINDS)}")
    parser.option("config", "YAML file of options; the command line overrides it", metavar="FILE")
    written_source = _source(config, path)
    source = parser.positionals(argv) or written_source
    if not source and not asks_for_help(argv):
        raise OdeumError(f"missing: the data, such as digits or a path; see `{parser.prog} --help`")
    _refuse_architectures(source, argv)
    named = named or config.get("kind")
    with reports_reading(_progress(argv)):
        report_files([] if source and source[0] in DATA_SETS else source)
        kind = KINDS[str(named) if named else recognise(*source) if source else "images"]
    parser.section("data", kind.options, argv)
    parser.section("model", type(chosen) if chosen else kind.settings, argv, kind.decided)
    _refuse_decided(kind, argv, config)
    parser.section("train", Training, argv)
    given = parser.read(argv)
    ends = [name for name in END_OPTIONS if given.get("train", {}).get(name) is not None]
    if len(ends) > 1:
        raise OdeumError(f"--train.{ends[0]} and --train.{ends[1]} both end the training; give one of them")
    warmup, steps = (given.get("train", {}).get(name) or 0 for name in ("warmup", "steps"))
    if warmup > 1 and 0 < steps < warmup:
        raise OdeumError(f"--train.warmup {warmup:g} is longer than the training of {steps} steps; give fewer steps")
    if config:
        written = parser.check(config, path or "")
        if ends:  # the command line overrides the file, also if it ends the training in another way
            written["train"] = {k: v for k, v in (written.get("train") or {}).items() if k not in END_OPTIONS}
        given = merge(written, given)
    given |= {"kind": named} if named else {}
    if (track := given.pop("track", None)) is not None:
        choose(track, TRACKER_NAMES, "tracker")
        given["train"] = {**given.get("train", {}), "track": track}
    _check_surroundings(given)
    return Request(source, kind, chosen, given)


def _progress(argv: Sequence[str]) -> Callable[[str], None]:
    """Prints progress of reading data, unless --quiet is given or another process does it."""
    silent = "--quiet" in argv or not ranks.is_main()

    def show(line: str) -> None:
        if not silent:
            print(f"odeum: {line}", file=sys.stderr, flush=True)

    return show


def _refuse_architectures(source: list[str], argv: list[str]) -> None:
    """Raise `OdeumError` for architectures separated by blanks, which would be read as data."""
    listed = [
        word
        for word in source[1:]
        if word not in DATA_SETS and known_architectures(word).partition(":")[0] in ARCHITECTURES
    ]
    listed = [word for word in listed if not Path(word).exists()]
    if listed and any(word.partition("=")[0] in ("--architectures", "--architecture") for word in argv):
        raise OdeumError(
            f"'{listed[0]}' is an architecture, but data is expected here; separate architectures by commas "
            f"without blanks: --architectures sequential,{','.join(listed)}"
        )


def _check_surroundings(given: dict[str, Any]) -> None:
    """Raise `OdeumError` for missing devices, trackers and launchers before data is read."""
    from odeum.lab.launch.launcher import check_jobs, check_place
    from odeum.lab.train.tracking import check_installed

    if (track := given.get("train", {}).get("track")) is not None:
        check_installed(track)
    on = given.get("on")
    if on is not None:
        check_place(on)
    check_jobs(str(given.get("jobs", "auto")), on)
    training = given.get("train", {})
    device, precision = training.get("device", "auto"), training.get("precision", "auto")
    if training.get("compile") and on is None and ranks.is_main():
        from odeum.lab.train.distributed.world import pick_device

        if ranks.size() == 1 and pick_device(device).type == "cpu":
            notice("--train.compile on a CPU usually makes training slower; leave it out unless you measured a gain")
    if (device not in ("auto", "cpu") or precision == "bf16") and on is None and ranks.size() == 1:
        from odeum.lab.train.distributed.world import pick_device, uses_bfloat16

        uses_bfloat16(precision, pick_device(device))


def _refuse_decided(kind: Kind, argv: list[str], config: dict[str, Any]) -> None:
    """Raise `OdeumError` for model options that the data decides."""
    given = {word.partition("=")[0].removeprefix("--model.") for word in argv if word.startswith("--model.")}
    data_options = {field.name for field in fields(kind.options)}
    for name in kind.decided:
        if name in given or name in config.get("model", {}):
            wanted = name.removeprefix("image_")
            hint = f"; --data.{wanted} may be what you need" if wanted in data_options else ""
            raise OdeumError(f"--model.{name} is decided by the data and cannot be set{hint}")


def _source(config: dict[str, Any], path: str | None) -> list[str]:
    """The data that a configuration names; raises `OdeumError` if its sections are not mappings."""
    for name in ("data", "model", "train"):
        if not isinstance(config.get(name, {}), dict):
            raise OdeumError(f"{path}: {name} must be a mapping of options, not {config[name]!r}")
    source = config.get("source", [])
    sources = [source] if isinstance(source, str) else source
    if not isinstance(sources, list) or not all(isinstance(name, str) for name in sources):
        raise OdeumError(f"{path}: source must be a data set, a path or a list of paths, not {source!r}")
    config["source"] = sources
    return sources


def open_request(request: Request, like: Path | None = None) -> tuple[Task, Model, Training]:
    """Open the data, and complete the given settings with its defaults."""
    from odeum.lab.tasks import load_task, open_task
    from odeum.lab.train.run import with_changes
    from odeum.models.settings import check_changes

    given = {key: tuple(v) if isinstance(v, list) else v for key, v in request.given.get("model", {}).items()}
    check_changes(type(request.preset) if request.preset else request.kind.settings, given)
    budget = request.given.get("train", {}).get("budget")
    if isinstance(budget, str) and budget.strip().replace(".", "").isdigit():
        notice(f"the budget '{budget}' has no unit and is read as seconds; write {budget}s, {budget}m or {budget}h")
    with_changes(Training(), request.given.get("train", {}))  # raises for invalid settings before the data is read
    known = None if like is None else load_task(like)  # an existing model has its tokenizer
    quiet = ["--quiet"] if request.given.get("quiet") else []
    with reports_reading(_progress(quiet)):
        task = open_task(*request.source, kind=request.kind.name, like=known, **request.given.get("data", {}))
    for note in task.notes:
        notice(note)
    facts = task.facts()
    for name, value in given.items():
        if name in facts and facts[name] != value:
            raise OdeumError(f"--model.{name} {value} does not match the data, which has {facts[name]}")
    model = with_changes(task.fit(request.preset) if request.preset else task.model(), given)
    training = with_changes(task.training(), request.given.get("train", {}))
    return task, model, training if gives_rate(request) else at_default_rate(task, training, model)


def at_default_rate(task: Task, training: Training, model: Model) -> Training:
    """The settings with the default learning rate for this model; a recipe with a rate of its own keeps it."""
    return training if task.rate_rule is None else task.with_default_rate(training, model)


def gives_rate(request: Request) -> bool:
    """Whether the learning rate is given, by an option or a configuration."""
    return "learning_rate" in request.given.get("train", {})


def rate_origin(request: Request, task: Task) -> str:
    """The origin of the learning rate, for reports."""
    if gives_rate(request):
        return "given"
    rule = task.rate_rule
    return f"recipe of {task.name}" if rule is None else f"rule for {request.kind.name}: {rule}"


def tell_before(task: Task, cost: Forecast) -> None:
    """Print how the data was read, and the estimated cost."""
    for line in (*task.understood(), *cost.lines()):
        print(line, file=sys.stderr, flush=True)


def refuse_processes() -> None:
    """Raise `OdeumError` for a dry run with several processes, which would measure different times."""
    if ranks.size() > 1:
        raise OdeumError("--dry-run measures in one process; run it without torchrun")


def print_config(request: Request, task: Task, model: Model, training: Training, extra: dict[str, Any]) -> None:
    """Print the whole configuration as a file for --config."""
    import yaml

    facts = task.facts()
    content = {
        "source": request.source,
        **{key: request.given[key] for key in ("kind",) if key in request.given},
        **extra,
        "data": asdict(task.options),
        "model": {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in asdict(model).items()
            if k not in (*facts, *NOT_OFFERED)
        },
        "train": asdict(training),
    }
    print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), end="")
    print(f"# learning_rate {training.learning_rate:g}: {rate_origin(request, task)}")


def folder_name(task: Task, model: Model, training: Training, *more: str) -> str:
    """Name of the data, followed by the settings that differ from its defaults."""
    default: Any = task.model()
    pairs = {key: (value, getattr(default, key, None)) for key, value in asdict(model).items()}
    pairs |= {f"{key} ": (value, getattr(type(task.options)(), key)) for key, value in asdict(task.options).items()}
    recipe = asdict(at_default_rate(task, task.training(), model))
    pairs |= {key: (value, recipe[key]) for key, value in asdict(training).items() if key not in MAY_CHANGE}
    changes = [
        f"{key.strip()}={value}" for key, (value, usual) in pairs.items() if value != usual and value is not None
    ]
    label = slug("-".join([*changes, *more]))
    if len(label) > LONGEST_NAME:
        label = hashlib.blake2b(label.encode(), digest_size=4).hexdigest()
    return slug(task.name) + (f"-{label}" if label else "")


def command_line() -> str:
    """The command as typed, without --overwrite, so that repeating it resumes."""
    return "odeum " + shlex.join(word for word in sys.argv[1:] if word != "--overwrite")
