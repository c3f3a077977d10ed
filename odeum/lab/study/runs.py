"""Results: the runs of a study, read from folders, from runs.jsonl, or from the kept lines of papers' tables.

Whole or broken: a run killed while writing is unfinished, never an error.

    DIR/<row>/seed-<n>/          a comparison's runs (`RunDir`)
    DIR/runs.jsonl               the runs of a kept comparison, one line each (`script/keep`)
    results/tables/DATA.jsonl    kept runs of papers' tables, found by `RunSpec.key` and seed (`Store`)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import odeum
from odeum import storage
from odeum.errors import OdeumError, notice
from odeum.lab.study.design import COMPARISON, JUDGE, NO_BASELINE, Study, StudyRow
from odeum.lab.study.judge import Seeds
from odeum.lab.study.metric import AUTO, METRICS, metric_named, read_margin
from odeum.lab.study.pace import Pace, read_paces
from odeum.lab.study.sizes import LADDER, folder_of, ladder_sizes
from odeum.lab.study.statistics import Summary, summarise
from odeum.lab.study.tuning import SEED as TUNING_SEED
from odeum.lab.study.tuning import Point, TuningResults, read_tuning, tried
from odeum.lab.train.rundir import RESULT, RUN, RunDir, cut_off, integer, number
from odeum.lab.train.spec import RunSpec

KEPT_RUNS = "runs.jsonl"
PACES = "pace.jsonl"
"""the file of measured costs per step"""


@dataclass(frozen=True)
class RunRecord:
    """One run of a row."""

    row: str
    seed: int
    path: Path
    info: dict[str, Any]
    """run.json (empty if it cannot be read)"""
    curve: tuple[dict[str, Any], ...]
    """the records of metrics.jsonl"""
    result: dict[str, Any] | None
    """result.json (default: unfinished)"""
    cut_off: str | None = None
    """the time limit that ended it early, if one did"""

    @property
    def last_step(self) -> int:
        return max((int(record["step"]) for record in self.curve), default=0)

    def score(self, split: str, metric: str) -> float | None:
        """The final metric on a split, if the run is finished and has it; NaN if the run failed."""
        result = self.result or {}
        values = result.get(split)
        value = number(values.get(metric)) if isinstance(values, dict) else None
        return math.nan if value is None and result.get("failed") else value

    def measured(self, key: str) -> float | None:
        """A number of result.json such as `step_seconds`."""
        return number((self.result or {}).get(key))


@dataclass(frozen=True)
class Results:
    """A study and its runs."""

    study: Study
    runs: tuple[RunRecord, ...]
    directory: Path
    split: str
    """the part on which rows are judged: test, or valid if there is no test part"""
    problems: tuple[str, ...] = ()
    """sentences about files and runs that are there and could not be used"""
    hidden: tuple[str, ...] = ()
    """rows of other comparisons with runs in the same directory"""
    parameters: Mapping[str, int] = field(default_factory=dict)
    """parameters of a paper's rows whose steps were measured; they need no run"""

    @cached_property
    def _by_row(self) -> dict[str, list[RunRecord]]:
        """The runs of each row: looking through all of them for each row would take the square of their number."""
        rows: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            rows.setdefault(run.row, []).append(run)
        return rows

    def of(self, row: str) -> list[RunRecord]:
        return self._by_row.get(row, [])

    def finished(self, row: str) -> list[RunRecord]:
        return [run for run in self.of(row) if run.result is not None]

    def scores(self, metric: str, split: str | None = None) -> dict[str, dict[int, float]]:
        """A metric by row and seed; not finite for a run that diverged or was cut off: leaving it out would be
        choosing."""
        split = split or self.split
        return {
            label: {run.seed: x for run in self.finished(label) if (x := run.score(split, metric)) is not None}
            | {run.seed: math.nan for run in self.of(label) if run.cut_off}
            for label in self.study.labels
        }

    def summary(self, row: str, split: str, metric: str) -> Summary | None:
        """Mean and spread over the seeds that did not diverge."""
        scores = (run.score(split, metric) for run in self.finished(row))
        return summarise(x for x in scores if x is not None and math.isfinite(x))

    def diverged(self, row: str, metric: str) -> tuple[int, ...]:
        """The seeds whose metric is not finite."""
        scores = {run.seed: run.score(self.split, metric) for run in self.finished(row)}
        return tuple(sorted(seed for seed, x in scores.items() if x is not None and not math.isfinite(x)))

    def fact(self, row: str, name: str) -> Any:
        """A value that all runs of a row share, such as `parameters`."""
        return next((run.info.get(name) for run in self.of(row) if run.info), None)


