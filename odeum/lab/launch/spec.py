"""A run as plain words that any process on any machine can carry out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.lab.train.settings import Training

if TYPE_CHECKING:
    from odeum.lab.train.job import Job


@dataclass(frozen=True)
class RunSpec:
    """What decides a run, as JSON can hold it: dictionaries and words, no tensors and no data."""

    source: tuple[str, ...]
    """a named set, or absolute paths"""
    kind: str
    options: dict[str, Any]
    model: dict[str, Any]
    architecture: str
    """its spelling"""
    training: dict[str, Any]
    seed: int
    directory: str
    command: str = ""
    threads: int = 1
    facts: dict[str, Any] | None = None
    """what `describe` said"""
    plugins: tuple[str, ...] = ()
    """files or modules that the user named: they are loaded before the words are read"""

    @property
    def title(self) -> str:
        """For people: architecture and seed."""
        return f"{self.architecture} seed {self.seed}"

    @classmethod
    def of(cls, job: Job, plugins: tuple[str, ...] = ()) -> RunSpec:
        """The words of a job."""
        from odeum.registry.spelling import spell

        task = job.task
        return cls(
            source=task.source,
            kind=task.kind,
            options=asdict(task.options),
            model=asdict(job.model),
            architecture=spell(job.architecture),
            training=asdict(job.training),
            seed=job.seed,
            directory=str(job.directory.absolute()),
            command=job.command,
            threads=job.threads or 1,
            facts=job.facts,
            plugins=plugins,
        )

    def job(self, tasks: Callable[[RunSpec], Any]) -> Job:
        """The job of these words; `tasks` opens the data, or finds it opened."""
        from odeum.kinds import KINDS
        from odeum.lab.train.job import Job
        from odeum.models.saved import settings_recorded
        from odeum.registry.spelling import parse

        return Job(
            task=tasks(self),
            model=settings_recorded(KINDS[self.kind].settings.__name__, self.model),
            architecture=parse(self.architecture),
            training=Training(**self.training),
            seed=self.seed,
            directory=Path(self.directory),
            command=self.command,
            threads=self.threads,
            facts=self.facts,
        )
