"""`odeum compare DATA`: the main job."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from odeum.errors import choose, notice
from odeum.lab.commands.options import Parser, known_architectures, model_names
from odeum.lab.commands.request import (
    DRY_RUN,
    TRACK,
    command_line,
    folder_name,
    open_request,
    print_config,
    read_request,
    refuse_processes,
    tell_before,
)
from odeum.lab.study.plan import check_plan
from odeum.lab.study.seeds import NO_BASELINE, Seeds
from odeum.lab.train.distributed.ranks import complain, is_main, leave
from odeum.registry.names import ARCHITECTURES, Architecture
from odeum.registry.spelling import parse, spell, split_spellings

DEFAULT = "sequential,parallel,rk4,macaron,transevolve"


def run(argv: list[str]) -> int:
    parser = Parser(
        "compare",
        "Train each architecture under one recipe, with the same seeds and batches, and say which is worth it. "
        "Runs that are there already are not repeated. Each data set brings its own defaults: see --print_config. "
        f"--model NAME starts from one of: {model_names()}.",
    )
    parser.add_argument(
        "--architectures",
        type=str,
        default=DEFAULT,
        help=f"names with commas between; the first is the baseline; known: {', '.join(ARCHITECTURES)}",
    )
    parser.add_argument(
        "--seeds",
        type=int | str,
        default=3,
        help="runs of each architecture; auto: as many as it takes, at most 12 (auto:24: at most 24)",
    )
    parser.add_argument(
        "--margin",
        type=str,
        default=None,
        help="the difference that matters, said before the run: 0.5 (points of accuracy, BLEU …) or 2 % of the "
        "baseline's value (none: 1 point, 0.5 BLEU, 1 % of a loss)",
    )
    parser.add_argument(
        "--judge", type=str, default=None, help="what decides: metric or loss; the other is shown (none: metric)"
    )
    parser.add_argument(
        "--vary",
        type=str,
        default="seed",
        help="from seed to seed: seed (weights and batches), or split (also the examples held out; no official test)",
    )
    parser.add_argument(
        "--match",
        type=str,
        default=None,
        help="held equal: steps, time, macs or params (none: time with --budget, else steps)",
    )
    parser.add_argument(
        "--budget", type=str, default=None, help="training time of each run: 90s, 10m, 2h (none: epochs)"
    )
    parser.add_argument(
        "--baseline", type=str, default=None, help="what others are compared with: the first, or `none`: each with each"
    )
    parser.add_argument(
        "--out", type=str, default=None, help="directory of runs and report (none: runs/compare-DATA-SETTINGS)"
    )
    parser.add_argument("--overwrite", action="store_true", help="begin its runs again where there are some")
    parser.add_argument(
        "--jobs", type=int | str, default="auto", help="runs at once: a number, or auto: all cores or GPUs"
    )
    parser.add_argument(
        "--on", type=str, default=None, help="where to run: ray[:address] or slurm[:partition] (none: this machine)"
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing while the runs go on")
    parser.add_argument("--format", type=str, default="text", help="of the printed table: text, md, csv or json")
    parser.add_argument("--track", type=str, default=None, help=TRACK)
    parser.add_argument("--dry_run", "--dry-run", action="store_true", help=DRY_RUN)
    parser.add_argument("--print_config", action="store_true", help="print the whole configuration and stop")
    request = read_request(parser, argv)
    given = request.given
    form = choose(given.get("format", "text"), ("text", "md", "csv", "json"), "format")
    if given.get("budget"):
        given["train"] = {**given.get("train", {}), "budget": given["budget"]}
    names = split_spellings(known_architectures(given.get("architectures", DEFAULT)))
    architectures = {name: parse(name) for name in names}
    _tell_twins(architectures, names)
    seeds = Seeds.parse(given.get("seeds", 3))
    baseline = given.get("baseline")
    baseline = baseline if baseline in (None, NO_BASELINE) else known_architectures(baseline)
    first = None if baseline in (None, NO_BASELINE) else architectures.get(baseline) or parse(baseline)
    match = given.get("match") or ("time" if given.get("train", {}).get("budget") else "steps")

    from odeum.lab.commands.board import Board
    from odeum.lab.study.comparison import Comparison, compare, foresee
    from odeum.lab.study.metric import metric_named
    from odeum.lab.study.report import cut_note, data_notes, hidden_note, read, rows, table, write
    from odeum.lab.train.interrupt import Interrupted
    from odeum.registry.plugins import named_plugins
    from odeum.storage import out_directory

    check_plan(match, names, given.get("train", {}).get("budget"))
    task, model, training = open_request(request)
    if given.get("print_config"):
        chosen = {"architectures": ",".join(names), "baseline": baseline, "match": match}
        chosen |= {"seeds": given.get("seeds", 3), "margin": given.get("margin"), "judge": given.get("judge")}
        print_config(request, task, model, training, chosen)
        return 0
    directory = out_directory(given.get("out"), Path("runs") / f"compare-{folder_name(task, model, training)}")
    job = Comparison(
        task,
        model,
        training,
        list(architectures.values()),
        seeds,
        match,
        directory,
        first,
        command_line(),
        given.get("overwrite", False),
        baseline == NO_BASELINE,
        given.get("judge"),
        given.get("margin"),
        str(given.get("jobs", "auto")),
        given.get("on"),
        given.get("vary", "seed"),
        named_plugins(),
    )
    if given.get("dry_run"):
        refuse_processes()
        tell_before(task, foresee(job))
        return 0
    quiet = bool(given.get("quiet")) or not is_main()
    try:
        with Board(task.metric, metric_named(task.metric, task.higher_is_better).share, quiet=quiet) as board:
            failures = compare(
                job,
                board,
                after_look=None if quiet else lambda: _show(directory),
                before=None if quiet else lambda cost: tell_before(task, cost),
            )
    except Interrupted as stop:
        complain(stop)
        return leave(stop.code)
    if not is_main():
        return 0
    report = write(directory)
    found = read(directory)
    made = rows(found)
    print(table(made, form))
    told = [*report.remarks, *data_notes(found), *cut_note(made), *hidden_note(found)]
    remarks = [f"note: {note.replace('`', '')}\n" for note in told]
    print(f"{report.headline}\n{''.join(remarks)}report: {report.page}", file=sys.stderr)
    for failure in failures:
        print(f"odeum: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _tell_twins(architectures: Mapping[str, Architecture], names: Sequence[str]) -> None:
    """Two spellings of one architecture are one row; whoever wrote both learns why there is one."""
    first: dict[str, str] = {}
    for name in names:
        own = spell(architectures[name])
        if own in first:
            same = "is named twice" if name == first[own] else f"is the same architecture as {first[own]}"
            notice(f"{name} {same}, so it is one row of the table")
        first.setdefault(own, name)


def _show(directory: Path) -> None:
    """The table so far, while the other seeds are still to come."""
    from odeum.lab.study.report import read, rows, table

    if is_main():
        print(f"\n{table(rows(read(directory)))}", file=sys.stderr)
