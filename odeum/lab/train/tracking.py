"""Sends metrics to TensorBoard, trackio, Weights & Biases or MLflow; metrics.jsonl remains authoritative."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from odeum.errors import OdeumError, choose, notice
from odeum.registry.spelling import spell
from odeum.storage import slug

if TYPE_CHECKING:
    from odeum.lab.train.job import Job

PROJECT = "odeum"
NOT_TRACKED = ("epoch", "seconds", "macs")
"""keys of metrics.jsonl that are not sent to trackers"""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers show it: the comparison is the group, architecture and seed are the name."""

    directory: Path
    group: str
    name: str
    config: dict[str, Any]

    @property
    def key(self) -> str:
        """Identifier that stays the same when the run is continued."""
        return hashlib.blake2b(str(self.directory.absolute()).encode(), digest_size=8).hexdigest()


class Tracker(Protocol):
    """Receives numbers by name and step."""

    def log(self, values: dict[str, float], step: int) -> None: ...

    def finish(self) -> None: ...


class TensorBoard:
    """Writes events into the run folder."""

    def __init__(self, run: TrackedRun) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise OdeumError(
                "TensorBoard is not installed; `pip install odeum[track]`, or track the run without it"
            ) from None
        self.writer = SummaryWriter(str(run.directory / "tensorboard"))

    def log(self, values: dict[str, float], step: int) -> None:
        """Log one scalar per value."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def finish(self) -> None:
        """Close the event file."""
        getattr(self.writer, "close", lambda: None)()


class Wandb:
    """Weights & Biases, or trackio with the same interface. WANDB_MODE=offline needs no account."""

    def __init__(self, run: TrackedRun, library: str, **options: Any) -> None:
        self.module = _import(library)
        self.run = self.module.init(project=PROJECT, group=run.group, name=run.name, config=run.config, **options)

    def log(self, values: dict[str, float], step: int) -> None:
        """Log all values of a step in one call."""
        self.run.log(values, step=step)

    def finish(self) -> None:
        """Wait until everything is written."""
        self.module.finish()  # not run.finish(): trackio would finish a second time at the end of the process


def _wandb(run: TrackedRun) -> Tracker:
    settings = _import("wandb").Settings(silent=True)
    return Wandb(run, "wandb", dir=str(run.directory), id=run.key, resume="allow", settings=settings)


class Mlflow:
    """MLflow through its client, which has no active run per process; MLFLOW_TRACKING_URI names the server."""

    def __init__(self, run: TrackedRun) -> None:
        self.client = _import("mlflow").MlflowClient()
        existing = self.client.get_experiment_by_name(PROJECT)
        experiment = existing.experiment_id if existing else self._experiment()
        earlier = self.client.search_runs([experiment], f"tags.`odeum.run` = '{run.key}'")
        if earlier:
            self.id = earlier[0].info.run_id
            return
        tags = {"odeum.run": run.key, "group": run.group}
        self.id = self.client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
        for name, value in run.config.items():
            self.client.log_param(self.id, name, str(value)[:500])

    def _experiment(self) -> str:
        """Create the experiment, or get it if another run created it at the same time."""
        try:
            return self.client.create_experiment(PROJECT)
        except Exception:
            existing = self.client.get_experiment_by_name(PROJECT)
            if existing is None:
                raise
            return existing.experiment_id

    def log(self, values: dict[str, float], step: int) -> None:
        """Log one metric per value."""
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=step)

    def finish(self) -> None:
        """Mark the run as terminated; it can still be continued."""
        self.client.set_terminated(self.id)


TRACKERS: dict[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": lambda run: Wandb(run, "trackio"),
    "wandb": _wandb,
    "mlflow": Mlflow,
}


def check_installed(name: str) -> None:
    """Raises `OdeumError` if the tracker's package is missing."""
    choose(name, TRACKERS, "tracker")
    if name not in sys.modules and find_spec(name) is None:
        raise OdeumError(f"--track {name} needs {name}; `pip install {name}`, or leave it out")


class SafeTracker:
    """A tracker whose failure does not stop the run: it is dropped, since metrics.jsonl has the same numbers."""

    def __init__(self, name: str, run: TrackedRun) -> None:
        self.name = choose(name, TRACKERS, "tracker")
        self.tracker: Tracker | None = None
        try:
            with redirect_stdout(sys.stderr):  # standard output is for results only
                self.tracker = TRACKERS[name](run)
        except OdeumError:
            raise
        except Exception as error:  # a library or a service may raise anything
            raise OdeumError(f"--track {name} cannot start: {type(error).__name__}: {_line(error)}") from None

    def write(self, line: dict[str, Any]) -> None:
        """Log the numbers of one line of metrics.jsonl."""
        values = {
            f"{line['split']}/{key}": value
            for key, value in line.items()
            if isinstance(value, float) and key not in NOT_TRACKED
        }
        self._attempt(lambda tracker: tracker.log(values, line["step"]))

    def finish(self) -> None:
        """Finish the tracker."""
        self._attempt(lambda tracker: tracker.finish())

    def _attempt(self, act: Callable[[Tracker], None]) -> None:
        if self.tracker is None:
            return
        try:
            with redirect_stdout(sys.stderr):
                act(self.tracker)
        except Exception as error:  # a network error or a full disk must not stop the run
            self.tracker = None
            notice(
                f"--track {self.name} failed and is disabled for the rest of the run: {type(error).__name__}: "
                f"{_line(error)}"
            )


def trackers_of(job: Job, run: dict[str, Any]) -> list[SafeTracker]:
    """Returns the trackers that the training settings name."""
    names = ("tensorboard" if job.training.tensorboard else None, job.training.track)
    return [SafeTracker(name, _tracked_run(job, run)) for name in dict.fromkeys(names) if name is not None]


def _tracked_run(job: Job, run: dict[str, Any]) -> TrackedRun:
    """The group is the comparison of a folder COMPARISON/ARCHITECTURE/seed-N, else the data set."""
    architecture, place = spell(job.architecture), job.directory.absolute()
    usual = place.name == f"seed-{job.seed}" and place.parent.name == slug(architecture)
    group = place.parents[1].name if usual else job.task.name
    keys = ("task", "metric", "equation", "scheme", "parameters", "macs", "evaluations", "order", "device", "threads")
    config = {name: run[name] for name in keys if name in run}
    config |= {"architecture": architecture, "seed": job.seed}
    config |= {f"model.{k}": v for k, v in asdict(job.model).items()}
    config |= {f"train.{k}": v for k, v in asdict(job.training).items()}
    return TrackedRun(place, group, f"{architecture}/seed-{job.seed}", config)


def _import(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise OdeumError(f"--track {library} needs {library}; `pip install {library}`, or leave it out") from None


def _line(error: Exception) -> str:
    return (str(error).strip() or "no reason given").splitlines()[0][:200]
