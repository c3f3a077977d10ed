"""`odeum table NAME`: a paper's table beside ours, from kept results, or after training what is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.lab.papers import TABLES, table_named
from odeum.lab.papers.base import SCALES, PaperTable, TableRow
from odeum.lab.papers.judging import read_results
from odeum.lab.papers.printing import list_tables, print_table
from odeum.lab.papers.store import Store, results_home
from odeum.lab.study.formats import FORMATS
from odeum.lab.study.seeds import Seeds
from odeum.storage import out_directory

TableRows = list[tuple[PaperTable, tuple[TableRow, ...]]]


def run(argv: list[str]) -> int:
    given = _parser().read(argv)
    form = choose(given.get("format", "text"), FORMATS, "format")
    names = given.get("tables") or []
    if given.get("list"):
        print(list_tables([table_named(name) for name in names] or list(TABLES.values())), end="")
        return 0
    if not names:
        raise OdeumError(f"missing: the table; known: {', '.join(TABLES)}")
    scale = choose(given.get("scale", "laptop"), SCALES, "scale")
    chosen = [(table, table.select(given.get("rows"))) for table in map(table_named, names)]
    seeds = None if given.get("seeds") is None else Seeds.parse(given["seeds"])
    for table, _ in chosen:
        choose(scale, table.scales, f"scale of {table.name}")
        if seeds is not None and seeds.auto and seeds != table.seeds:
            raise OdeumError(
                f"{table.name} is looked at as its recipe says, {table.seeds}; say --seeds auto, not {seeds}"
            )
    store = Store(Path(given["results"]) if given.get("results") else results_home())
    if given.get("dry_run"):
        return _foresee(chosen, scale, store, given.get("tflops", 10.0))
    if given.get("fresh"):
        return _again(chosen, scale, seeds or Seeds(1), store, given)
    if given.get("pace"):
        _measure(chosen, scale, store, given)
    code = 0 if seeds is None else _train(chosen, scale, seeds, store, given)
    for table, rows in chosen:
        result = read_results(table, scale, store)
        print(print_table(result, form, {row.name for row in rows}), end="")
        if given.get("report"):
            from odeum.lab.papers.table_page import write_table

            print(f"report: {write_table(result, Path(given['report']))}", file=sys.stderr)
    return code


def _parser() -> Parser:
    parser = Parser(
        "table",
        "A table of a paper: its figures beside ours, and a verdict a claim. Printed from the results that are kept; "
        f"--seeds trains what is missing. Tables: {', '.join(TABLES)}.",
    )
    parser.add_argument("tables", nargs="*", type=str, metavar="TABLE", help="one or several, such as zhong2022/table1")
    parser.add_argument("--list", action="store_true", help="every table with its rows and claims")
    parser.add_argument("--scale", type=str, default="laptop", help="laptop, or paper: the published setting")
    parser.add_argument(
        "--seeds",
        type=int | str,
        default=None,
        help="train what is missing: so many seeds a row; auto: as many as the claims take (none: nothing is trained)",
    )
    parser.add_argument("--rows", type=str, default=None, help="names with commas between, `claims`, or `all`")
    parser.add_argument(
        "--fresh", action="store_true", help="train the rows again, --seeds of each, and compare with what is kept"
    )
    parser.add_argument("--pace", action="store_true", help="time steps, in turns, of the rows of claims about speed")
    parser.add_argument("--dry_run", "--dry-run", action="store_true", help="what the runs would cost; nothing is read")
    parser.add_argument(
        "--tflops", type=float, default=10.0, help="of --dry-run: hardware that sustains so many TFLOP/s"
    )
    parser.add_argument(
        "--report", type=str, default=None, help="also write a page, Markdown, CSV and plots below here"
    )
    parser.add_argument("--results", type=str, default=None, help="directory of kept results (none: results/tables)")
    parser.add_argument("--out", type=str, default=None, help="directory of the runs (none: runs/table)")
    parser.add_argument(
        "--jobs", type=int | str, default="auto", help="runs at once: a number, or auto: all cores or GPUs"
    )
    parser.add_argument("--on", type=str, default=None, help="where to run: ray[:address] or slurm[:partition]")
    parser.add_argument("--format", type=str, default="text", help="text, md, csv or json")
    parser.add_argument("--quiet", action="store_true", help="say nothing while the runs go on")
    return parser


def _foresee(chosen: TableRows, scale: str, store: Store, teraflops: float) -> int:
    from odeum.lab.papers.costs import cost_grid

    if not 0 < teraflops < float("inf"):
        raise OdeumError(f"--tflops should be a positive number, not {teraflops:g}")
    for table, rows in chosen:
        print(f"{table.name}, {scale} scale: one run a row\n\n{cost_grid(table, rows, scale, store, teraflops).text()}")
    return 0


def _again(chosen: TableRows, scale: str, seeds: Seeds, store: Store, given: dict[str, Any]) -> int:
    """Train rows anew, in a folder of their own, and say how they lie beside what is kept."""
    from odeum.lab.papers.fresh import beside_kept

    if seeds.auto:
        raise OdeumError("--fresh trains a number of seeds, such as --seeds 1, not auto")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    directory = out_directory(given.get("out"), Path("runs") / "table") / f"fresh-{stamp}"
    fresh = Store(directory / "results")
    code = _train(chosen, scale, seeds, fresh, {**given, "out": str(directory)})
    for table, rows in chosen:
        for found in beside_kept(table, scale, rows, fresh, store):
            print(f"{table.name}: {found.sentence}")
            code = code or (0 if found.holds else 1)
    return code


def _train(chosen: TableRows, scale: str, seeds: Seeds, store: Store, given: dict[str, Any]) -> int:
    from odeum.lab.commands.board import Board
    from odeum.lab.commands.request import command_line
    from odeum.lab.launch.launcher import launcher
    from odeum.lab.papers.running import RUN_THREADS, Jobs, TableRuns, train_missing
    from odeum.lab.train.distributed.ranks import complain, leave
    from odeum.lab.train.interrupt import Interrupted
    from odeum.registry.plugins import named_plugins

    directory = out_directory(given.get("out"), Path("runs") / "table")
    jobs, failures = Jobs(directory, command_line(), named_plugins()), []
    try:
        with launcher(given.get("on"), str(given.get("jobs", "auto")), RUN_THREADS, directory) as launch:
            for table, rows in chosen:
                with Board(table.metric, table.judged.share, quiet=bool(given.get("quiet"))) as board:
                    runs = TableRuns(table, scale, rows, seeds, store, jobs)
                    failures += train_missing(runs, launch, board)
    except Interrupted as stop:
        complain(stop)
        return leave(stop.code)
    return _tell(failures)


def _measure(chosen: TableRows, scale: str, store: Store, given: dict[str, Any]) -> None:
    from odeum.lab.commands.request import command_line
    from odeum.lab.papers.running import Jobs, measure_paces

    jobs = Jobs(out_directory(given.get("out"), Path("runs") / "table"), command_line())
    for table, _ in chosen:
        for path in measure_paces(table, scale, store, jobs):
            print(f"measured: {path}", file=sys.stderr)


def _tell(failures: Sequence[str]) -> int:
    for failure in failures:
        print(f"odeum: {failure}", file=sys.stderr)
    return 1 if failures else 0
