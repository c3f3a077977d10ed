"""metrics.jsonl: one line per log entry or evaluation; also sent to trackers on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.train.tracking import SafeTracker
from odeum.storage import Damaged, current_path, read_bytes, run_id_entry, write_bytes


class Metrics:
    """Appends to metrics.jsonl during a run; steps repeated after an interruption are not logged twice."""

    def __init__(self, directory: Path, trackers: Sequence[SafeTracker] = ()) -> None:
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
        """Send a line to the trackers only."""
        for tracker in self.trackers:
            tracker.write(line)

    def close(self) -> None:
        """Finish all trackers."""
        for tracker in self.trackers:
            tracker.finish()

    def forget_after(self, step: int) -> None:
        """Remove lines after the checkpoint that the run continues from, and torn lines."""
        if current_path(self.path).exists():
            self._keep(self.path, lambda line: line["step"] <= step)

    def forget(self, step: int, split: str) -> None:
        """Remove the lines of this split and step."""
        if current_path(self.path).exists():
            self._keep(self.path, lambda line: (line["step"], line["split"]) != (step, split))

    def copy_from(self, directory: Path) -> None:
        """Copy the metrics of the run that this one continues from."""
        if (directory / "metrics.jsonl").exists():
            self._keep(directory / "metrics.jsonl", lambda line: True)

    def _keep(self, source: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Rewrite the file with the wanted lines of `source`, marked as lines of this run."""
        mark = run_id_entry(self.path)
        lines = read_bytes(source).split(b"\n")
        entries = []
        for line in lines:
            try:
                content = json.loads(line)
                chosen = wanted(content)
            # not JSON, nested too deeply, without a step, or with a step that is not a number: not a log line
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if source == self.path and content.get("run_id") != mark.get("run_id"):
                raise Damaged(f"'{source}' is of another run than run.json beside it; copy one run whole")
            if chosen:
                entries.append(json.dumps({**content, **mark}).encode())
        if source != self.path or [*entries, b""] != lines:
            write_bytes(self.path, b"".join(entry + b"\n" for entry in entries))
