"""`odeum surgery RUN [DATA …]`: edits of the depth of a trained or imported model, with verdicts on other examples."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError, choose, notice
from odeum.lab.commands.inspect import read_layers
from odeum.lab.commands.options import Parser
from odeum.lab.commands.request import command_line
from odeum.lab.study.grid import FORMATS, to_csv
from odeum.lab.study.metric import metric_named
from odeum.lab.terminal import to_json
from odeum.storage import make_directory, new_directory, read_json, write_bytes

if TYPE_CHECKING:
    from odeum.lab.study.operating import Result, Row
    from odeum.lab.tasks import Task
    from odeum.lab.tasks.run import Run

PARTS = ("valid", "test")


def run(argv: list[str]) -> int:
    parser = Parser(
        "surgery",
        "Edit the depth of a trained or imported model: skip or repeat layers, share or average neighbours' weights, "
        "run neighbours in parallel, use another solver or other steps. One half of the examples screens the "
        "candidates, the other half confirms the best of each cost with simultaneous intervals. The same command "
        "continues after an interruption; measurements are kept in RUN/surgery.",
    )
    parser.add_argument("run", type=str, help="run directory, trained or imported")
    parser.add_argument("data", nargs="*", type=str, help="data to measure on (default: the data of the run)")
    parser.option("split", "part of the run's data: valid or test", default="test")
    parser.option("edits", "comma-separated kinds of edits (default: all)")
    parser.option("lines", "each line of DATA is an example (language models)", bool)
    parser.option("layers", "layers to edit, such as 3-8 (default: all)")
    parser.option("screen", "candidates to measure per kind and length (default: 6)", int)
    parser.option("margin", "largest negligible change of the loss: 0.02 or 2% (default: 0.01)")
    parser.shared("format")
    parser.option("out", "directory for page.html, surgery.json, table.csv, …")
    parser.option("save", "write an edited model as a run to this directory")
    parser.option("row", "number of the row to save (default: the cheapest that loses nothing)", int)
    parser.option("healed", "fine-tuned run to judge on examples that surgery has not used")
    given = parser.read(argv)
    form = choose(given.get("format") or "text", FORMATS, "format")
    part = choose(given.get("split") or "test", PARTS, "part of the data")
    layers = read_layers(given.get("layers"))
    if given.get("row") is not None and given.get("save") is None:
        raise OdeumError("--row chooses what --save writes; add --save DIRECTORY")
    if given.get("healed") is not None and given.get("save") is not None:
        raise OdeumError("--healed judges a model and --save writes one; use one of them at a time")
    if (most := given.get("screen")) is not None and most < 1:
        raise OdeumError(f"--screen {most} must be at least 1")
    metric = metric_named("loss")
    margin = metric.margin if given.get("margin") is None else metric.parse_margin(given["margin"])

    from odeum.kernels.matmul import use_onednn
    from odeum.lab.study.operating import MEASURED, Surgery, opened, store_name
    from odeum.lab.tasks.run import load
    from odeum.surgery import check_layers, stacks_of

    kinds = _kinds(given.get("edits"))
    use_onednn()
    with contextlib.ExitStack() as places:
        target = None if given.get("save") is None else places.enter_context(new_directory(given["save"]))
        trained = load(given["run"])
        for name, stack in stacks_of(trained.model).items():
            check_layers(name, stack, layers)
        task = _opened(trained, given.get("data") or [], bool(given.get("lines")))
        if given.get("healed") is not None:
            return _judge_healed(trained, load(given["healed"]), task, part, given, margin, form)
        if target is not None:
            _warn_not_saved(trained.model, kinds, layers)
        if given.get("out") is not None:
            make_directory(Path(given["out"]))
        name = store_name(trained.directory, task.example_keys(part), task.example_groups(part))
        store = places.enter_context(opened(trained.directory, name, task.example_keys(part)))
        surgery = Surgery(trained, task, part, store, lambda text: print(f"odeum: {text}", file=sys.stderr))
        result = surgery.operate(margin, kinds, layers, MEASURED if most is None else most)
        if given.get("out") is not None:
            _write(Path(given["out"]), result, trained)
        print(_shown(result, trained, form))
        if target is not None:
            _save(target, trained, _row(result, given.get("row"), trained.model))
    if given.get("out") is not None and form in ("text", "md"):
        print(f"page: {Path(given['out']) / 'page.html'}")
    if target is not None:
        print(f"run: {given['save']}")
        print(_healing(given["run"], given["save"], task, given.get("data") or []), file=sys.stderr)
    return 0


def _kinds(text: str | None) -> Any:
    from odeum.surgery import KINDS

    if text is None:
        return KINDS
    return tuple(dict.fromkeys(choose(word.strip(), KINDS, "kind of edit") for word in text.split(",")))


def _opened(trained: Run, data: list[str], lines: bool) -> Task:
    """The run's own data, or other data read as its own, all of it in the test part."""
    from odeum.lab.tasks import open_task
    from odeum.lab.tasks.classes import Classes

    if lines and (not data or trained.task.kind != "language"):
        raise OdeumError("--lines reads each line of DATA as one example of a language model; leave it out here")
    if not data:
        if not read_json(trained.directory / "task.json").get("data"):
            raise OdeumError(
                f"'{trained.directory}' was imported and has no examples of its own; name data that it was not trained "
                f"on: `odeum surgery {trained.directory} DATA`"
            )
        return trained._reopened()
    options: dict[str, Any] = {"lines": True} if lines else {}
    task = open_task(*data, like=trained.task, **options)
    if isinstance(task, Classes):
        task.number_as(getattr(trained.task, "classes", []), str(trained.directory))
    task.test_on_everything()
    return task


