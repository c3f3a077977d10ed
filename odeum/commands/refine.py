"""`odeum refine RUN [DATA …]`: a trained or imported model under other solvers, steps and intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.commands.options import Parser
from odeum.commands.request import command_line
from odeum.errors import OdeumError

if TYPE_CHECKING:
    from odeum.compare.refining import Refined, Sweep
    from odeum.tasks import Task

POST_NORM = (
    "post-norm has no small-step limit: a step of length dt ends in a norm of x + dt f, so more steps are not a finer "
    "solution of one equation, and a model trained with unit steps need not gain by them"
)


def run(argv: list[str]) -> int:
    parser = Parser(
        "refine",
        "Evaluate one model under other methods and numbers of steps and, where one layer acts at every depth, over "
        "shorter and longer intervals: quality against evaluations of attention. The loss is paired by example with "
        "that of the model as it was trained.",
    )
    parser.add_argument("run", type=str, help="run directory, trained or imported")
    parser.add_argument(
        "data", nargs="*", type=str, help="data read as that of the run (none: the run's own test part)"
    )
    parser.add_argument("--out", type=str, default=None, help="directory for refine.json, refine.md and refine.svg")
    parser.add_argument("--save", type=str, default=None, help="write a variant as a run to this directory")
    parser.add_argument("--variant", type=int, default=None, help="number of the variant to save (none: the cheapest)")
    given = parser.read(argv)
    if given.get("variant") is not None and given.get("save") is None:
        raise OdeumError("--variant says which one --save writes; name a directory with --save")

    from odeum.compare.refining import Sweep, cheapest
    from odeum.models.base import OdeumModel
    from odeum.tasks.run import load
    from odeum.train.origin import new_run, write_run

    target = None if given.get("save") is None else new_run(given["save"])
    own = load(given["run"])
    assert isinstance(own.model, OdeumModel)
    task = _opened(own, given.get("data") or [])
    sweep = Sweep(own.model, task)
    found = sweep.run()
    best = cheapest(found, task.metric, task.higher_is_better)
    text = _table(found, task, sweep, best)
    print(text)
    if given.get("out") is not None:
        _write(Path(given["out"]), found, best, text, given["run"])
    if target is not None:
        number = given.get("variant")
        if number is not None and not 1 <= number <= len(found):
            raise OdeumError(f"--variant {number} is none of the {len(found)} rows of the table")
        chosen = best if number is None else found[number - 1]
        if chosen.variant.saved is None:
            raise OdeumError(
                f"'{chosen.variant.label}' has no name as an architecture, so it cannot be a run of its own"
            )
        from odeum.models import assemble
        from odeum.train.origin import begin_with

        model = assemble(*chosen.variant.saved)
        assert isinstance(model, OdeumModel)
        begin_with(model, Path(given["run"]))
        origin = {"refined": given["run"], "variant": chosen.variant.label}
        write_run(target, model.eval(), own.task, origin, command_line())
        print(f"run: {target}")
    return 0


def _opened(own: Any, data: list[str]) -> Task:
    from odeum.tasks import open_task

    if not data:
        return own._reopened()
    task = open_task(*data, like=own.task)
    task.as_one()
    return task


def _table(found: list[Refined], task: Task, sweep: Sweep, best: Refined) -> str:
    names = list(found[0].scores)
    paired = any(row.change is not None for row in found)
    head = ["", "method", "steps", "interval", "evaluations", *names, *(["change of loss", ""] if paired else [])]
    lines = [head]
    for number, row in enumerate(found, 1):
        v = row.variant
        change = "" if row.change is None else f"{row.change[0]:+.3g} [{row.change[1]:+.3g}, {row.change[2]:+.3g}]"
        cells = [str(number), v.method, str(v.steps), f"[0, {v.end:g}]", str(row.evaluations)]
        lines.append([*cells, *(f"{row.scores[n]:.4g}" for n in names), *([change, row.verdict] if paired else [])])
    out = [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines[1:]]]
    out += ["", f"cheapest that is not shown to lose anything: {best.variant.label} ({best.evaluations} evaluations)"]
    out += [f"refused: {name}: {reason}" for name, reason in sweep.refused.items()]
    if getattr(sweep.model.architecture, "norm", "") in ("post", "post-sum"):
        out.append(POST_NORM)
    return "\n".join(out)


def _write(directory: Path, found: list[Refined], best: Refined, text: str, run: str) -> None:
    from odeum.storage import make_directory
    from odeum.train.provenance import versions

    make_directory(directory)
    rows = [
        {"variant": r.variant.label, "evaluations": r.evaluations, **r.scores, "change": r.change, "verdict": r.verdict}
        for r in found
    ]
    about = {"command": command_line(), "run": run, "cheapest": best.variant.label, "versions": versions()}
    (directory / "refine.json").write_text(json.dumps({**about, "rows": rows}, indent=1), encoding="utf-8")
    (directory / "refine.md").write_text(f"`{command_line()}`\n\n{text}\n", encoding="utf-8")
    _plot(directory / "refine.svg", found, best)


def _plot(path: Path, found: list[Refined], best: Refined) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    groups: dict[str, list[Refined]] = {}
    first = found[0]
    for row in found:
        v, own = row.variant, first.variant
        name = "as trained" if row is first else v.method
        if v.method == own.method and v.end != own.end:
            name = "unit steps, another interval"
        elif v.method == own.method and v.steps != own.steps:
            name = "other steps, same interval"
        groups.setdefault(name, []).append(row)
    for name, rows in groups.items():
        rows = sorted(rows, key=lambda row: row.evaluations)
        axes.plot([r.evaluations for r in rows], [r.scores["loss"] for r in rows], "o-", label=name, markersize=4)
    axes.axhline(first.scores["loss"], color="grey", linewidth=0.8, linestyle=":")
    axes.plot(
        [best.evaluations], [best.scores["loss"]], "*", color="black", markersize=12, label="cheapest, no loss shown"
    )
    axes.set(xlabel="evaluations of attention", ylabel="loss", yscale="log")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