# a comparison's directory


def read(directory: str | Path, everything: bool = False) -> Results:
    """Read the runs of a directory and its comparison.json, if there is one.

    Only the rows of the last comparison, unless `everything`.
    """
    root = Path(directory)
    problems: list[str] = []
    archived = _archived(root, problems)
    folders = {*(p for p in root.glob("*/seed-*") if p.is_dir()), *archived}
    folders = sorted(folders, key=lambda p: (p.parent.name, _seed(p), p.name))
    if not folders and not root.is_dir():
        raise OdeumError(
            f"'{root}' is a file, not the folder of a comparison" if root.exists() else f"there is no folder '{root}'"
        )
    if not folders and (root / "run.json").is_file():
        raise OdeumError(f"'{root}' is a single run, not a comparison; `odeum evaluate {root}` shows its results")
    if not folders:
        raise OdeumError(
            f"'{root}' holds no runs; a comparison holds {root}/<architecture>/seed-<n>/, "
            f"as `odeum compare DATA --out {root}` writes"
        )
    plan = RunDir(root).read(COMPARISON, problems) or {}
    listed = plan.get("architectures")
    wanted = [str(name) for name in listed] if isinstance(listed, list) else []
    runs = _unique((_run(folder, folders, archived, wanted, problems) for folder in folders), problems)
    names = sorted({run.row for run in runs})
    hidden = () if everything or not wanted else tuple(name for name in names if name not in wanted)
    runs = tuple(run for run in runs if run.row not in hidden)
    order = tuple(dict.fromkeys([*wanted, *(name for name in names if name not in hidden)]))
    done = [run for run in runs if run.result is not None]
    tested = bool(done) and all((run.result or {}).get("test") for run in done)
    split = "test" if tested or not done else "valid"
    study = _study(plan, order, next((run.info for run in runs if run.info.get("metric")), {}), root)
    runs = tuple(_judged(run, split, study.metric.name, problems) for run in runs)
    if study.pace is not None:
        runs = tuple(_with_measured_seconds(run, study.pace.get(run.row)) for run in runs)
    return Results(study, runs, root, split, tuple(dict.fromkeys(problems)), hidden)


def keep_comparison(directory: Path, target: Path) -> None:
    """Copy the records of a comparison, a ladder or a run without weights and folders: its JSON files, its tables,
    runs.jsonl.

    The places of this machine are left out of the commands.
    """
    if not directory.is_dir():
        raise OdeumError(f"'{directory}' is not a directory; give the --out of a comparison or of a run")
    storage.make_directory(target)
    if (directory / LADDER).exists():
        storage.write_json(target / LADDER, _portable(storage.read_json(directory / LADDER)))
        for path in (*directory.glob("ladder.md"), *directory.glob("ladder.csv")):
            storage.write_bytes(target / path.name, path.read_bytes())
        for size in ladder_sizes(directory):
            keep_comparison(folder_of(directory, size), folder_of(target, size))
        return
    for name in (COMPARISON, RUN, RESULT):
        if (directory / name).exists():
            storage.write_json(target / name, _portable(storage.read_json(directory / name)))
    folders = sorted((p.parent for p in directory.glob(f"*/seed-*/{RUN}")), key=lambda p: (p.parent.name, _seed(p)))
    lines = []
    for folder in folders:
        parts = {name: folder / f"{name}.json" for name in ("run", "result")}
        content = {name: _portable(storage.read_json(path)) for name, path in parts.items() if path.exists()}
        lines.append(storage.sealed_line({"folder": folder.relative_to(directory).as_posix(), **content}))
    if lines:
        storage.write_bytes(target / KEPT_RUNS, b"".join(lines))
    for path in (*directory.glob("table.md"), *directory.glob("table.csv")):
        storage.write_bytes(target / path.name, path.read_bytes())


