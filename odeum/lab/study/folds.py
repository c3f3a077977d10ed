"""Another split of the data for each seed, where nobody has fixed one: the luck of the split is then in the spread.

Training parts of such splits overlap, so seeds are not independent and a plain interval is too narrow. Nadeau and
Bengio (2003) put test / training examples beside 1 / n in the variance of the mean; `differences` calls it `overlap`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.tasks import Task, open_task
from odeum.lab.train.job import Job

VARY = ("seed", "split")
"""what differs from seed to seed: initial weights and batches, or also which examples are held out"""


class Folds:
    """The data of each seed; opened once."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.base: int | None = asdict(task.options).get("fold")
        self.opened = {0: task}
        if self.base is None:
            raise OdeumError(
                f"--vary split needs data that is read and cut here; {task.name} ({task.kind}) has no other split"
            )
        if self.of(1).fingerprint() == task.fingerprint():
            raise OdeumError(f"--vary split: another fold of {task.name} ({task.kind}) holds the same examples out")

    def of(self, seed: int) -> Task:
        """The data of a seed: that of seed 0 is the usual one."""
        if seed not in self.opened:
            options: dict[str, Any] = {**asdict(self.task.options), "fold": (self.base or 0) + seed}
            self.opened[seed] = open_task(*self.task.source, kind=self.task.kind, **options)
        return self.opened[seed]

    def fit(self, run: Job, seed: int) -> Job:
        """The run on the data of its seed."""
        return run.moved_to(self.of(seed))

    @property
    def overlap(self) -> float:
        """Test over training examples."""
        sizes = self.task.sizes()
        if not sizes.get("train") or not sizes.get("test"):
            raise OdeumError(f"--vary split needs data that says how many examples it has; {self.task.name} does not")
        return sizes["test"] / sizes["train"]