def _warn_not_saved(model: Any, kinds: Any, layers: tuple[int, int] | None) -> None:
    """Before any work: which edits are measured and cannot be written; raises `OdeumError` if none can."""
    from odeum.surgery import edits, not_saved

    reasons = {edit: not_saved(model, edit) for edit in edits(model, kinds, layers)[0]}
    if reasons and all(reasons.values()):
        raise OdeumError(f"--save can write none of these edits: {next(iter(reasons.values()))}; leave out --save")
    counts = Counter((edit.kind, why.rpartition("cannot be saved: ")[2]) for edit, why in reasons.items() if why)
    for (kind, why), count in sorted(counts.items()):
        notice(f"{count} {kind} edits are measured, but --save cannot write them: {why}")


def _row(result: Result, number: int | None, model: Any) -> Row:
    from odeum.lab.study.surgery_report import recommended
    from odeum.surgery import not_saved

    rows = result.rows
    if number is not None:
        if not 1 <= number < len(rows):
            raise OdeumError(f"--row {number} is none of the {len(rows) - 1} edits in the table")
        return rows[number]
    best = recommended(
        replace(result, rows=[row for row in rows if row.edit is None or not not_saved(model, row.edit)])
    )
    if best is None:
        raise OdeumError("no cheaper edit that can be saved is shown to lose nothing, so none was; name one by --row")
    return best


def _save(target: Path, trained: Run, row: Row) -> None:
    """The edited model as a run, checked against what was measured."""
    import torch

    from odeum.lab.train.origin import write_run
    from odeum.models import assemble
    from odeum.models.base import OdeumModel
    from odeum.surgery import apply, settings_of

    model: Any = trained.model
    assert row.edit is not None
    edited = apply(model, row.edit)
    saved = assemble(*settings_of(model, row.edit)).eval()
    assert isinstance(saved, OdeumModel)
    try:
        saved.load_state_dict(edited.state_dict())
    except RuntimeError as error:
        raise OdeumError(f"'{row.label}' cannot be saved: its weights do not fit an architecture ({error})") from None
    batch = model.example("cpu")
    with torch.no_grad():
        ours, measured = saved(**batch).logits, edited(**batch).logits
    if not torch.allclose(ours, measured, rtol=1e-4, atol=1e-4):
        raise OdeumError(f"'{row.label}' cannot be saved: the architecture computes something else than was measured")
    own_data = bool(read_json(trained.directory / "task.json").get("data"))
    origin = {"surgery": str(trained.directory), "edit": row.label}
    write_run(target, saved, trained._reopened() if own_data else trained.task, origin, command_line())