def _portable(content: dict[str, Any]) -> dict[str, Any]:
    return content | ({"command": without_local_paths(content["command"])} if "command" in content else {})


def _study(plan: Mapping[str, Any], order: tuple[str, ...], info: Mapping[str, Any], root: Path) -> Study:
    """The study of a comparison.json, with the metric of its runs; damaged entries have their defaults."""
    task_metric = str(info.get("metric") or "loss")
    named = str(plan.get("judged_by") or plan.get("judge") or JUDGE)
    metric = task_metric if named in (JUDGE, AUTO) or metric_named(named).name not in METRICS else named
    other = "loss" if metric != "loss" else task_metric
    higher = bool(info.get("higher_is_better", task_metric != "loss")) if metric == task_metric else False
    judged = metric_named(metric, higher)
    overlap = plan.get("overlap")
    looked = plan.get("looked")
    return Study(
        data=_plain_text(plan.get("data") or info.get("data") or info.get("task") or "the data"),
        rows=tuple(StudyRow(label, label) for label in order),
        metric=judged,
        margin=read_margin(plan.get("margin"), judged),
        seeds=_seeds(plan),
        baseline=_baseline(plan, order, root),
        other=other if other != metric else None,
        factors=tuple(map(str, factors)) if isinstance(factors := plan.get("factors"), list) else (),
        match=str(plan["match"]) if plan.get("match") else None,
        looked=tuple(n for n in looked if isinstance(n, int)) if isinstance(looked, list) else (),
        command=str(plan["command"]) if plan.get("command") else None,
        overlap=float(overlap) if isinstance(overlap, int | float) and overlap > 0 else 0.0,
        pace=read_paces(plan["pace"]) if "pace" in plan else None,
        tuning=read_tuning(plan.get("tuning")),
        judge=str(plan.get("judge") or JUDGE),
        signals=_signals(plan.get("signals")),
        futility=plan.get("futility") is True,
    )


def _signals(written: Any) -> dict[str, float]:
    known = written.items() if isinstance(written, dict) else ()
    return {str(name): float(x) for name, x in known if isinstance(x, int | float) and math.isfinite(x)}


def _baseline(plan: Mapping[str, Any], order: tuple[str, ...], root: Path) -> str | None:
    if plan.get("baseline") == NO_BASELINE:
        return None
    baseline = str(plan.get("baseline") or ("sequential" if "sequential" in order else order[0]))
    if baseline not in order:
        raise OdeumError(f"the baseline '{baseline}' of '{root}' has no runs there; it has: {', '.join(order)}")
    return baseline


def _seeds(plan: Mapping[str, Any]) -> Seeds | None:
    """The planned seeds; None if the plan is damaged, and all existing seeds are then judged once."""
    try:
        return Seeds.parse(plan["seeds"]) if "seeds" in plan else None
    except OdeumError:
        return None


Archived = Mapping[Path, Mapping[str, Any]]
"""run.json and result.json of runs whose folders were folded into one file, by folder"""


def _archived(root: Path, problems: list[str]) -> Archived:
    path = root / KEPT_RUNS
    runs = {}
    for line, content in storage.read_lines(path) if path.is_file() else ():
        if isinstance(content, storage.Damaged):
            problems.append(f"{content}; it is ignored")
        elif isinstance(content.get("folder"), str):
            runs[root / content["folder"]] = content
        else:
            problems.append(f"'{path}:{line}' names no folder of a run; it is left out")
    return runs


def _part(folder: Path, name: str, archived: Archived, problems: list[str]) -> dict[str, Any] | None:
    """`run` or `result` of a run, from its folder or from the file of kept runs."""
    if (folder / f"{name}.json").exists() or folder not in archived:
        return RunDir(folder).read(f"{name}.json", problems)
    content = archived[folder].get(name)
    return content if isinstance(content, dict) else None


