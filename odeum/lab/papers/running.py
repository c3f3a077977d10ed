"""Train what a table lacks: the jobs of its rows, seed by seed, with the launcher of `compare`; each end is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from odeum.errors import OdeumError
from odeum.lab.launch.launcher import Launcher
from odeum.lab.launch.worker import Event
from odeum.lab.papers.base import PaperTable, TableRow
from odeum.lab.papers.judging import groups_of, read_results, wanted_seeds
from odeum.lab.papers.store import Store, without_places
from odeum.lab.study.comparison import Watch
from odeum.lab.study.seeds import Seeds
from odeum.lab.tasks import Task, open_task
from odeum.lab.train.interrupt import Interrupted
from odeum.lab.train.job import Job, holds
from odeum.lab.train.provenance import git_revision, versions
from odeum.lab.train.spec import RunSpec
from odeum.models.description import describe

RUN_THREADS = 1
"""of a run at the scale of a laptop: how many run at once then changes no bit"""


class Jobs:
    """From a row and a seed to a run; data is opened once, a model is described once."""

    def __init__(self, directory: Path, command: str = "", plugins: tuple[str, ...] = ()) -> None:
        self.directory, self.command, self.plugins = directory, command, plugins
        self._tasks: dict[str, Task] = {}
        self._sized: dict[str, Job] = {}

    def task(self, recipe: RunSpec) -> Task:
        """The data of a row."""
        key = repr((recipe.source, dict(recipe.options)))
        if key not in self._tasks:
            self._tasks[key] = open_task(*recipe.source, kind=recipe.kind, **recipe.options)
        return self._tasks[key]

    def job(self, recipe: RunSpec, seed: int, scale: str) -> Job:
        """The run of a recipe with this seed; its model is as large as the data says."""
        if recipe.key not in self._sized:
            task = self.task(recipe)
            model, architecture = replace(recipe.model, **task.facts()), recipe.architecture
            self._sized[recipe.key] = Job.on(
                task,
                model,
                architecture,
                recipe.training,
                0,
                self.directory / recipe.key,
                command=self.command,
                plugins=self.plugins,
                threads=RUN_THREADS if scale == "laptop" else None,
                facts=describe(architecture, model, detail=False),
            )
        sized = self._sized[recipe.key]
        return replace(sized, seed=seed, directory=sized.directory / f"seed-{seed}")


def measure_paces(table: PaperTable, scale: str, store: Store, jobs: Jobs) -> list[Path]:
    """Time training steps, in turns, of the rows that claims about speed name; a file for each group of them."""
    from odeum.lab.study.measuring import measure
    from odeum.lab.train.distributed.world import join

    out = []
    for group in groups_of(table):
        recipes = [table.spec(row, scale) for row in group]
        found = {recipe.key: jobs.job(recipe, 0, scale) for recipe in recipes}
        first = next(iter(found.values()))
        paces = measure(found, recipes[0].key, join(first.training), lambda seconds: math.inf)
        circumstances = {
            "table": table.name,
            "rows": [row.name for row in group],
            "threads": first.threads,
            "versions": versions(),
            "git": git_revision(),
            "command": without_places(jobs.command),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        out.append(store.keep_paces(paces, circumstances))
    return out


@dataclass(frozen=True)
class TableRuns:
    """What of a table is trained, and where its results are kept."""

    table: PaperTable
    scale: str
    rows: Sequence[TableRow]
    seeds: Seeds
    """a number for every row; or auto: as many as the claims take"""
    store: Store
    jobs: Jobs

    def missing(self) -> list[tuple[TableRow, RunSpec, int]]:
        """What is next: the seeds that the rows lack up to the first look that is not complete, seed by seed."""
        limits = [look.seeds for look in self.seeds.looks] if self.seeds.auto else [self.seeds.limit]
        result = read_results(self.table, self.scale, self.store)
        for limit in limits:
            lacking = []
            for place, row in enumerate(self.rows):
                found = result.of(row.name)
                wanted = wanted_seeds(result, row, limit) if self.seeds.auto else limit
                lacking += [(seed, place, row, found.recipe) for seed in range(wanted) if seed not in found.runs]
            if lacking:
                lacking.sort(key=lambda item: item[:2])
                return _once([(row, recipe, seed) for seed, _, row, recipe in lacking])
        return []


def train_missing(runs: TableRuns, launch: Launcher, watch: Watch) -> list[str]:
    """Look by look until nothing is missing; a sentence for each run that failed."""
    failures: list[str] = []
    while todo := runs.missing():
        failures += _train(runs, todo, launch, watch)
        if failures:
            break
    return failures


def _train(
    runs: TableRuns,
    todo: Sequence[tuple[TableRow, RunSpec, int]],
    launch: Launcher,
    watch: Watch,
) -> list[str]:
    jobs = [runs.jobs.job(recipe, seed, runs.scale) for _, recipe, seed in todo]
    for job in jobs:
        if job.folder.is_run and not holds(job):
            raise OdeumError(f"'{job.directory}' holds another run than the recipe asks for; give another --out")
    watch.show([(row.name, seed) for row, _, seed in todo])

    def tell(number: int, event: Event) -> None:
        if event.kind in ("done", "diverged"):
            _, recipe, seed = todo[number]
            runs.store.keep(recipe, seed, jobs[number].directory, runs.table.metric)
        watch.tell(number, event)

    ended = launch.run(jobs, tell)
    if stopped := [event for event in ended if event.kind == "interrupted"]:
        raise Interrupted("stopped; the same command continues", stopped[0].content["code"] - 128)
    return [str(event.content.get("sentence")) for event in ended if event.kind == "failed"]


def _once(todo: list[tuple[TableRow, RunSpec, int]]) -> list[tuple[TableRow, RunSpec, int]]:
    """Two rows of one recipe are one run."""
    return list({(recipe.key, seed): (row, recipe, seed) for row, recipe, seed in reversed(todo)}.values())[::-1]
