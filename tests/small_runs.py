"""Small runs on digits, one after another in one process (or, under torchrun, in several): what the tests train.

As a script: `python small_runs.py '[{"out": ..., "architecture": ..., "strategy": ...}, ...]'`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from odeum.errors import OdeumError
from odeum.lab.tasks import Task, open_task
from odeum.lab.train.distributed.ranks import print_error
from odeum.lab.train.interrupt import Interrupted
from odeum.lab.train.job import Job
from odeum.lab.train.origin import write_run
from odeum.lab.train.progress import Progress
from odeum.lab.train.run import train, with_changes
from odeum.models import assemble
from odeum.registry.spelling import parse

TRAINING = {"steps": 20, "batch_size": 33, "learning_rate": 2e-3, "evaluate_every": 10**9}


@cache
def digits() -> Task:
    return open_task("digits")


def job(out: Path | str, architecture: str = "sequential", **settings: Any) -> Job:
    """A model of two layers; `settings` are those of the training, `dropout` is of the model."""
    dropout, overwrite = settings.pop("dropout", 0.0), settings.pop("overwrite", False)
    model = replace(digits().model(), depth=2, width=32, heads=4, hidden=64, dropout=dropout)  # ty: ignore
    training = with_changes(digits().training(), TRAINING | settings)
    return Job.on(digits(), model, parse(architecture), training, 0, Path(out), overwrite=overwrite)


class Stopping(Progress):
    """Sends this process a signal when the run has come so far; unless told otherwise, that of Ctrl-C."""

    def __init__(self, stop: int, by: int) -> None:
        super().__init__("test", quiet=True)
        self.stop, self.by = stop, by

    def update(self, *, step: int, **values: Any) -> None:
        if step == self.stop:
            os.kill(os.getpid(), self.by)


def run(
    out: Path | str, architecture: str = "sequential", stop: int = 0, by: int = signal.SIGINT, **settings: Any
) -> dict[str, Any]:
    """Train; with `stop`, until about that step: the result is empty then."""
    try:
        return train(job(out, architecture, **settings), Stopping(stop, by))
    except Interrupted:
        return {}


def lines(out: Path | str, split: str = "train") -> list[dict[str, Any]]:
    content = (Path(out) / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, content) if line["split"] == split]


def states(out: Path | str) -> list[int]:
    """The steps of the states that a run may go on from."""
    return sorted(int(path.name.removeprefix("step-")) for path in (Path(out) / "checkpoint").iterdir())


def losses(out: Path | str) -> list[float]:
    return [line["loss"] for line in lines(out)]


def untrained(out: Path, architecture: str, *data: Any, changes: dict[str, Any] | None = None, **options: Any) -> Path:
    """A run as it would be after no step of training; with larger weights, so that every answer differs."""
    task = open_task(*data, **options)
    settings = with_changes(task.model(), {"width": 16, "heads": 2, "depth": 2, **(changes or {})})
    torch.manual_seed(1)
    model: Any = assemble(parse(architecture), settings).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    write_run(out, model, task, {}, "odeum train …")
    return out


def write_photos(folder: Path) -> Path:
    """Six bright and six dark images that are not square, in a folder per class."""
    noise = np.random.default_rng(0)
    for name, low in (("bright", 150), ("dark", 0)):
        (folder / name).mkdir()
        for i in range(6):
            Image.fromarray(noise.integers(low, low + 100, (8, 12, 3), dtype=np.uint8)).save(folder / name / f"{i}.png")
    return folder


if __name__ == "__main__":
    for words in json.loads(sys.argv[1]):
        if "complaint" in words:
            print_error(OdeumError(words["complaint"]))
        else:
            run(**words)
