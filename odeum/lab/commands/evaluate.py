"""`odeum evaluate RUN …`: trained models beside each other, also under another solver or number of steps."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.lab.train.rundir import RunDir
from odeum.registry.names import METHODS

if TYPE_CHECKING:
    from odeum.lab.tasks.evidence import Evidence
    from odeum.lab.tasks.run import Run

EVALUATION_FORMATS = ("text", "md", "csv", "json")


class Measured(NamedTuple):
    """One model under one solver."""

    run: str
    solver: str
    values: dict[str, float]
    evidence: Evidence | None


def run(argv: list[str]) -> int:
    parser = Parser(
        "evaluate",
        "Evaluate runs on their data, also with another solver or number of steps, which then stands beside the "
        "original; the first is what the others are compared with, example by example.",
    )
    parser.add_argument("run", nargs="+", type=str, help="run directories, of one data set")
    parser.add_argument("--split", type=str, default="test", help="valid or test")
    parser.add_argument("--solver", type=str, default=None, help=f"another method: {', '.join(METHODS)}")
    parser.add_argument("--steps", type=float, default=None, help="another number of steps a layer")
    parser.add_argument("--repeats", type=int, default=None, help="another number of repeats of a looped model's core")
    parser.add_argument("--exit", type=float, default=None, help="end repeats where the state moves by a smaller share")
    parser.add_argument("--format", type=str, default="text", help="text, md, csv or json")
    given = parser.read(argv)
    form = choose(given.get("format", "text"), EVALUATION_FORMATS, "format")
    split = given.get("split", "test")
    changes = {name: given.get(name) for name in ("solver", "steps", "repeats", "exit")}

    from odeum.lab.tasks.run import load

    directories = list(dict.fromkeys(given["run"]))
    runs = [load(directory) for directory in directories]
    _refuse_other_data(runs)
    changed = any(value is not None for value in changes.values())
    found: list[Measured] = []
    for directory, own in zip(directories, runs, strict=True):
        # One changed model alone, for a program: that is all it asked for.
        if not (changed and form == "json" and len(runs) == 1):
            found.append(_measured(directory, own, split))
        if changed:
            own.solve_by(**changes)
            found.append(_measured(directory, own, split))
    print(_shown(found, split, form))
    if form in ("text", "md") and (sentences := _differences(found)):
        print(*([""] if form == "md" else []), *sentences, sep="\n")
    for note in dict.fromkeys(note for own in runs for note in own.task.notes):
        print(f"note: {note}", file=sys.stderr)
    return 0


def _measured(directory: str, own: Run, split: str) -> Measured:
    """With the mean number of repeats, where a sample may end them: what that saves."""
    from odeum.looping import mean_repeats

    values, evidence = own.examine(split)
    repeats = mean_repeats(own.model)
    return Measured(directory, _solver_of(own), values if repeats is None else values | {"repeats": repeats}, evidence)


def _refuse_other_data(runs: list[Run]) -> None:
    """Models of other data do not stand in one table."""
    marks = [RunDir(own.directory).run().get("fingerprint") for own in runs]
    for own, mark in zip(runs, marks, strict=True):
        if mark != marks[0]:
            raise OdeumError(
                f"'{own.directory}' was trained on other data, or another split of it, than '{runs[0].directory}'; "
                "evaluate them one by one"
            )


def _solver_of(own: Run) -> str:
    """How the model steps, as its first layer does: every layer has the same solver."""
    from odeum.flow import Flow
    from odeum.looping import Looped

    flow = next((part for part in own.model.modules() if isinstance(part, Flow)), None)
    if flow is None:
        return "none"
    loop = next((part for part in own.model.modules() if isinstance(part, Looped)), None)
    times = "" if loop is None else f", core {loop.repeats} times"
    return _solver_text(flow.solver) + times + (f" or to {loop.exit:g}" if loop is not None and loop.exit else "")


def _solver_text(solver: Any) -> str:
    """`RungeKutta(rk4), 2 steps a layer`, without the modules' own indentation."""
    method, steps = getattr(solver, "method", None), getattr(solver, "steps", None)
    if method is None:
        inner = getattr(solver, "solver", None)
        return type(solver).__name__ + (f" of {_solver_text(inner)}" if inner is not None else "")
    tableau = getattr(getattr(method, "tableau", None), "name", None)
    name = str(tableau or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(method).__name__)).lower()
    return name if steps is None else f"{name}, {steps} step{'' if steps == 1 else 's'} a layer"


def _shown(found: list[Measured], split: str, form: str) -> str:
    if form == "json":
        if len(found) == 1:
            return json.dumps(found[0].values, indent=1)
        return json.dumps([{"run": m.run, "split": split, "solver": m.solver, **m.values} for m in found], indent=1)
    names = list(dict.fromkeys(name for m in found for name in m.values))
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["run", "split", "solver", *names])
        for m in found:
            writer.writerow([m.run, split, m.solver, *(f"{m.values[n]:.6g}" if n in m.values else "" for n in names)])
        return out.getvalue().rstrip("\n")
    lines = [["run", *(_short(m.run) for m in found)], ["split", *(split for _ in found)]]
    lines += [["solver", *(m.solver for m in found)]]
    lines += [[name, *(f"{m.values[name]:.6g}" if name in m.values else "–" for m in found)] for name in names]
    if form == "md":
        rule = ["---"] * len(lines[0])
        return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])
    if len(found) > 1:
        lines.insert(0, ["column", *(str(number) for number in range(1, len(found) + 1))])
    return _within(lines, shutil.get_terminal_size((120, 24)).columns)


def _within(lines: list[list[str]], width: int) -> str:
    """Columns side by side as far as they fit, the others below, each time with the names at the left."""
    widths = [max(len(line[i]) for line in lines) + 2 for i in range(len(lines[0]))]
    groups, room = [[0]], width - widths[0]
    for i in range(1, len(widths)):
        if widths[i] - 2 > room and len(groups[-1]) > 1:
            groups.append([0])
            room = width - widths[0]
        groups[-1].append(i)
        room -= widths[i]
    blocks = [
        "\n".join("".join(f"{line[i]:{widths[i]}}" for i in group).rstrip() for line in lines) for group in groups
    ]
    return "\n\n".join(blocks)


def _short(directory: str) -> str:
    """The end of a long path, which is what differs."""
    return "/".join(Path(directory).parts[-2:])


def _differences(found: list[Measured]) -> list[str]:
    """Mean losses paired by example: a changed solver against its own model, other models against the first; of these
    trained models, not of architectures."""
    from odeum.lab.study.statistics import summarise, t_quantile

    out = []
    for index, other in enumerate(found[1:], 2):
        against = index - 1 if found[index - 2].run == other.run else 1
        first = found[against - 1]
        if first.evidence is None or other.evidence is None:
            continue
        summary = summarise((other.evidence.losses.double() - first.evidence.losses.double()).tolist())
        if summary is None or summary.spread is None:
            continue
        half = t_quantile(0.975, summary.n - 1) * summary.spread / summary.n**0.5
        low, high = summary.mean - half, summary.mean + half
        out.append(
            f"loss of column {index} minus column {against}, the mean over examples, paired: {summary.mean:+.4g} "
            f"[{low:+.4g}, {high:+.4g}] (95 %{' each' if len(found) > 2 else ''}, {summary.n} examples)"
        )
    if out:
        out.append("(these trained models on examples like these; other seeds of their architectures may differ)")
    return out
