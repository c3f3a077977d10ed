"""`odeum refine RUN [DATA …]`: a trained or imported model under other solvers, steps and intervals."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from odeum.errors import OdeumError
from odeum.lab.commands.options import Parser
from odeum.lab.commands.request import command_line
from odeum.lab.study.grid import Grid
from odeum.storage import make_directory, new_directory, write_bytes

if TYPE_CHECKING:
    from odeum.lab.study.refining import Refined, Sweep, Variant
    from odeum.lab.tasks import Task
    from odeum.lab.tasks.run import Run

POST_NORM = (
    "post-norm has no small-step limit: a step of length dt ends in a norm of x + dt f, so more steps are not a finer "
    "solution of one equation, and a model trained with unit steps need not gain by them"
)


def run(argv: list[str]) -> int:
    parser = Parser(
        "refine",
        "Evaluate a model with other methods and numbers of steps and, if all layers share weights, over other "
        "intervals: quality against evaluations of attention. Losses are paired by example with those of the trained "
        "model.",
    )
    parser.add_argument("run", type=str, help="run directory, trained or imported")
    parser.add_argument("data", nargs="*", type=str, help="data of the same kind (default: the test part of the run)")
    parser.add_argument("--out", type=str, default=None, help="directory for refine.json, refine.md and refine.svg")
    parser.add_argument("--save", type=str, default=None, help="directory to which a variant is saved as a run")
    parser.add_argument("--variant", type=int, default=None, help="variant to save (default: the cheapest)")
    given = parser.read(argv)
    if given.get("variant") is not None and given.get("save") is None:
        raise OdeumError("--variant chooses what --save writes; add --save DIRECTORY")

    from odeum.kernels.matmul import use_onednn
    from odeum.lab.study.refining import Sweep, cheapest
    from odeum.lab.tasks.run import load

    use_onednn()
    with contextlib.ExitStack() as places:
        target = None if given.get("save") is None else places.enter_context(new_directory(given["save"]))
        if given.get("out") is not None:
            make_directory(Path(given["out"]))
        source = load(given["run"])
        task = _open_data(source, given.get("data") or [])
        sweep = Sweep(source.model, task)  # ty: ignore[invalid-argument-type]
        variants, number = sweep.variants(), given.get("variant")
        if number is not None:
            if not 1 <= number <= len(variants):
                raise OdeumError(f"--variant {number} must be from 1 to {len(variants)}, the rows of the table")
            _refuse_nameless(variants[number - 1])
        results = sweep.run()
        best = cheapest(results, task.metric, task.higher_is_better)
        text = _table(results, task, sweep, best)
        if given.get("out") is not None:
            _write(Path(given["out"]), results, best, text, given["run"])
        if target is not None:
            _save(target, source, best.variant if number is None else variants[number - 1])
    print(text)
    if target is not None:
        print(f"run: {given['save']}")
    return 0


def _refuse_nameless(variant: Variant) -> None:
    if variant.saved is None:
        raise OdeumError(f"'{variant.label}' has no name as an architecture and cannot be saved; choose another")


def _save(target: Path, source: Run, variant: Variant) -> None:
    """The variant as a run, with the weights that were trained."""
    from odeum.lab.train.origin import load_initial_weights, write_run
    from odeum.models import assemble
    from odeum.models.base import OdeumModel

    _refuse_nameless(variant)
    assert variant.saved is not None
    model = assemble(*variant.saved)
    assert isinstance(model, OdeumModel)
    load_initial_weights(model, source.directory)
    origin = {"refined": str(source.directory), "variant": variant.label}
    write_run(target, model.eval(), source.task, origin, command_line())


def _open_data(source: Run, data: list[str]) -> Task:
    from odeum.lab.tasks import open_task

    if not data:
        return source._reopened()
    task = open_task(*data, like=source.task)
    task.test_on_everything()
    return task


def _table(results: list[Refined], task: Task, sweep: Sweep, best: Refined) -> str:
    names = list(results[0].scores)
    paired = any(row.change is not None for row in results)
    heads = ["", "method", "steps", "interval", "evaluations", *names, *(["change of loss", ""] if paired else [])]
    lines = []
    for number, row in enumerate(results, 1):
        v, change = row.variant, row.change
        cells = [str(number), v.method, str(v.steps), f"[0, {v.end:g}]", str(row.evaluations)]
        text = "" if change is None else f"{change.mean:+.3g} [{change.low:+.3g}, {change.high:+.3g}]"
        lines.append([*cells, *(f"{row.scores[n]:.4g}" for n in names), *([text, row.verdict] if paired else [])])
    out = [Grid.of(heads, lines, (1, len(heads) - 1)).markdown().rstrip("\n")]
    out += ["", f"cheapest that is not shown to lose anything: {best.variant.label} ({best.evaluations} evaluations)"]
    out += [f"refused: {name}: {reason}" for name, reason in sweep.refused.items()]
    if getattr(sweep.model.architecture, "norm", "") in ("post", "post-sum"):
        out.append(POST_NORM)
    return "\n".join(out)


def _write(directory: Path, results: list[Refined], best: Refined, text: str, run: str) -> None:
    from odeum.lab.train.provenance import versions

    rows = [
        {
            "variant": r.variant.label,
            "evaluations": r.evaluations,
            **r.scores,
            "change": None if r.change is None else [r.change.mean, r.change.low, r.change.high],
            "verdict": r.verdict,
        }
        for r in results
    ]
    about = {"command": command_line(), "run": run, "cheapest": best.variant.label, "versions": versions()}
    write_bytes(directory / "refine.json", json.dumps({**about, "rows": rows}, indent=1).encode())
    write_bytes(directory / "refine.md", f"`{command_line()}`\n\n{text}\n".encode())
    write_bytes(directory / "refine.svg", _plot(results, best))


def _plot(results: list[Refined], best: Refined) -> bytes:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    groups: dict[str, list[Refined]] = {}
    first = results[0]
    for row in results:
        v, trained = row.variant, first.variant
        name = "as trained" if row is first else v.method
        if v.method == trained.method and v.end != trained.end:
            name = "unit steps, another interval"
        elif v.method == trained.method and v.steps != trained.steps:
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
    picture = io.BytesIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    plt.close(figure)
    return picture.getvalue()
