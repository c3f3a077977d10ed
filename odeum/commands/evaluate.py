"""`odeum evaluate RUN`: also with another solver or number of steps than it was trained with."""

from __future__ import annotations

import json
import sys

from odeum.commands.options import Parser
from odeum.errors import choose
from odeum.settings.architecture import METHODS


def run(argv: list[str]) -> int:
    parser = Parser("evaluate", "Evaluate a run on its data, also with another solver or number of steps.")
    parser.add_argument("run", type=str, help="run directory")
    parser.add_argument("--split", type=str, default="test", help="valid or test")
    parser.add_argument("--solver", type=str, default=None, help=f"another method: {', '.join(METHODS)}")
    parser.add_argument("--steps", type=int, default=None, help="another number of steps a layer")
    parser.add_argument("--format", type=str, default="text", help="text, md, csv or json")
    said = parser.read(argv)
    form = choose(said.get("format", "text"), ("text", "md", "csv", "json"), "format")

    from odeum.tasks.run import load

    run = load(said["run"]).solve_by(said.get("solver"), said.get("steps"))
    print(_shown(run.evaluate(said.get("split", "test")), form))
    for note in run.task.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _shown(values: dict[str, float], form: str) -> str:
    match form:
        case "json":
            return json.dumps(values, indent=1)
        case "csv":
            return ",".join(values) + "\n" + ",".join(f"{v:.6g}" for v in values.values())
        case "md":
            return "| metric | value |\n|---|---|\n" + "\n".join(f"| {k} | {v:.6g} |" for k, v in values.items())
    return "\n".join(f"{name:16}{value:.6g}" for name, value in values.items())
