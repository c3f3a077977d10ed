"""Read run directories, whole or broken: a run killed while writing is unfinished, never an error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from odeum import storage
from odeum.errors import OdeumError
from odeum.lab.study.intervals import all_pairs, to_baseline
from odeum.lab.study.metric import Margin, Metric, metric_named, read_margin
from odeum.lab.study.pace import Pace, read_paces
from odeum.lab.study.seeds import NO_BASELINE, Seeds
from odeum.lab.train.rundir import RunDir, cut_off, number, whole

KEPT_RUNS = "runs.jsonl"
"""the runs of a comparison that is kept without its folders, one line each (`script/keep`)"""


@dataclass(frozen=True)
class RunRecord:
    """One architecture with one seed, as its folder tells it."""

    architecture: str
    seed: int
    path: Path
    info: dict[str, Any]
    """run.json (empty if it cannot be read)"""
    curve: tuple[dict[str, Any], ...]
    """the records of metrics.jsonl, by step; of a step measured twice (a resumed run) the later one"""
    result: dict[str, Any] | None
    """result.json (none: unfinished)"""
    cut_off: str | None = None
    """the limit of time that ended it before its length, if one did"""

    @property
    def last_step(self) -> int:
        return max((int(record["step"]) for record in self.curve), default=0)

    def score(self, split: str, metric: str) -> float | None:
        """The final metric on a split, if the run is finished and has it."""
        value = (self.result or {}).get(split)
        return number(value.get(metric)) if isinstance(value, dict) else None

    def measured(self, key: str) -> float | None:
        """A number of result.json such as `step_seconds`."""
        return number((self.result or {}).get(key))


@dataclass(frozen=True)
class ComparisonRecord:
    """All runs below one directory, and the question they answer."""

    directory: Path
    runs: tuple[RunRecord, ...]
    architectures: tuple[str, ...]
    """in the order in which they are shown"""
    baseline: str | None
    """what the others are compared with (none: all with each other)"""
    metric: str
    """the one that decides, declared beforehand"""
    other: str | None
    """shown beside it, not judged"""
    higher_is_better: bool
    margin: Margin
    seeds: Seeds | None
    """how many were planned (none: not recorded)"""
    looked: tuple[int, ...]
    """numbers of seeds after which results had been seen and more were added, where that was no plan"""
    overlap: float
    """of splits that differ from seed to seed (0: one split for all)"""
    split: str
    """where the architectures are judged: test, or valid where there is no test"""
    data: str
    match: str | None
    command: str | None
    pace: dict[str, Pace] | None
    """what a step costs by architecture, measured in turns (none: a plan from before that, or no plan)"""
    left_out: tuple[str, ...]
    """sentences about files and runs that are there and could not be used"""
    hidden: tuple[str, ...] = ()
    """architectures of other comparisons whose runs lie in the same directory"""

    @property
    def facts(self) -> Metric:
        """What is known of the metric that decides."""
        return metric_named(self.metric, self.higher_is_better)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The family: each against the baseline or, without one, every two."""
        names = self.architectures
        return all_pairs(names) if self.baseline is None else to_baseline(names, self.baseline)

    def scores(self, metric: str) -> dict[str, dict[int, float]]:
        """A metric where it is judged, by architecture and seed; of a run that diverged or was cut off it is not
        finite: leaving it out would be choosing."""
        return {
            name: {run.seed: x for run in self.finished(name) if (x := run.score(self.split, metric)) is not None}
            | {run.seed: math.nan for run in self.of(name) if run.cut_off}
            for name in self.architectures
        }

    def of(self, architecture: str) -> list[RunRecord]:
        return [run for run in self.runs if run.architecture == architecture]

    def finished(self, architecture: str) -> list[RunRecord]:
        return [run for run in self.of(architecture) if run.result is not None]


