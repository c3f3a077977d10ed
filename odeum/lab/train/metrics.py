"""metrics.jsonl: one line for each look at a run, and the same for trackers on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.train.tracking import Careful
from odeum.storage import Damaged, current_path, read_bytes, run_id_entry, write_bytes


class Metrics:
    """Written line by line while a run goes on; what a run does again after an interruption is not there twice."""

    def __init__(self, directory: Path, trackers: Sequence[Careful] = ()) -> None:
        self.path = directory / "metrics.jsonl"
        self.trackers = trackers

    def write(self, line: dict[str, Any]) -> None:
        try:
            with open(current_path(self.path), "a", encoding="utf-8") as file:
                file.write(json.dumps({**line, **run_id_entry(self.path)}) + "\n")
        except OSError as error:
            raise OdeumError(f"cannot write '{self.path}': {error.strerror}; the same command continues") from None
        self.track(line)

    def track(self, line: dict[str, Any]) -> None:
        """Tell the trackers alone."""
        for tracker in self.trackers:
            tracker.write(line)

    def close(self) -> None:
        """Nothing more will come."""
        for tracker in self.trackers:
            tracker.finish()

    def forget_after(self, step: int) -> None:
        """Drop what was logged after the state that a run continues from, and half a line of a power cut."""
        if current_path(self.path).exists():
            self._keep(self.path, lambda line: line["step"] <= step)

    def forget(self, step: int, split: str) -> None:
        """Drop what was logged of this part of the data at this step."""
        if current_path(self.path).exists():
            self._keep(self.path, lambda line: (line["step"], line["split"]) != (step, split))

    def copy_from(self, directory: Path) -> None:
        """What another run logged, which this one goes on from."""
        if (directory / "metrics.jsonl").exists():
            self._keep(directory / "metrics.jsonl", lambda line: True)

    def _keep(self, source: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Write the wanted lines of a file again as lines of this run."""
        mine = run_id_entry(self.path)
        lines = read_bytes(source).split(b"\n")
        kept = []
        for line in lines:
            try:
                content = json.loads(line)
                chosen = wanted(content)
            # no JSON, nested too deeply, no step, or a step that is no number: nothing that was logged
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if source == self.path and content.get("run_id") != mine.get("run_id"):
                raise Damaged(f"'{source}' is of another run than run.json beside it; copy one run whole")
            if chosen:
                kept.append(json.dumps({**content, **mine}).encode() + b"\n")
        write_bytes(self.path, b"".join(kept))
