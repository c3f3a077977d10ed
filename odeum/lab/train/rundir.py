"""RunDir: reads and writes the folder of one run, without torch.

run.json        identity and circumstances of the run; written first, only by `write_run`
metrics.jsonl   one line per log entry or evaluation
result.json     the final figures; a run without it is unfinished
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.storage import Damaged, current_path, read_json, write_json

RUN, RESULT, METRICS, CHECKPOINT = "run.json", "result.json", "metrics.jsonl", "checkpoint"
COMPARISON = "comparison.json"
"""record of a comparison, in the folder above those of its runs"""
PROGRESS = (METRICS, CHECKPOINT, RESULT)
"""files that exist once training has begun; a folder without them may be replaced"""
PRODUCTS = ("config.json", "model.safetensors", "tensorboard", "examples.npz", "confusion.json")
"""other files of a run"""
LARGEST_NUMBER = 1e100
"""numbers above this are not measurements: sums of their squares would overflow"""


@dataclass(frozen=True)
class RunDir:
    """The folder of one run."""

    path: Path

    @property
    def is_run(self) -> bool:
        return current_path(self.path / RUN).exists()

    @property
    def finished(self) -> bool:
        return current_path(self.path / RESULT).exists()

    @property
    def begun(self) -> bool:
        """Whether there is training progress to lose."""
        return any(current_path(self.path / name).exists() for name in PROGRESS)

    def check_overwrite(self) -> None:
        """Raises `OdeumError` if the folder holds files that a run would overwrite and is not a run."""
        if current_path(self.path / COMPARISON).exists():
            raise OdeumError(f"'{self.path}' holds a comparison, whose rows would include this run; give another --out")
        existing = [name for name in (*PROGRESS, *PRODUCTS) if current_path(self.path / name).exists()]
        if existing and not self.is_run:
            raise OdeumError(
                f"'{self.path}' holds {existing[0]} but no run.json, so it is not an Odeum run, and a run would "
                "overwrite it; give another --out"
            )

    def run(self) -> dict[str, Any]:
        """The content of run.json; raises `Damaged` if it cannot be read."""
        return read_json(self.path / RUN)

    def write_run(self, content: Mapping[str, Any]) -> None:
        write_json(self.path / RUN, dict(content))

    def result(self) -> dict[str, Any]:
        """The content of result.json; raises `Damaged` if it lacks the figures of a split (tuning has no test)."""
        path = self.path / RESULT
        content = read_json(path)
        for split in ("valid", "test") if "test" in content else ("valid",):
            values = content.get(split)
            if not isinstance(values, dict) or not all(isinstance(value, int | float) for value in values.values()):
                raise Damaged(f"'{path}' is damaged: it has no numbers of the {split} part; --overwrite starts again")
        return content

    def write_result(self, content: Mapping[str, Any]) -> None:
        write_json(self.path / RESULT, dict(content))

    def read(self, name: str, problems: list[str]) -> dict[str, Any] | None:
        """A JSON file of the folder; None if it is missing or damaged. Damage is appended to `problems`."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            return read_json(path)
        except Damaged as error:
            problems.append(f"{error}; it is left out")
            return None

    def curve(self) -> tuple[dict[str, Any], ...]:
        """The complete records of metrics.jsonl by step; of a step that was evaluated twice, the later record.

        Torn lines (the process was killed while it wrote) are skipped.
        """
        path = self.path / METRICS
        try:
            lines = path.read_bytes().splitlines() if path.is_file() else []
        except OSError:
            return ()
        records: dict[tuple[str, int], dict[str, Any]] = {}
        for line in lines:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and (step := integer(record.get("step"))) is not None:
                records[str(record.get("split", "train")), step] = record
        return tuple(records[key] for key in sorted(records, key=lambda key: (key[1], key[0])))

    def last_record(self) -> dict[str, Any] | None:
        """The last line of metrics.jsonl, read without the lines before it."""
        path = self.path / METRICS
        try:
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                last = file.read().decode("utf-8", errors="replace").rstrip("\n").rsplit("\n", 1)[-1]
            record = json.loads(last)
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def clear(self) -> None:
        """Remove an earlier run's files, and nothing else; run.json stays, to be replaced by the new one."""
        for name in (*PROGRESS, *PRODUCTS) if self.is_run else ():
            path = current_path(self.path / name)
            try:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise OdeumError(f"cannot remove '{self.path / name}': {error.strerror}") from None


def cut_off(curve: Sequence[Mapping[str, Any]]) -> str | None:
    """The time limit that ended an unfinished run, if one did and the run has not continued since."""
    last = max((record["step"] for record in curve), default=0)
    return next((str(record["cut_off"]) for record in curve if record["step"] == last and record.get("cut_off")), None)


def number(value: Any) -> float | None:
    """A JSON value as a float, infinite beyond `LARGEST_NUMBER`; None if it is not a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if abs(value) > LARGEST_NUMBER:
        return math.inf if value > 0 else -math.inf
    return float(value)


def integer(value: Any) -> int | None:
    """A finite JSON number as an integer, else None."""
    result = number(value)
    return int(result) if result is not None and math.isfinite(result) else None