def read(directory: str | Path, everything: bool = False) -> ComparisonRecord:
    """Read DIR/<architecture>/seed-<n>/ or, of a kept comparison, DIR/runs.jsonl; and DIR/comparison.json if any.

    Only the architectures of the comparison that was asked last, unless `everything`: others are another comparison's.
    """
    root = Path(directory)
    left_out: list[str] = []
    kept = _kept(root, left_out)
    folders = {*(p for p in root.glob("*/seed-*") if p.is_dir()), *kept}
    folders = sorted(folders, key=lambda p: (p.parent.name, _seed(p), p.name))
    if not folders:
        raise OdeumError(
            f"'{root}' holds no runs; a comparison holds {root}/<architecture>/seed-<n>/, "
            f"as `odeum compare DATA --out {root}` writes"
        )
    plan = RunDir(root).read("comparison.json", left_out) or {}
    listed = plan.get("architectures")
    wanted = [str(name) for name in listed] if isinstance(listed, list) else []
    runs = _unique((_run(folder, folders, kept, wanted, left_out) for folder in folders), left_out)
    names = sorted({run.architecture for run in runs})
    hidden = () if everything or not wanted else tuple(name for name in names if name not in wanted)
    runs = tuple(run for run in runs if run.architecture not in hidden)
    order = tuple(dict.fromkeys([*wanted, *(name for name in names if name not in hidden)]))
    baseline = _baseline(plan, order, root)
    facts: dict[str, Any] = next((run.info for run in runs if run.info.get("metric")), {})
    own = str(facts.get("metric") or "loss")
    metric, other = ("loss", own) if plan.get("judge") == "loss" else (own, "loss")
    higher = bool(facts.get("higher_is_better", own != "loss")) if metric == own else False
    done = [run for run in runs if run.result is not None]
    tested = bool(done) and all((run.result or {}).get("test") for run in done)
    split = "test" if tested or not done else "valid"
    runs = tuple(_judged(run, split, metric, left_out) for run in runs)
    pace = read_paces(plan["pace"]) if "pace" in plan else None
    if pace is not None:
        runs = tuple(_paced(run, pace.get(run.architecture)) for run in runs)
    overlap = plan.get("overlap")
    return ComparisonRecord(
        directory=root,
        runs=runs,
        architectures=order,
        baseline=baseline,
        metric=metric,
        other=other if other != metric else None,
        higher_is_better=higher,
        margin=read_margin(plan.get("margin"), metric_named(metric, higher)),
        seeds=_seeds(plan),
        looked=tuple(n for n in _list(plan.get("looked")) if isinstance(n, int)),
        overlap=float(overlap) if isinstance(overlap, int | float) and overlap > 0 else 0.0,
        split=split,
        data=_plain_text(plan.get("data") or facts.get("data") or facts.get("task") or "the data"),
        match=str(plan["match"]) if plan.get("match") else None,
        command=str(plan["command"]) if plan.get("command") else None,
        pace=pace,
        left_out=tuple(dict.fromkeys(left_out)),
        hidden=hidden,
    )


def _baseline(plan: Mapping[str, Any], order: tuple[str, ...], root: Path) -> str | None:
    if plan.get("baseline") == NO_BASELINE:
        return None
    baseline = str(plan.get("baseline") or ("sequential" if "sequential" in order else order[0]))
    if baseline not in order:
        raise OdeumError(f"the baseline '{baseline}' of '{root}' has no runs there; it has: {', '.join(order)}")
    return baseline


def _seeds(plan: Mapping[str, Any]) -> Seeds | None:
    """The plan's seeds; of a damaged plan none, and what is there is looked at once."""
    try:
        return Seeds.parse(plan["seeds"]) if "seeds" in plan else None
    except OdeumError:
        return None


Kept = Mapping[Path, Mapping[str, Any]]
"""run.json and result.json of runs whose folders were folded into one file, by folder"""


def _kept(root: Path, left_out: list[str]) -> Kept:
    path = root / KEPT_RUNS
    runs = {}
    for line, content in storage.read_lines(path) if path.is_file() else ():
        if isinstance(content, storage.Damaged):
            left_out.append(f"{content}; it is left out")
        elif isinstance(content.get("folder"), str):
            runs[root / content["folder"]] = content
        else:
            left_out.append(f"'{path}:{line}' names no folder of a run; it is left out")
    return runs


