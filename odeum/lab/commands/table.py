"""`odeum table NAME`: a table of a paper beside our results; trains missing runs with --seeds."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.lab.papers import TABLES, list_tables, table_named
from odeum.lab.papers.base import SCALES, PaperTable, TableRow
from odeum.lab.study.grid import FORMATS
from odeum.lab.study.judge import Seeds
from odeum.lab.study.runs import Store, kept_results
from odeum.storage import make_directory, out_directory

if TYPE_CHECKING:
    from odeum.lab.study.execute import TableRuns

TableRows = list[tuple[PaperTable, tuple[TableRow, ...]]]


def run(argv: list[str]) -> int:
    given = _parser().read(argv)
    form = choose(given.get("format", "text"), FORMATS, "format")
    names = given.get("tables") or []
    if given.get("list"):
        print(list_tables([table_named(name) for name in names] or list(TABLES.values())), end="")
        return 0
    if given.get("plan"):
        from odeum.lab.papers.plan import plan, plan_grid

        rows = plan(_store(given))
        grid = plan_grid([row for row in rows if not names or row.table in names], bool(names))
        print(grid.markdown() if form == "md" else grid.text(), end="")
        return 0
    if not names:
        raise OdeumError(f"missing: the table; known: {', '.join(TABLES)}")
    scale = choose(given.get("scale", "laptop"), SCALES, "scale")
    chosen = [(table, table.select(given.get("rows"))) for table in map(table_named, names)]
    seeds = None if given.get("seeds") is None else Seeds.parse(given["seeds"])
    for table, _ in chosen:
        choose(scale, table.scales, f"scale of {table.name}")
        if seeds is not None and seeds.auto and seeds != table.seeds:
            raise OdeumError(f"{table.name} has fixed looks, {table.seeds}; use --seeds auto, not {seeds}")
    store = _store(given)
    if given.get("dry_run"):
        return _forecast(chosen, scale, store, given.get("tflops", 10.0))
    if given.get("fresh"):
        return _again(chosen, scale, seeds or Seeds(1), store, given)
    if given.get("pace"):
        for each in _runs_of(chosen, scale, Seeds(1), store, given):
            for path in each.measure_paces():
                print(f"measured: {path}", file=sys.stderr)
    code = 0 if seeds is None else _train(_runs_of(chosen, scale, seeds, store, given), given)
    from odeum.lab.study.tables import paper_table

    for table, rows in chosen:
        findings = table.findings(scale, store)
        print(paper_table(findings, form, {row.name for row in rows}), end="")
        if given.get("report"):
            from odeum.lab.study.report import write_table

            print(f"report: {write_table(findings, Path(given['report']))}", file=sys.stderr)
    return code


def _parser() -> Parser:
    parser = Parser(
        "table",
        "Print a table of a paper beside our results, with a verdict per claim, from kept results. --seeds trains "
        f"missing runs. Tables: {', '.join(TABLES)}.",
    )
    parser.add_argument("tables", nargs="*", type=str, metavar="TABLE", help="tables, such as zhong2022/table1")
    parser.option("list", "list tables with their rows and claims", bool)
    parser.option("plan", "show planned and used core-hours per table", bool)
    parser.option("scale", "laptop or paper (the published setting)", default="laptop")
    parser.option("seeds", "train missing runs: seeds per row, or auto until the claims are decided", int | str)
    parser.option("rows", "comma-separated rows, claims or all")
    parser.option("fresh", "train --seeds runs per row again and compare with the recorded results", bool)
    parser.option("pace", "measure training step times for claims about speed", bool)
    parser.option("dry-run", "estimate the cost without training", bool)
    parser.option("tflops", "sustained TFLOP/s assumed by --dry-run", float, default=10.0)
    parser.option("report", "directory for a page, Markdown, CSV and plots")
    parser.option("results", "directory of recorded results (default: results/tables)")
    parser.option("out", "directory of the runs (default: runs/table)")
    parser.shared("jobs", "on", "format", "quiet")
    return parser


def _store(given: dict[str, Any]) -> Store:
    if not given.get("results"):
        return kept_results()
    path = Path(given["results"])
    if path.exists() and not path.is_dir():
        raise OdeumError(f"--results {path} is a file; give the directory of kept results")
    return Store(path)


def _forecast(chosen: TableRows, scale: str, store: Store, teraflops: float) -> int:
    from odeum.lab.study.forecast import cost_grid, speed_here

    if not 0 < teraflops < float("inf"):
        raise OdeumError(f"--tflops must be a positive number, not {teraflops:g}")
    for table, rows in chosen:
        epochs = {row.name: table.scales[scale][row.setting].steps_an_epoch for row in rows}
        specs = table.specs(scale, rows)
        specs |= store.tuned(table.study(scale), specs).specs
        speed = speed_here(table.specs("laptop"), store)
        grid = cost_grid(specs, epochs, store, speed, teraflops)
        print(f"{table.name}, {scale} scale: one run a row\n\n{grid.text()}")
    return 0


def _again(chosen: TableRows, scale: str, seeds: Seeds, store: Store, given: dict[str, Any]) -> int:
    """Train rows again in a new folder and compare them with the kept results."""
    from odeum.lab.study.execute import compare_with_kept

    if seeds.auto:
        raise OdeumError("--fresh needs a number of seeds, such as --seeds 1, not auto")
    known = {table.name: store.tuned(table.study(scale), table.specs(scale, rows)).specs for table, rows in chosen}
    for table, rows in chosen:
        if untuned := [row.name for row in rows if row.name not in known[table.name]]:
            raise OdeumError(
                f"{', '.join(untuned)} of {table.name} has no tuned rate yet; train it without --fresh first"
            )
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    directory = out_directory(given.get("out"), Path("runs") / "table") / f"fresh-{stamp}"
    fresh = Store(directory / "results")
    runs = [
        replace(each, study=replace(each.study, tunings={}), specs={**each.specs, **known[each.study.name]})
        for each in _runs_of(chosen, scale, seeds, fresh, {**given, "out": str(directory)})
    ]
    code = _train(runs, given)
    for table, _ in chosen:
        for repeated in compare_with_kept(table.study(scale), known[table.name], fresh, store):
            print(f"{table.name}: {repeated.sentence}")
            code = code or (0 if repeated.holds else 1)
    return code


def _runs_of(chosen: TableRows, scale: str, seeds: Seeds, store: Store, given: dict[str, Any]) -> list[TableRuns]:
    from odeum.lab.commands.request import command_line
    from odeum.lab.study.execute import TableRuns
    from odeum.registry.plugins import named_plugins

    directory = out_directory(given.get("out"), Path("runs") / "table")
    make_directory(directory)  # refused once, not by every run
    tasks: dict[str, Any] = {}  # tables share data
    return [
        TableRuns(
            table.study(scale),
            table.specs(scale),
            store,
            directory,
            seeds,
            [row.name for row in rows],
            command_line(),
            named_plugins(),
            tasks,
        )
        for table, rows in chosen
    ]


def _train(runs: list[TableRuns], given: dict[str, Any]) -> int:
    from odeum.lab.commands.board import Board
    from odeum.lab.commands.report import show_failures
    from odeum.lab.launch.launcher import launcher
    from odeum.lab.study.execute import TABLE_THREADS
    from odeum.lab.train.distributed.ranks import exit_code, print_error
    from odeum.lab.train.interrupt import Interrupted

    failures: list[str] = []
    try:
        jobs = str(given.get("jobs", "auto"))
        with launcher(given.get("on"), jobs, TABLE_THREADS, runs[0].directory) as launch:
            for each in runs:
                with Board(each.study.metric.name, each.study.metric.share, quiet=bool(given.get("quiet"))) as board:
                    failures += each.train(launch, board)
    except Interrupted as stop:
        print_error(stop)
        return exit_code(stop.code)
    return show_failures(failures)
