"""A league: entries × tasks × sizes, each task and size a comparison of its own with equal tuning at equal cost.

    DIR/league.json               the plan: baseline, entries, and the words of `odeum compare` of each task and size
    DIR/TASK/SIZE/                a comparison (`execute.compare`)

Screening and confirmation are separate. All entries are screened by their tuning runs, on the validation part with the
tuning seed. The best few and the baseline are then trained with fresh seeds and judged on the test part, where the
intervals of all confirmed entries of one task and size hold together.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError
from odeum.lab.study.design import COMPARISON, TUNING, Factor, Study, cells, rows_of
from odeum.lab.study.judge import MOST_SEEDS, Seeds
from odeum.lab.study.metric import metric_named
from odeum.lab.study.runs import KEPT_RUNS, keep_comparison
from odeum.lab.study.tuning import FEWEST, Tuning, TuningResults, read_tuning
from odeum.lab.train.rundir import RUN
from odeum.registry.spelling import parse, spell, split_spellings
from odeum.storage import make_directory, read_json, read_lines, slug, write_bytes, write_json

if TYPE_CHECKING:
    from odeum.lab.study.execute import Comparison
    from odeum.lab.train.job import Job

LEAGUE = "league.json"
TUNED = "learning_rate"
FORM = "see benchmarks/league/season-1.yaml"


@dataclass(frozen=True)
class Cell:
    """One task at one size."""

    task: str
    size: str
    words: tuple[str, ...]
    """arguments of `odeum compare`: data, model and training"""

    @property
    def name(self) -> str:
        return f"{self.task}/{self.size}"

    def folder(self, directory: Path) -> Path:
        return directory / slug(self.task) / slug(self.size)


@dataclass(frozen=True)
class League:
    """The plan of a league."""

    name: str
    baseline: str
    entries: tuple[str, ...]
    """spellings of architectures, without the baseline"""
    tune: int
    """tuning runs per entry before widening"""
    finalists: int
    """entries per task and size that are confirmed"""
    seeds: int
    """seeds per confirmed entry"""
    cells: tuple[Cell, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.task for cell in self.cells))

    def record(self) -> dict[str, Any]:
        """For league.json."""
        listed = [{**asdict(cell), "words": shlex.join(cell.words)} for cell in self.cells]
        return {**asdict(self), "entries": list(self.entries), "cells": listed}

    def write(self, directory: Path) -> None:
        """Write league.json; raises `OdeumError` if the directory holds another league. Entries may be added."""
        path = directory / LEAGUE
        if path.exists():
            held = read_league(directory)
            if replace(held, entries=()) != replace(self, entries=()):
                raise OdeumError(f"'{directory}' holds another league ({held.name}); give another --out")
            if lost := [entry for entry in held.entries if entry not in self.entries]:
                raise OdeumError(f"'{directory}' holds the entry {lost[0]}, which this plan lacks; add it to --entries")
        make_directory(directory)
        write_json(path, self.record())


def read_league(directory: str | Path) -> League:
    """The league of a directory."""
    path = Path(directory) / LEAGUE
    content = read_json(path)
    try:
        cells = [Cell(str(c["task"]), str(c["size"]), tuple(shlex.split(c["words"]))) for c in content.pop("cells")]
        entries = tuple(map(str, content.pop("entries")))
        return League(**content, entries=entries, cells=tuple(cells))
    except (KeyError, TypeError, ValueError):
        raise OdeumError(f"'{path}' is not the plan of a league; `odeum league PLAN --out DIR` writes one") from None


def plan_of(path: Path, more: Sequence[str] = ()) -> League:
    """Read a plan from YAML; `more` are further entries. Raises `OdeumError` for an invalid plan."""
    from odeum.lab.commands.options import read_config

    content = read_config(str(path), "plan")
    known = {"name", "baseline", "entries", "tune", "finalists", "seeds", "tasks"}
    both = ("lacks", known - content.keys()), ("has the unknown", content.keys() - known)
    if wrong := " and ".join(f"{what} {', '.join(sorted(map(str, names)))}" for what, names in both if names):
        raise OdeumError(f"the plan '{path}' {wrong}; {FORM}")
    for name, least, most in (("tune", FEWEST, 100), ("finalists", 1, 100), ("seeds", 2, MOST_SEEDS)):
        if type(content[name]) is not int or not least <= content[name] <= most:
            raise OdeumError(f"{name} in '{path}' must be an integer from {least} to {most}, not {content[name]!r}")
    listed = content["entries"]
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise OdeumError(f"entries in '{path}' must be a list of architectures, not {listed!r}")
    names = [spell(parse(name)) for entry in [*listed, *more] for name in split_spellings(entry)]
    baseline = spell(parse(str(content["baseline"])))
    entries = tuple(name for name in dict.fromkeys(names) if name != baseline)
    if not entries:
        raise OdeumError(f"the plan '{path}' has no entry beside the baseline {baseline}")
    return League(
        name=str(content["name"]),
        baseline=baseline,
        entries=entries,
        tune=content["tune"],
        finalists=content["finalists"],
        seeds=content["seeds"],
        cells=tuple(_cells(content["tasks"], path)),
    )


def _cells(tasks: Any, path: Path) -> list[Cell]:
    """The tasks and sizes of a plan, each with the words of its comparison."""
    listed = []
    for task, each in tasks.items() if isinstance(tasks, dict) else ():
        sizes = each.get("sizes") if isinstance(each, dict) else None
        if not isinstance(sizes, dict) or not isinstance(each.get("words"), str) or len(each) != 2:
            raise OdeumError(
                f"task '{task}' in '{path}' needs `words` (arguments of `odeum compare`) and `sizes`; {FORM}"
            )
        for size, words in sizes.items():
            listed.append(Cell(str(task), str(size), (*shlex.split(each["words"]), *shlex.split(str(words)))))
    if not listed:
        raise OdeumError(f"tasks in '{path}' must name at least one task with a size; {FORM}")
    if len({cell.folder(Path()) for cell in listed}) < len(listed):
        raise OdeumError(f"two tasks or sizes in '{path}' have the same folder; give them other names")
    return listed


# carrying it out


def comparison_of(league: League, base: Job, directory: Path, labels: Sequence[str], **where: Any) -> Comparison:
    """The comparison of one task and size with these rows and the baseline.

    `base` is the run that its rows are made from; `where` are `jobs` and `on` of the comparison.
    """
    from odeum.lab.study.execute import Comparison

    factors = [Factor.architecture([parse(label) for label in (league.baseline, *labels)])]
    metric = metric_named(base.task.metric, base.task.higher_is_better)
    study = Study(
        data=base.task.name,
        rows=rows_of(cells(base, factors)),
        metric=metric,
        margin=metric.margin,
        seeds=Seeds(league.seeds),
        baseline=league.baseline,
        match="time",
        budget=base.training.budget,
        command=base.command,
        tuning=TuningResults(Tuning((TUNED,), (getattr(base.training, TUNED),), league.tune)),
    )
    return Comparison(study, base, factors, directory, **where)


def screened(tuning: TuningResults, entries: Sequence[str], higher_is_better: bool) -> dict[str, float]:
    """The best validation value of each entry's tuning runs, the best entry first; diverged entries have NaN, last."""
    choices = {entry: tuning.choice(entry, higher_is_better) for entry in entries if entry in tuning.values}
    values = {entry: choice.value if choice else math.nan for entry, choice in choices.items()}
    way = -1.0 if higher_is_better else 1.0
    order = {entry: way * value if math.isfinite(value) else math.inf for entry, value in values.items()}
    return {entry: values[entry] for entry in sorted(order, key=lambda entry: order[entry])}


