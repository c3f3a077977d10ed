"""Where else a run's metrics go: TensorBoard, trackio, Weights & Biases, MLflow. metrics.jsonl stays the truth."""

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
"""of a line of metrics.jsonl: what trackers count themselves"""


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker shows of a run: its comparison as the group, architecture and seed as the name."""

    directory: Path
    group: str
    name: str
    config: dict[str, Any]

    @property
    def key(self) -> str:
        """The same for a run that is continued."""
        return hashlib.blake2b(str(self.directory.absolute()).encode(), digest_size=8).hexdigest()


class Tracker(Protocol):
    """A place that is given numbers by name and step."""

    def log(self, values: dict[str, float], step: int) -> None: ...

    def finish(self) -> None: ...


class TensorBoard:
    """Events in the run's own directory."""

    def __init__(self, run: TrackedRun) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise OdeumError(
                "TensorBoard is not installed; `pip install odeum[track]`, or track the run without it"
            ) from None
        self.writer = SummaryWriter(str(run.directory / "tensorboard"))

    def log(self, values: dict[str, float], step: int) -> None:
        """A scalar each."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def finish(self) -> None:
        """Close the file, if the writer can."""
        getattr(self.writer, "close", lambda: None)()


class Initialised:
    """Weights & Biases and trackio, which has its interface. WANDB_MODE=offline needs no account."""

    def __init__(self, run: TrackedRun, library: str, **own: Any) -> None:
        self.module = _imported(library)
        self.run = self.module.init(project=PROJECT, group=run.group, name=run.name, config=run.config, **own)

    def log(self, values: dict[str, float], step: int) -> None:
        """All of a step at once."""
        self.run.log(values, step=step)

    def finish(self) -> None:
        """Wait until all is written."""
        self.module.finish()  # the library's own, or trackio finishes a second time at the end of the process


def _wandb(run: TrackedRun) -> Tracker:
    settings = _imported("wandb").Settings(silent=True)
    return Initialised(run, "wandb", dir=str(run.directory), id=run.key, resume="allow", settings=settings)


class Mlflow:
    """By its client, which keeps no run of the process: MLFLOW_TRACKING_URI says where."""

    def __init__(self, run: TrackedRun) -> None:
        self.client = _imported("mlflow").MlflowClient()
        found = self.client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else self._experiment()
        earlier = self.client.search_runs([experiment], f"tags.`odeum.run` = '{run.key}'")
        if earlier:
            self.id = earlier[0].info.run_id
            return
        tags = {"odeum.run": run.key, "group": run.group}
        self.id = self.client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
        for name, value in run.config.items():
            self.client.log_param(self.id, name, str(value)[:500])

    def _experiment(self) -> str:
        """Two runs that begin at once may both find none."""
        try:
            return self.client.create_experiment(PROJECT)
        except Exception:
            found = self.client.get_experiment_by_name(PROJECT)
            if found is None:
                raise
            return found.experiment_id

    def log(self, values: dict[str, float], step: int) -> None:
        """A metric each."""
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=step)

    def finish(self) -> None:
        """The run is over, or will be taken up again."""
        self.client.set_terminated(self.id)


TRACKERS: dict[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": lambda run: Initialised(run, "trackio"),
    "wandb": _wandb,
    "mlflow": Mlflow,
}


def check_installed(name: str) -> None:
    """Raise `OdeumError` if the package of a tracker is missing, before anything is trained."""
    choose(name, TRACKERS, "tracker")
    if name not in sys.modules and find_spec(name) is None:
        raise OdeumError(f"--track {name} needs {name}; `pip install {name}`, or leave it out")


class Careful:
    """A tracker that fails is left out for the rest of the run: what it shows stands in metrics.jsonl."""

    def __init__(self, name: str, run: TrackedRun) -> None:
        self.name = choose(name, TRACKERS, "tracker")
        self.tracker: Tracker | None = None
        try:
            with redirect_stdout(sys.stderr):  # where answers stand, nobody else should talk
                self.tracker = TRACKERS[name](run)
        except OdeumError:
            raise
        except Exception as error:  # of a library and of a service: anything
            raise OdeumError(f"--track {name} does not begin: {type(error).__name__}: {_line(error)}") from None

    def write(self, line: dict[str, Any]) -> None:
        """The numbers of a line of metrics.jsonl."""
        values = {
            f"{line['split']}/{key}": value
            for key, value in line.items()
            if isinstance(value, float) and key not in NOT_TRACKED
        }
        self._attempt(lambda tracker: tracker.log(values, line["step"]))

    def finish(self) -> None:
        """Nothing more will come."""
        self._attempt(lambda tracker: tracker.finish())

    def _attempt(self, act: Callable[[Tracker], None]) -> None:
        if self.tracker is None:
            return
        try:
            with redirect_stdout(sys.stderr):
                act(self.tracker)
        except Exception as error:  # a network, a full disk: no reason to lose a run
            self.tracker = None
            notice(f"--track {self.name} failed and is left out from here on: {type(error).__name__}: {_line(error)}")


def trackers_of(job: Job, run: dict[str, Any]) -> list[Careful]:
    """Those that the training asks for."""
    asked = ("tensorboard" if job.training.tensorboard else None, job.training.track)
    return [Careful(name, _tracked(job, run)) for name in dict.fromkeys(asked) if name is not None]


def _tracked(job: Job, run: dict[str, Any]) -> TrackedRun:
    """A run in its usual place, COMPARISON/ARCHITECTURE/seed-N, belongs to that comparison; another to its data."""
    architecture, place = spell(job.architecture), job.directory.absolute()
    usual = place.name == f"seed-{job.seed}" and place.parent.name == slug(architecture)
    group = place.parents[1].name if usual else job.task.name
    told = ("task", "metric", "equation", "scheme", "parameters", "macs", "evaluations", "order", "device", "threads")
    config = {name: run[name] for name in told if name in run}
    config |= {"architecture": architecture, "seed": job.seed}
    config |= {f"model.{k}": v for k, v in asdict(job.model).items()}
    config |= {f"train.{k}": v for k, v in asdict(job.training).items()}
    return TrackedRun(place, group, f"{architecture}/seed-{job.seed}", config)


def _imported(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise OdeumError(f"--track {library} needs {library}; `pip install {library}`, or leave it out") from None


def _line(error: Exception) -> str:
    return (str(error).strip() or "no reason given").splitlines()[0][:200]