def _run(folder: Path, folders: list[Path], archived: Archived, wanted: list[str], problems: list[str]) -> RunRecord:
    info = _part(folder, "run", archived, problems)
    result = _part(folder, "result", archived, problems)
    if info is None and result is not None:
        problems.append(f"'{folder}' has a result and no run.json that says of what; it is left out")
        result = None
    if info is not None and result is not None and info.get("run_id") != result.get("run_id"):
        problems.append(f"'{folder / 'result.json'}' is of another run than run.json beside it; it is left out")
        result = None
    if result is not None and not any(isinstance(result.get(split), dict) for split in ("test", "valid")):
        problems.append(f"'{folder / 'result.json'}' has numbers of no part of the data; it is left out")
        result = None
    seed = integer((info or {}).get("seed"))
    curve = RunDir(folder).curve()
    if any(line.get("run_id") != (info or {}).get("run_id") for line in curve):
        problems.append(f"'{folder / 'metrics.jsonl'}' is of another run than run.json beside it; it is left out")
        curve = ()
    return RunRecord(
        row=_row_of(folder, info, folders, archived, wanted, problems),
        seed=_seed(folder) if seed is None else seed,
        path=folder,
        info=info or {},
        curve=curve,
        result=result,
        cut_off=cut_off(curve) if result is None else None,
    )


def _judged(run: RunRecord, split: str, metric: str, problems: list[str]) -> RunRecord:
    """A finished run, if it has a number where the architectures are judged; else one that does not count."""
    if run.result is None or run.score(split, metric) is not None:
        return run
    part = run.result.get(split)
    value = repr(part.get(metric, "nothing") if isinstance(part, dict) else part)
    problems.append(f"'{run.path / 'result.json'}' has no number as {split} {metric} ({value[:40]}); it is left out")
    return replace(run, result=None)


def _with_measured_seconds(run: RunRecord, pace: Pace | None) -> RunRecord:
    """The run with the measured cost per step instead of its own clock, which parallel runs slow down."""

    def cost(steps: Any) -> float | None:
        return pace.seconds * float(steps) if pace and isinstance(steps, int | float) else None

    curve = tuple({**record, "seconds": cost(record.get("step"))} for record in run.curve)
    result = run.result
    if result is not None:
        result = {**result, "seconds": cost(result.get("steps")), "step_seconds": pace.seconds if pace else None}
    return replace(run, curve=curve, result=result)


def _row_of(
    folder: Path,
    info: Mapping[str, Any] | None,
    folders: list[Path],
    archived: Archived,
    wanted: list[str],
    problems: list[str],
) -> str:
    """A run's row; of a broken run, that of its neighbours, or of the plan, or the folder's name."""
    if info and (label := info.get("row") or info.get("architecture")):
        return str(label)
    for other in folders:
        if other.parent == folder.parent and other != folder:
            near = _part(other, "run", archived, problems) or {}
            if label := near.get("row") or near.get("architecture"):
                return str(label)
    plain = {re.sub(r"[^0-9a-z]", "", name.lower()): name for name in wanted}
    return plain.get(re.sub(r"[^0-9a-z]", "", folder.parent.name.lower()), folder.parent.name)


def _unique(runs: Iterable[RunRecord], problems: list[str]) -> tuple[RunRecord, ...]:
    """One run for an architecture and a seed: a finished one, else the first found."""
    chosen: dict[tuple[str, int], RunRecord] = {}
    for run in runs:
        key = run.row, run.seed
        if key in chosen:
            problems.append(
                f"'{chosen[key].path}' and '{run.path}' are both {run.row} with seed {run.seed}; one counts"
            )
        if key not in chosen or (chosen[key].result is None and run.result is not None):
            chosen[key] = run
    return tuple(chosen.values())


def _seed(folder: Path) -> int:
    digits = re.search(r"\d+", folder.name)
    return int(digits.group()) if digits else 0


def _plain_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# the kept runs of papers' tables

FIGURES = ("valid", "test", "steps", "seconds", "step_seconds", "peak_memory", "macs", "failed")
"""fields of result.json that are kept"""
CIRCUMSTANCES = (
    *("parameters", "macs", "evaluations", "fingerprint", "threads", "device", "versions", "git", "command", "date"),
)
"""fields of run.json that are kept"""


def kept_results() -> Store:
    """The kept results of the checkout that Odeum runs from.

    If Odeum is installed: `results/tables` of the current directory, after those that the wheel holds.
    """
    package = Path(odeum.__file__).resolve().parent
    if (package.parent / "pyproject.toml").is_file():
        return Store(package.parent / "results" / "tables")
    return Store(Path("results") / "tables", shipped=package / "results")