def _healing(source: str, saved: str, task: Task, data: list[str]) -> str:
    """The two commands that heal the saved model and judge it on other examples."""
    healed = f"{saved.rstrip('/')}-healed"
    train = shlex.join(data or task.source or ["DATA"])
    lines = bool(getattr(task.options, "lines", False))
    train += " --data.lines true" if lines else ""
    other = f"DATA2{' --lines' if lines else ''}" if data else "--split valid"
    return (
        "odeum: a short fine-tuning may heal it; its verdict needs examples of its own:\n"
        f"  odeum train {train} --from {shlex.quote(saved)} --train.steps 200 --out {shlex.quote(healed)}\n"
        f"  odeum surgery {shlex.quote(source)} {other} --healed {shlex.quote(healed)}"
    )


def _judge_healed(
    trained: Run, healed: Run, task: Task, part: str, given: dict[str, Any], margin: Any, form: str
) -> int:
    from odeum.lab.study.operating import judge_healed
    from odeum.lab.study.surgery_report import change_text, end_of, verdict_text

    base, row = judge_healed(trained, healed, task, part, margin)
    assert row.change is not None
    names = ("evaluations", "parameters", "loss")
    values = {
        given[key]: dict(zip(names, (each.cost.evaluations, each.cost.parameters, each.loss), strict=True))
        for key, each in (("run", base), ("healed", row))
    }
    ends = {"change": row.change.mean, "low": end_of(row.change.low), "high": end_of(row.change.high)}
    about = {"runs": values, **ends, "verdict": verdict_text(row), "examples": row.change.n, "look": row.look}
    about |= {} if row.unit == "examples" else {"unit": row.unit}
    if form == "json":
        print(to_json(about, indent=1))
        return 0
    if form == "csv":
        print(to_csv([{"run": name, **each} for name, each in values.items()]).rstrip("\n"))
        return 0
    for name, each in values.items():
        print(f"{name}: {each['evaluations']} evaluations, {each['parameters']:,} parameters, loss {each['loss']:.4g}")
    print(
        f"healed: {verdict_text(row)}; change of loss {change_text(row.change)} (margin {row.margin:.2g}, "
        f"{row.change.n} {row.unit} that neither surgery nor healing used, look {row.look})"
    )
    return 0


def _sample(result: Result) -> str:
    groups = "" if result.groups is None else f", in {result.groups[0]} and {result.groups[1]} {result.unit}"
    return f"{result.examples[0]} examples screened, {result.examples[1]} confirmed{groups}"


def _shown(result: Result, trained: Run, form: str) -> str:
    from odeum.lab.study.surgery_report import as_json, headline, notes, records, table

    if form == "json":
        return to_json(as_json(result), indent=1)
    if form == "csv":
        return to_csv(records(result)).rstrip("\n")
    grid = table(result)
    lines = [grid.markdown() if form == "md" else f"{grid.blocks()}\n", *headline(result)]
    if form == "md":
        lines.append("")
    return "\n".join(
        [*lines, *(f"{'- ' if form == 'md' else 'note: '}{note}" for note in notes(result, trained.model))]
    )


def _write(directory: Path, result: Result, trained: Run) -> None:
    from odeum.lab.study.surgery_report import as_json, page, picture, records
    from odeum.lab.train.provenance import git_revision, versions

    about = {"command": command_line(), "run": str(trained.directory), "versions": versions(), "git": git_revision()}
    title = f"Which layers does {trained.directory.resolve().name} need?"
    write_bytes(directory / "surgery.json", to_json({**about, **as_json(result)}, indent=1).encode())
    write_bytes(directory / "surgery.md", f"`{command_line()}`\n\n{_shown(result, trained, 'md')}\n".encode())
    write_bytes(directory / "table.csv", to_csv(records(result)).encode())
    write_bytes(directory / "frontier.svg", picture(result))
    shown = page(result, trained.model, title, _sample(result), command_line())
    write_bytes(directory / "page.html", shown.encode())
