"""`odeum inspect RUN [INPUT …]`: what the tokens of a run do on their way through its layers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.lab.commands.request import command_line
from odeum.lab.study.grid import FORMATS, to_csv
from odeum.lab.terminal import to_json
from odeum.registry.names import METHODS
from odeum.storage import make_directory, read_json, write_bytes

if TYPE_CHECKING:
    from odeum.lab.study.inspecting import Look
    from odeum.lab.tasks.run import Run

EXAMPLES = 32


def run(argv: list[str]) -> int:
    parser = Parser(
        "inspect",
        "Measure what tokens do on their way through the layers: how far they move and turn, how alike they become, "
        "how large each sublayer's branch is, and the answer if depth ended there. Without inputs a sample of the "
        "run's test part is measured. --solver and --steps show the same run integrated otherwise beside the original.",
    )
    parser.add_argument("run", type=str, help="run directory, trained or imported")
    parser.add_argument(
        "inputs", nargs="*", type=str, help="inputs as for `odeum predict` (default: a sample of the test part)"
    )
    parser.option("text", "a text or prompt instead of files; may be repeated", action="append")
    parser.option("text-file", "a file with one text; may be repeated", action="append")
    parser.option("column", "text column of a table (default: as in training)")
    parser.option("examples", "largest number of sequences to measure", int, default=EXAMPLES)
    parser.option("layers", "layers to show, such as 3-8 (default: all)")
    parser.option("local-error", "also compare each layer's step with two half steps", bool)
    parser.option("lyapunov", "also compute this many leading Lyapunov exponents", int)
    parser.option("solver", f"another method to show alongside: {', '.join(METHODS)}")
    parser.option("steps", "number of steps per layer of the second measurement", float)
    parser.option("beside", "another run on the same data to show alongside")
    parser.shared("format")
    parser.option("out", "directory for page.html, particles.png, table.csv, inspection.json")
    given = parser.read(argv)
    form = choose(given.get("format") or "text", FORMATS, "format")
    layers = read_layers(given.get("layers"))
    examples = EXAMPLES if given.get("examples") is None else given["examples"]
    if examples < 1:
        raise OdeumError(f"--examples {examples} must be at least 1")
    if (given.get("text") or given.get("text_file")) and given.get("inputs"):
        raise OdeumError(f"give either {'--text' if given.get('text') else '--text-file'} or files, not both")
    out = None if given.get("out") is None else Path(given["out"])

    from odeum.lab.study import inspecting

    looks, sample = _looks(given, examples, layers)
    if out is not None:
        make_directory(out)
        write_bytes(out / "table.csv", to_csv(inspecting.records(looks)).encode())
        about = {"command": command_line(), "sample": sample, "models": [inspecting.as_json(look) for look in looks]}
        write_bytes(out / "inspection.json", to_json(about, indent=1).encode())
        write_bytes(out / "particles.png", inspecting.picture(looks))
        write_bytes(out / "page.html", inspecting.page(looks, sample, command_line()).encode())
    print(_shown(looks, sample, form))
    if out is not None and form in ("text", "md"):
        print(f"page: {out / 'page.html'}")
    return 0


def read_layers(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    if match is None:
        raise OdeumError(f"--layers {text} must be one number or two with a hyphen, such as 3-8; the first layer is 0")
    first = int(match[1])
    return first, int(match[2] or first)


def _looks(given: dict[str, Any], examples: int, layers: tuple[int, int] | None) -> tuple[list[Look], str]:
    """The run, the run under another solver, and another run, each on the same input; and what was measured."""
    from odeum.lab.commands.evaluate import refuse_other_data, solver_of
    from odeum.lab.study.inspecting import look, taken_sample
    from odeum.lab.tasks.run import load

    changes = {name: given.get(name) for name in ("solver", "steps")}
    changed = any(value is not None for value in changes.values())
    runs = [load(given["run"])]
    if changed:
        runs.append(load(given["run"]).solve_by(**changes))
    if given.get("beside") is not None:
        runs.append(load(given["beside"]))
    named = bool(given.get("inputs") or given.get("text") or given.get("text_file"))
    if not named:
        refuse_other_data(runs)
    looks, sample = [], ""
    for each in runs:
        inputs = _inputs(each, given)
        task = each.task if inputs is not None else _with_data(each)
        batch = taken_sample(task, each.model, inputs if inputs is None else inputs[:examples], examples)
        count = next(iter(batch.values())).shape[0]
        sample = f"{count} example{'' if count == 1 else 's'} of the test part"
        if inputs is not None:
            left = f" of {len(inputs)}" if count < len(inputs) else ""
            sample = f"{count}{left} input{'' if len(inputs) == 1 else 's'}"
        label = f"{Path(each.directory).name or each.directory} ({solver_of(each)})"
        looks.append(
            look(
                label,
                each,
                task,
                batch,
                errors=bool(given.get("local_error")),
                exponents=given.get("lyapunov"),
                layers=layers,
            )
        )
    return looks, sample


def _with_data(run: Run) -> Any:
    """The task with its data; raises `OdeumError` if an input is needed instead."""
    if not read_json(run.directory / "task.json").get("data"):
        raise OdeumError(
            f"'{run.directory}' was imported and has no test part; give an input, such as "
            f"`odeum inspect {run.directory} {'picture.png' if hasattr(run.task, 'mean') else '--text TEXT'}`"
        )
    return run._reopened()


def _inputs(run: Run, given: dict[str, Any]) -> list[Any] | None:
    """The given inputs, read as `odeum predict` reads them; None for a sample of the run's data."""
    from odeum.lab.commands.predict import given_inputs
    from odeum.lab.tasks import KINDS

    if not (given.get("inputs") or given.get("text") or given.get("text_file")):
        if given.get("column") is not None:
            raise OdeumError("--column is for tables; give one, such as `odeum inspect RUN rows.csv --column NAME`")
        return None
    out = []
    for item in given_inputs("inspect", run, KINDS[run.task.kind], given):
        if item.error is not None:
            raise item.error
        out.append(run.task.prepare(item.text))
    if not out:
        raise OdeumError("the given files have no input; give at least one")
    return out


def _shown(looks: list[Look], sample: str, form: str) -> str:
    from odeum.lab.study.inspecting import LYAPUNOV, advice_grid, as_json, branch_grid, follow_up, layer_grid, records

    if form == "json":
        return to_json({"sample": sample, "models": [as_json(look) for look in looks]}, indent=1)
    if form == "csv":
        return to_csv(records(looks)).rstrip("\n")
    lines = []
    for look in looks:
        lines += [f"{'## ' if form == 'md' else ''}{look.label}: {sample}", ""]
        grids = [("layers", layer_grid(look)), ("sublayers", branch_grid(look)), ("to try", advice_grid(look))]
        for name, grid in grids:
            lines.append(f"**{name}**\n" if form == "md" else f"{name}:")
            lines.append(grid.markdown() if form == "md" else grid.text())
        if look.exponents is not None:
            lines += [f"Lyapunov exponents: {', '.join(f'{x:.3g}' for x in look.exponents)}", LYAPUNOV, ""]
        lines += [f"note: {note}" for note in look.inspection.notes]
        lines.append(f"A row of 'to try' is a candidate from these examples, not a verdict: {follow_up(look)}")
    return "\n".join(lines)
