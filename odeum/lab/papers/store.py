"""Results that are kept: one small JSON file a run, without weights and data, from which every table is printed.

A file is found by its recipe (`RowRecipe.key`) and its seed. It counts as done wherever it comes from, so a table is
continued on another machine from these files alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, notice
from odeum.lab.papers.base import RowRecipe
from odeum.lab.study.pace import Pace, read_paces
from odeum.storage import make_directory, read_json, slug, write_json

FIGURES = ("valid", "test", "steps", "seconds", "step_seconds", "peak_memory", "macs", "failed")
"""of result.json"""
PACES = "pace"
"""the folder of measured steps"""
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
    root = Path(__file__).resolve().parents[2]
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

    def path(self, recipe: RowRecipe, seed: int) -> Path:
        return self.directory / recipe.key / f"seed-{seed}.json"

    def runs(self, recipe: RowRecipe) -> dict[int, StoredRun]:
        """By seed; a file that is damaged, or of another recipe, is told of and left out."""
        found = {}
        for path in sorted((self.directory / recipe.key).glob("seed-*.json")):
            number = re.fullmatch(r"seed-(\d+)\.json", path.name)
            if number is None:
                continue
            try:
                content = read_json(path)
            except OdeumError as error:
                notice(f"{error}; it is left out")
                continue
            if content.get("identity") != recipe.identity:
                notice(f"'{path}' is of another recipe than its folder's name says; it is left out")
                continue
            found[int(number[1])] = StoredRun(int(number[1]), content)
        return dict(sorted(found.items()))

    def paces(self, recipes: Iterable[RowRecipe]) -> dict[str, Pace]:
        """What a step of each recipe costs, by its key, where all of them took turns; the last measurement counts."""
        wanted = {recipe.key for recipe in recipes}
        for path in sorted((self.directory / PACES).glob("*.json"), reverse=True):
            try:
                found = read_paces(read_json(path).get("paces"))
            except OdeumError as error:
                notice(f"{error}; it is left out")
                continue
            if wanted <= found.keys():
                return {key: found[key] for key in wanted}
        return {}

    def keep_paces(self, paces: Mapping[str, Pace], circumstances: Mapping[str, Any]) -> Path:
        """One measurement: a file by its date."""
        name = slug(f"{circumstances['date']}-{circumstances['rows'][0]}")
        path = self.directory / PACES / f"{name}.json"
        make_directory(path.parent)
        write_json(path, {**circumstances, "paces": {key: pace.record() for key, pace in paces.items()}})
        return path

    def keep(self, recipe: RowRecipe, seed: int, run: Path, metric: str) -> StoredRun:
        """Take the figures of a finished run's directory; places of this machine are left out of its command."""
        info, result = read_json(run / "run.json"), read_json(run / "result.json")
        facts = {key: info[key] for key in CIRCUMSTANCES if key in info}
        facts["command"] = without_places(str(facts.get("command", "")))
        content = {
            "identity": recipe.identity,
            "seed": seed,
            **{key: result[key] for key in FIGURES if key in result},
            "facts": facts,
            "curve": _curve(run / "metrics.jsonl", metric),
        }
        path = self.path(recipe, seed)
        make_directory(path.parent)
        write_json(path, content)
        return StoredRun(seed, content)


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