@dataclass(frozen=True)
class Tuned:
    """The rows of a paper's table after tuning."""

    specs: Mapping[str, RunSpec]
    """the rows that can be trained: with the chosen learning rate, or with the recipe's if they are not tuned"""
    results: TuningResults | None
    """tuning of the rows for which it is complete (None: no row)"""


def at_rate(spec: RunSpec, point: Point) -> RunSpec:
    """The recipe with another learning rate."""
    (rate,) = point
    return replace(spec, training=replace(spec.training, learning_rate=rate))


@dataclass(frozen=True)
class Store:
    """A directory of kept runs: one line of JSON per run, without weights and data, one .jsonl file per data set.

    A kept run counts as done wherever it was trained, so a table is continued on another machine from these files.
    """

    directory: Path
    shipped: Path | None = None
    """a directory that is read first and never written to"""

    def path(self, spec: RunSpec) -> Path:
        """The file to which runs of this spec are appended, among others on the same data."""
        return self.directory / f"{spec.key.partition('/')[0]}.jsonl"

    def _read(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """The lines of a file, each with its place; shipped ones first."""
        directories = [self.directory] if self.shipped is None else [self.shipped, self.directory]
        return [(f"{path}:{n}", line) for path in (d / name for d in directories) for n, line in lines_of(path)]

    def lines(self, spec: RunSpec) -> dict[int, dict[str, Any]]:
        """The last line of each seed; a line that is damaged or of another recipe is reported and left out."""
        recipe, key, out = spec.recipe, spec.key, {}
        for place, content in self._read(self.path(spec).name):
            if content.get("recipe") != key:
                continue
            if content.get("identity") != recipe or not isinstance(content.get("seed"), int):
                notice(f"'{place}' was trained with another recipe than its name says; it is ignored")
                continue
            out[content["seed"]] = content
        return dict(sorted(out.items()))

    def runs(self, label: str, spec: RunSpec, metric: str) -> list[RunRecord]:
        """The kept runs of a row, without its tuning runs; the curve is that of the validation metric."""
        path = self.path(spec)
        return [
            RunRecord(
                row=label,
                seed=seed,
                path=path,
                info=dict(content.get("facts") or {}),
                curve=tuple({"split": "valid", "step": int(x), metric: y} for x, y in content.get("curve") or ()),
                result=content,
            )
            for seed, content in self.lines(spec).items()
            if seed != TUNING_SEED
        ]

    def tuning_value(self, study: Study, spec: RunSpec, point: Point) -> float | None:
        """The value of a kept tuning run: NaN if it diverged, None if there is no such run."""
        content = self.lines(at_rate(spec, point)).get(TUNING_SEED)
        if content is None:
            return None
        value = number((content.get("valid") or {}).get(study.metric.name))
        return math.nan if value is None else value

    def tuned(self, study: Study, specs: Mapping[str, RunSpec]) -> Tuned:
        """The rows of a paper's table after the tuning runs that are kept."""
        higher = study.metric.higher_is_better
        results: TuningResults | None = None
        known = dict(specs)
        for label, tuning in study.tunings.items():
            if label not in specs:
                continue
            spec = known.pop(label)
            values, lacking = tried(tuning, lambda point, spec=spec: self.tuning_value(study, spec, point), higher)
            if lacking:
                continue
            lines = (self.lines(at_rate(spec, point))[TUNING_SEED] for point in values)
            results = (results or TuningResults(tuning)).with_row(
                label, values, sum(number(line.get("seconds")) or 0.0 for line in lines)
            )
            if (choice := results.choice(label, higher)) is not None:
                known[label] = at_rate(spec, choice.point)
        return Tuned(known, results)

    def results(self, study: Study, specs: Mapping[str, RunSpec]) -> Results:
        """A paper's table with its kept runs, and the costs per step of the rows that were measured interleaved."""
        pace: dict[str, Pace] = {}
        for group in timed_together(study):
            measured = self.paces(specs[label] for label in group)
            pace |= {label: measured[specs[label].key] for label in group if specs[label].key in measured}
        tuned = self.tuned(study, specs)
        runs = [run for label, spec in tuned.specs.items() for run in self.runs(label, spec, study.metric.name)]
        sessions = [content.get("parameters") or {} for _, content in self._read(PACES)]
        sizes = {label: each[spec.key] for each in sessions for label, spec in specs.items() if spec.key in each}
        rows = tuple(replace(row, key=tuned.specs.get(row.label, specs[row.label]).key) for row in study.rows)
        study = replace(study, rows=rows, pace=pace, tuning=tuned.results)
        return Results(study, tuple(runs), self.directory, study.split or "test", parameters=sizes)

    def step_seconds(self, spec: RunSpec) -> float | None:
        """CPU seconds per training step: the least of all sessions, since other load only adds (none: not measured)."""
        sessions = [read_paces(content.get("paces")) for _, content in self._read(PACES)]
        return min((paces[spec.key].seconds for paces in sessions if spec.key in paces), default=None)

    def paces(self, specs: Iterable[RunSpec]) -> dict[str, Pace]:
        """The cost per step by key, from the last session in which all of these took turns."""
        wanted = {spec.key for spec in specs}
        sessions = (content for _, content in self._read(PACES))
        for content in sorted(sessions, key=lambda content: str(content.get("date")), reverse=True):
            paces = read_paces(content.get("paces"))
            if wanted <= paces.keys():
                return {key: paces[key] for key in wanted}
        return {}

    def keep_paces(self, paces: Mapping[str, Pace], circumstances: Mapping[str, Any]) -> Path:
        """Append one session of measurements."""
        path = self.directory / PACES
        storage.make_directory(path.parent)
        storage.append_line(path, {**circumstances, "paces": {key: pace.record() for key, pace in paces.items()}})
        return path

    def keep(self, spec: RunSpec, seed: int, run: Path, metric: str) -> None:
        """Append the figures of a finished run; places of this machine are left out of its command."""
        folder = RunDir(run)
        info, result = folder.run(), storage.read_json(run / RESULT)
        facts = {key: info[key] for key in CIRCUMSTANCES if key in info}
        facts["command"] = without_local_paths(str(facts.get("command", "")))
        content = {
            "recipe": spec.key,
            "identity": spec.recipe,
            "seed": seed,
            **{key: result[key] for key in FIGURES if key in result and (seed, key) != (TUNING_SEED, "test")},
            "facts": facts,
            "curve": _validation_curve(folder, metric),
        }
        path = self.path(spec)
        storage.make_directory(path.parent)
        storage.append_line(path, content)


def timed_together(study: Study) -> list[list[str]]:
    """Groups of rows whose steps are timed interleaved: each row of a claim about speed with those compared to it."""
    groups: dict[str, list[str]] = {}
    for claim in study.costs:
        if claim.quantity == "step":
            groups.setdefault(claim.second, [claim.second]).append(claim.first)
    return list(groups.values())


def lines_of(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The number and the content of each whole line; damaged ones are reported, once for each state of the file."""
    if not path.exists():
        return []
    state = path.stat()
    return _lines(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=32)  # a table reads its rows one by one
def _lines(path: Path, changed: int, size: int) -> list[tuple[int, dict[str, Any]]]:
    complete = []
    for place, content in storage.read_lines(path):
        if isinstance(content, storage.Damaged):
            notice(f"{content}; it is ignored")
        else:
            complete.append((place, content))
    return complete


def without_local_paths(command: str) -> str:
    """A command without the directories of this machine."""
    return without_option(without_option(command, "out"), "results")


def without_option(command: str, name: str) -> str:
    """The command without this option and its value."""
    return re.sub(rf" --{re.escape(name)}(=| )(\"[^\"]*\"|'[^']*'|\S+)", "", command)


def _validation_curve(folder: RunDir, metric: str) -> list[list[float]]:
    """Step and metric of each evaluation during training, or the loss where the metric is costly."""
    points: dict[int, float] = {}
    for record in folder.curve():
        value = record.get(metric, record.get("loss")) if record.get("split") == "valid" else None
        if isinstance(value, int | float) and math.isfinite(value):
            points[int(record["step"])] = round(float(value), 5)
    return [[step, value] for step, value in sorted(points.items())]