def _part(folder: Path, name: str, kept: Kept, left_out: list[str]) -> dict[str, Any] | None:
    """`run` or `result` of a run, from its folder or from the file of kept runs."""
    if (folder / f"{name}.json").exists() or folder not in kept:
        return RunDir(folder).read(f"{name}.json", left_out)
    content = kept[folder].get(name)
    return content if isinstance(content, dict) else None


def _run(folder: Path, folders: list[Path], kept: Kept, wanted: list[str], left_out: list[str]) -> RunRecord:
    info = _part(folder, "run", kept, left_out)
    result = _part(folder, "result", kept, left_out)
    if info is None and result is not None:
        left_out.append(f"'{folder}' has a result and no run.json that says of what; it is left out")
        result = None
    if info is not None and result is not None and info.get("run_id") != result.get("run_id"):
        left_out.append(f"'{folder / 'result.json'}' is of another run than run.json beside it; it is left out")
        result = None
    if result is not None and not any(isinstance(result.get(split), dict) for split in ("test", "valid")):
        left_out.append(f"'{folder / 'result.json'}' has numbers of no part of the data; it is left out")
        result = None
    seed = whole((info or {}).get("seed"))
    curve = RunDir(folder).curve()
    if any(line.get("run_id") != (info or {}).get("run_id") for line in curve):
        left_out.append(f"'{folder / 'metrics.jsonl'}' is of another run than run.json beside it; it is left out")
        curve = ()
    return RunRecord(
        architecture=_name(folder, info, folders, kept, wanted, left_out),
        seed=_seed(folder) if seed is None else seed,
        path=folder,
        info=info or {},
        curve=curve,
        result=result,
        cut_off=cut_off(curve) if result is None else None,
    )


def _judged(run: RunRecord, split: str, metric: str, left_out: list[str]) -> RunRecord:
    """A finished run, if it has a number where the architectures are judged; else one that does not count."""
    if run.result is None or run.score(split, metric) is not None:
        return run
    part = run.result.get(split)
    found = repr(part.get(metric, "nothing") if isinstance(part, dict) else part)
    left_out.append(f"'{run.path / 'result.json'}' has no number as {split} {metric} ({found[:40]}); it is left out")
    return replace(run, result=None)


def _paced(run: RunRecord, pace: Pace | None) -> RunRecord:
    """A run that went on beside others was in their way: what its steps cost as measured stands for its own clock."""

    def cost(steps: Any) -> float | None:
        return pace.seconds * float(steps) if pace and isinstance(steps, int | float) else None

    curve = tuple({**record, "seconds": cost(record.get("step"))} for record in run.curve)
    result = run.result
    if result is not None:
        result = {**result, "seconds": cost(result.get("steps")), "step_seconds": pace.seconds if pace else None}
    return replace(run, curve=curve, result=result)


def _name(
    folder: Path,
    info: Mapping[str, Any] | None,
    folders: list[Path],
    kept: Kept,
    wanted: list[str],
    left_out: list[str],
) -> str:
    """A run's architecture; of a broken run, that of its neighbours, or of the plan, or the folder's name."""
    if info and info.get("architecture"):
        return str(info["architecture"])
    for other in folders:
        if other.parent == folder.parent and other != folder:
            found = _part(other, "run", kept, left_out)
            if found and found.get("architecture"):
                return str(found["architecture"])
    plain = {re.sub(r"[^0-9a-z]", "", name.lower()): name for name in wanted}
    return plain.get(re.sub(r"[^0-9a-z]", "", folder.parent.name.lower()), folder.parent.name)


def _unique(runs: Iterable[RunRecord], left_out: list[str]) -> tuple[RunRecord, ...]:
    """One run for an architecture and a seed: a finished one, else the first found."""
    kept: dict[tuple[str, int], RunRecord] = {}
    for run in runs:
        key = run.architecture, run.seed
        if key in kept:
            left_out.append(
                f"'{kept[key].path}' and '{run.path}' are both {run.architecture} with seed {run.seed}; one counts"
            )
        if key not in kept or (kept[key].result is None and run.result is not None):
            kept[key] = run
    return tuple(kept.values())


def _seed(folder: Path) -> int:
    found = re.search(r"\d+", folder.name)
    return int(found.group()) if found else 0


def _plain_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