def read_screening(folder: Path, entries: Sequence[str]) -> dict[str, float]:
    """`screened` of a comparison's directory; empty if no tuning run is recorded."""
    tuning = read_tuning(read_json(folder / COMPARISON).get("tuning"))
    if tuning is None:
        return {}
    if tuning.metric:
        return screened(tuning, entries, metric_named(tuning.metric).higher_is_better)
    runs = (*folder.glob(f"{TUNING}/*/*/seed-*/{RUN}"), *folder.glob(f"*/seed-*/{RUN}"))
    info = read_json(runs[0]) if runs else next(_kept_infos(folder), {})
    return screened(tuning, entries, bool(info.get("higher_is_better")))


def _kept_infos(folder: Path) -> Iterator[dict[str, Any]]:
    """run.json of each kept run."""
    for _, content in read_lines(folder / KEPT_RUNS):
        if isinstance(content, dict) and isinstance(content.get("run"), dict):
            yield content["run"]


def finalists(league: League, values: Mapping[str, float]) -> list[str]:
    """The entries that are confirmed: the best of the screening."""
    return [entry for entry, value in values.items() if math.isfinite(value)][: league.finalists]


def trained(directory: Path) -> int:
    """The number of finished runs of a comparison's directory."""
    return sum(1 for pattern in ("*/seed-*", "tuning/*/*/seed-*") for _ in directory.glob(f"{pattern}/result.json"))


def is_begun(directory: Path) -> bool:
    return (directory / COMPARISON).exists()


def keep_league(directory: Path, target: Path) -> None:
    """Copy the records of a league: its plan and tables, and each comparison with its runs as lines."""
    league = read_league(directory)
    make_directory(target)
    write_json(target / LEAGUE, league.record())
    for cell in league.cells:
        if is_begun(cell.folder(directory)):
            keep_comparison(cell.folder(directory), cell.folder(target))
    for path in (*directory.glob("league.md"), *directory.glob("league.csv")):
        write_bytes(target / path.name, path.read_bytes())
