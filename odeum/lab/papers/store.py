"""Kept results: one line of JSON per run, without weights and data, from which every table is printed.

A line is found by its recipe (`RunSpec.key`) and its seed; the runs on one data set share a .jsonl file. A kept run
counts as done wherever it was trained, so a table is continued on another machine from these files alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import odeum
from odeum.errors import notice
from odeum.lab.study.pace import Pace, read_paces
from odeum.lab.train.spec import RunSpec
from odeum.storage import Damaged, append_line, make_directory, read_json, read_lines

FIGURES = ("valid", "test", "steps", "seconds", "step_seconds", "peak_memory", "macs", "failed")
"""of result.json"""
PACES = "pace.jsonl"
"""the file of measured steps"""
CIRCUMSTANCES = (
    "parameters",
    "macs",
    "evaluations",
    "fingerprint",
    "threads",
    "device",
    "versions",
    "git",
    "command",
    "date",
)
"""of run.json"""


def results_home() -> Path:
    """`results/tables` of the checkout that Odeum runs from, or of the current directory if it is installed."""
    root = Path(odeum.__file__).resolve().parents[1]
    return (root if (root / "pyproject.toml").is_file() else Path()) / "results" / "tables"


@dataclass(frozen=True)
class StoredRun:
    """One kept run."""

    seed: int
    content: Mapping[str, Any]

    def score(self, split: str, metric: str) -> float | None:
        """A number of the validation or of the test part; not finite if the run diverged."""
        value = (self.content.get(split) or {}).get(metric)
        if value is None and self.content.get("failed"):
            return math.nan
        return float(value) if isinstance(value, int | float) else None

    def fact(self, name: str) -> Any:
        """Of the model and of the circumstances, such as `parameters` or `date`."""
        return (self.content.get("facts") or {}).get(name)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Step and validation metric."""
        return [(float(step), float(value)) for step, value in self.content.get("curve") or ()]


@dataclass(frozen=True)
class Store:
    """A directory of kept runs."""

    directory: Path

    def path(self, recipe: RunSpec) -> Path:
        """The file that holds the runs of this recipe, among others on the same data."""
        return self.directory / f"{recipe.key.partition('/')[0]}.jsonl"

    def runs(self, recipe: RunSpec) -> dict[int, StoredRun]:
        """By seed, the last line of each; a line that is damaged, or of another recipe, is reported and left out."""
        path = self.path(recipe)
        runs = {}
        for number, content in lines_of(path):
            if content.get("recipe") != recipe.key:
                continue
            if content.get("identity") != recipe.recipe or not isinstance(content.get("seed"), int):
                notice(f"'{path}:{number}' is of another recipe than its name says; it is left out")
                continue
            runs[content["seed"]] = StoredRun(content["seed"], content)
        return dict(sorted(runs.items()))

    def paces(self, recipes: Iterable[RunSpec]) -> dict[str, Pace]:
        """Cost per step of each recipe, by its key, where all of them took turns; the last measurement counts."""
        wanted = {recipe.key for recipe in recipes}
        for _, content in sorted(
            lines_of(self.directory / PACES), key=lambda line: str(line[1].get("date")), reverse=True
        ):
            paces = read_paces(content.get("paces"))
            if wanted <= paces.keys():
                return {key: paces[key] for key in wanted}
        return {}

    def keep_paces(self, paces: Mapping[str, Pace], circumstances: Mapping[str, Any]) -> Path:
        """Append one measurement."""
        path = self.directory / PACES
        make_directory(path.parent)
        append_line(path, {**circumstances, "paces": {key: pace.record() for key, pace in paces.items()}})
        return path

    def keep(self, recipe: RunSpec, seed: int, run: Path, metric: str) -> StoredRun:
        """Take the figures of a finished run's directory; places of this machine are left out of its command."""
        info, result = read_json(run / "run.json"), read_json(run / "result.json")
        facts = {key: info[key] for key in CIRCUMSTANCES if key in info}
        facts["command"] = without_places(str(facts.get("command", "")))
        content = {
            "recipe": recipe.key,
            "identity": recipe.recipe,
            "seed": seed,
            **{key: result[key] for key in FIGURES if key in result},
            "facts": facts,
            "curve": _curve(run / "metrics.jsonl", metric),
        }
        path = self.path(recipe)
        make_directory(path.parent)
        append_line(path, content)
        return StoredRun(seed, content)


def lines_of(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The number and the content of each whole line; damaged ones are reported, once for each state of the file."""
    if not path.exists():
        return []
    state = path.stat()
    return _lines(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=32)  # a table asks for each of its rows in turn
def _lines(path: Path, changed: int, size: int) -> list[tuple[int, dict[str, Any]]]:
    whole = []
    for number, content in read_lines(path):
        if isinstance(content, Damaged):
            notice(f"{content}; it is left out")
        else:
            whole.append((number, content))
    return whole


def without_places(command: str) -> str:
    """A command without the directories of this machine."""
    return re.sub(r" --(out|results)(=| )\S+", "", command)


def _curve(path: Path, metric: str) -> list[list[float]]:
    """Of each evaluation on the way: the step and the metric, or the loss where the metric is costly."""
    points: dict[int, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except ValueError:  # of a run that was killed while it wrote
            continue
        value = record.get(metric, record.get("loss")) if record.get("split") == "valid" else None
        if isinstance(value, int | float) and math.isfinite(value):
            points[int(record["step"])] = round(float(value), 5)
    return [[step, value] for step, value in sorted(points.items())]
