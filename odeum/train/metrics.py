"""metrics.jsonl: one line for each look at a run, and the same as TensorBoard events on request."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.storage import write_bytes


class Metrics:
    """Written line by line while a run goes on; what a run does again after an interruption is not there twice."""

    def __init__(self, directory: Path, tensorboard: bool = False) -> None:
        self.path = directory / "metrics.jsonl"
        self.events = _events(directory / "tensorboard") if tensorboard else None

    def write(self, line: dict[str, Any]) -> None:
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise OdeumError(f"cannot write '{self.path}': {error.strerror}; the same command continues") from None
        if self.events is not None:
            for key, value in line.items():
                if isinstance(value, float) and key not in ("epoch", "seconds", "macs"):
                    self.events.add_scalar(f"{line['split']}/{key}", value, line["step"])

    def forget_after(self, step: int) -> None:
        """Drop what was logged after the state that a run continues from, and half a line of a power cut."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            with contextlib.suppress(ValueError, KeyError):
                if json.loads(line)["step"] <= step:
                    kept.append(line)
        write_bytes(self.path, "".join(line + "\n" for line in kept).encode())


def _events(directory: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise OdeumError(
            "TensorBoard is not installed; `pip install odeum[track]`, or leave --train.tensorboard out"
        ) from None
    return SummaryWriter(str(directory))
