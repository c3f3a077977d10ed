"""`odeum evaluate RUN …`: metrics of trained models, also with another solver or number of steps."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.lab.study.grid import FORMATS, Column, Grid, to_csv
from odeum.lab.train.rundir import RunDir
from odeum.registry.names import METHODS

if TYPE_CHECKING:
    from odeum.lab.tasks.evidence import Evidence
    from odeum.lab.tasks.run import Run


class Measured(NamedTuple):
    """Results of one model with one solver."""

    run: str
    solver: str
    values: dict[str, float]
    evidence: Evidence | None


def run(argv: list[str]) -> int:
    parser = Parser(
        "evaluate",
        "Evaluate runs on their data, also with another solver or number of steps beside the original. The others are "
        "compared with the first, example by example.",
    )
    parser.add_argument("run", nargs="+", type=str, help="run directories with the same data")
    parser.option("split", "valid or test", default="test")
    parser.option("solver", f"another method: {', '.join(METHODS)}")
    parser.option("steps", "steps per layer, instead of those of training", float)
    parser.option("repeats", "repeats of a looped core, instead of those of training", int)
    parser.option("exit", "stop repeating below this relative state change", float)
    parser.shared("format")
    given = parser.read(argv)
    form = choose(given.get("format", "text"), FORMATS, "format")
    split = given.get("split", "test")
    changes = {name: given.get(name) for name in ("solver", "steps", "repeats", "exit")}

    from odeum.kernels.matmul import use_onednn
    from odeum.lab.tasks.run import load

    use_onednn()  # as in training, so that the scores of a run are reproduced bit by bit

    directories = list(dict.fromkeys(given["run"]))
    runs = [load(directory) for directory in directories]
    refuse_other_data(runs)
    changed = any(value is not None for value in changes.values())
    measured: list[Measured] = []
    for directory, trained in zip(directories, runs, strict=True):
        # One run with a changed solver as JSON: only the changed result.
        if not (changed and form == "json" and len(runs) == 1):
            measured.append(_measure(directory, trained, split))
        if changed:
            trained.solve_by(**changes)
            measured.append(_measure(directory, trained, split))
    print(_shown(measured, split, form))
    if form in ("text", "md") and (sentences := _differences(measured)):
        print(*([""] if form == "md" else []), *sentences, sep="\n")
    for note in dict.fromkeys(note for trained in runs for note in trained.task.notes):
        print(f"note: {note}", file=sys.stderr)
    return 0


def _measure(directory: str, run: Run, split: str) -> Measured:
    """Evaluate, with the mean number of repeats if samples may exit early."""
    from odeum.looping import mean_repeats

    values, evidence = run.examine(split)
    repeats = mean_repeats(run.model)
    return Measured(directory, solver_of(run), values if repeats is None else values | {"repeats": repeats}, evidence)


def refuse_other_data(runs: list[Run]) -> None:
    """Raise `OdeumError` for runs on different data."""
    marks = [RunDir(run.directory).run().get("fingerprint") for run in runs]
    for run, mark in zip(runs, marks, strict=True):
        if mark != marks[0]:
            raise OdeumError(
                f"'{run.directory}' was trained on other data or another split than '{runs[0].directory}'; "
                "evaluate them separately"
            )


def solver_of(run: Run) -> str:
    """The solver of the first layer, as text; all layers have the same."""
    from odeum.flow import Flow
    from odeum.looping import Looped

    flow = next((part for part in run.model.modules() if isinstance(part, Flow)), None)
    if flow is None:
        return "none"
    loop = next((part for part in run.model.modules() if isinstance(part, Looped)), None)
    times = "" if loop is None else f", core {loop.repeats} times"
    return _solver_text(flow.solver) + times + (f" or to {loop.exit:g}" if loop is not None and loop.exit else "")


def _solver_text(solver: Any) -> str:
    """A solver as text, such as `rk4, 2 steps per layer`."""
    method, steps = getattr(solver, "method", None), getattr(solver, "steps", None)
    if method is None:
        inner = getattr(solver, "solver", None)
        return type(solver).__name__ + (f" of {_solver_text(inner)}" if inner is not None else "")
    tableau = getattr(getattr(method, "tableau", None), "name", None)
    name = str(tableau or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(method).__name__)).lower()
    return name if steps is None else f"{name}, {steps} step{'' if steps == 1 else 's'} per layer"


def _shown(measured: list[Measured], split: str, form: str) -> str:
    if form == "json":
        if len(measured) == 1:
            return json.dumps(measured[0].values, indent=1)
        return json.dumps([{"run": m.run, "split": split, "solver": m.solver, **m.values} for m in measured], indent=1)
    names = list(dict.fromkeys(name for m in measured for name in m.values))
    if form == "csv":
        return to_csv(
            [
                {"run": m.run, "split": split, "solver": m.solver}
                | {name: f"{m.values[name]:.6g}" if name in m.values else "" for name in names}
                for m in measured
            ]
        ).rstrip("\n")
    columns = [Column("run", ["split", "solver", *names], words=True)]
    for m in measured:
        values = [f"{m.values[name]:.6g}" if name in m.values else "–" for name in names]
        columns.append(Column(_short(m.run), [split, m.solver, *values], words=True))
    if form == "md":
        return Grid(columns).markdown().rstrip("\n")
    if len(measured) > 1:
        heads = ["column", *map(str, range(1, len(measured) + 1))]
        columns = [Column(head, [c.head, *c.cells], words=True) for head, c in zip(heads, columns, strict=True)]
    return Grid(columns).blocks()


def _short(directory: str) -> str:
    """The last two parts of a path."""
    return "/".join(Path(directory).parts[-2:])


def _differences(measured: list[Measured]) -> list[str]:
    """Mean differences of losses, paired by example: a changed solver against its model, others against the first.

    They are about these trained models, not about architectures.
    """
    from odeum.lab.study.statistics import paired_mean

    out = []
    for index, other in enumerate(measured[1:], 2):
        against = index - 1 if measured[index - 2].run == other.run else 1
        first = measured[against - 1]
        if first.evidence is None or other.evidence is None:
            continue
        change = paired_mean((other.evidence.losses.double() - first.evidence.losses.double()).tolist())
        if change is None:
            continue
        out.append(
            f"loss of column {index} minus column {against}, mean over examples, paired: {change.mean:+.4g} "
            f"[{change.low:+.4g}, {change.high:+.4g}] (95 %{' each' if len(measured) > 2 else ''}, {change.n} examples)"
        )
    if out:
        out.append("(about these trained models; other seeds of their architectures may differ)")
    return out
