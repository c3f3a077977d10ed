"""`odeum league PLAN`: many architectures on several tasks and sizes, screened, confirmed and ranked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.lab.commands.report import show_failures
from odeum.lab.commands.request import command_line, open_request, read_request, refuse_processes
from odeum.lab.study.grid import FORMATS
from odeum.lab.study.judge import Seeds
from odeum.lab.study.league import Cell, League, comparison_of, finalists, plan_of, read_screening, trained
from odeum.lab.train.distributed.ranks import exit_code, print_error
from odeum.storage import check_directory, lock_directory, make_directory, out_directory, slug

if TYPE_CHECKING:
    from odeum.lab.study.execute import Comparison
    from odeum.lab.train.job import Job


def run(argv: list[str]) -> int:
    parser = Parser(
        "league",
        "Screen all architectures of a plan by equally many tuning runs at equal measured time, confirm the best with "
        "fresh seeds, and rank them over tasks and sizes. Existing runs are not repeated.",
    )
    parser.add_argument("plan", nargs=1, type=str, help="YAML file, such as benchmarks/league/season-1.yaml")
    parser.option("entries", "comma-separated additional architectures")
    parser.option("out", "directory of runs and page (default: runs/league-NAME)")
    parser.shared("jobs", "on", "quiet", "format")
    parser.option("dry-run", "print the core-hours and stop", bool)
    given = parser.read(argv)
    form = choose(given.get("format", "text"), FORMATS, "format")
    refuse_processes()
    plan = plan_of(Path(given["plan"][0]), [given["entries"]] if given.get("entries") else [])
    directory = out_directory(given.get("out"), Path("runs") / f"league-{slug(plan.name)}")
    where = {"jobs": str(given.get("jobs", "auto")), "on": given.get("on")}
    from odeum.lab.launch.launcher import check_jobs, check_place
    from odeum.lab.train.interrupt import Interrupted

    if where["on"] is not None:
        check_place(where["on"])
    check_jobs(where["jobs"], where["on"])
    if given.get("dry_run"):
        check_directory(directory)
        tell_cost(plan, directory, where)
        return 0
    make_directory(directory)
    failures: list[str] = []
    with lock_directory(directory):
        plan.write(directory)
        try:
            for cell in plan.cells:
                failures += [f"{cell.name}: {text}" for text in train_cell(plan, cell, directory, where, given)]
        except Interrupted as stop:
            print_error(stop)
            return exit_code(stop.code)
    try:
        show_league(directory, form)
    finally:  # also if there is nothing to show, because screening failed
        code = show_failures(failures)
    return code


def base_run(cell: Cell) -> Job:
    """The run that the rows of a task and size are made from, read like the words of `odeum compare`."""
    from odeum.lab.train.job import Job
    from odeum.registry.names import ARCHITECTURES
    from odeum.registry.plugins import named_plugins

    try:
        task, model, training = open_request(read_request(Parser("compare", ""), list(cell.words)))
    except OdeumError as error:
        raise OdeumError(f"{cell.name}: {error}") from None
    any_of_them = ARCHITECTURES["sequential"]
    return Job.on(task, model, any_of_them, training, command=command_line(), plugins=named_plugins())


def train_cell(plan: League, cell: Cell, directory: Path, where: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Screen and confirm one task and size; returns the messages of failed runs."""
    from odeum.lab.commands.board import Board
    from odeum.lab.study.execute import compare

    base, folder, quiet = base_run(cell), cell.folder(directory), bool(given.get("quiet"))

    def stage(job: Comparison, **options: Any) -> list[str]:
        with Board(job.study.metric.name, job.study.metric.share, quiet=quiet) as board:
            return compare(job, board, **options)

    screening = comparison_of(plan, base, folder, plan.entries, **where)
    if failures := stage(screening, tuning_only=True):
        return failures
    chosen = finalists(plan, read_screening(folder, plan.entries))
    if not chosen:
        return ["every tuning run of every entry diverged; lower --train.learning_rate in the plan"]
    print(f"{cell.name}: confirming {', '.join(chosen)}", file=sys.stderr)
    return stage(comparison_of(plan, base, folder, chosen, **where))


def tell_cost(plan: League, directory: Path, where: dict[str, Any]) -> None:
    """Print the runs and core-hours of each task and size, from measured steps of the baseline."""
    from odeum.lab.study.execute import forecast_comparison
    from odeum.lab.study.tuning import WIDENED

    least = most = 0.0
    for cell in plan.cells:
        # The baseline alone: at equal time its cost is that of every run. As many seeds as there will be runs, because
        # their number decides the threads of each.
        job = comparison_of(plan, base_run(cell), cell.folder(directory) / "cost", (), **where)
        everything = Seeds((len(plan.entries) + 1) * plan.seeds)
        job = replace(job, study=replace(job.study, tuning=None, seeds=everything))
        cost = forecast_comparison(job)
        rows, confirmed = len(plan.entries) + 1, (min(plan.finalists, len(plan.entries)) + 1) * plan.seeds
        low, high = rows * plan.tune + confirmed, rows * plan.tune * WIDENED + confirmed
        hours = cost.baseline * (job.settled().threads or 1) / 3600
        least, most = least + low * hours, most + high * hours
        there = trained(cell.folder(directory))
        done = f", {there} of them already exist" if there else ""
        print(
            f"{cell.name}: {low} to {high} runs{done}, {low * hours:.2g} to {high * hours:.2g} core-hours "
            f"(a run: {cost.baseline:.3g} s)"
        )
    rows = f"{len(plan.entries)} entries × {len(plan.tasks)} tasks, {len(plan.cells)} comparisons"
    print(f"{rows}: {least:.2g} core-hours, up to {most:.2g} if all tuning grids widen")


def show_league(directory: str | Path, form: str) -> int:
    """Write the page of a league and print its table."""
    from odeum.lab.study.league_report import answer, league_table, write

    report, page = write(directory)
    print(league_table(report, form))
    print("\n".join(sentence.replace("`", "") for sentence in answer(report)), file=sys.stderr)
    print(f"report: {page}", file=sys.stderr)
    return 0
