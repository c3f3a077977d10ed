"""Runs on other machines: Ray Core, or Slurm through submitit. All machines must see the folder of the runs.

Both pass a run to any of their processes; its progress is read from its folder.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.launch.local import TRIES, stop_code
from odeum.lab.launch.worker import Event, Tell, Worker
from odeum.lab.train.rundir import RunDir
from odeum.lab.train.settings import Training, seconds_of
from odeum.lab.train.spec import RunSpec
from odeum.storage import make_directory

POLL = 1.0
"""seconds between two polls"""

_worker = Worker()  # of this process: Ray uses a process again for the next run


def execute(spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Carry out a run from `RunSpec.to_json`, in any process: plain values, so that no class must be pickled."""
    return tuple(_worker.execute(spec, lambda event: None))


class CarryOut:
    """`execute` for submitit, which calls `checkpoint` when Slurm preempts a job and requeues the result."""

    def __call__(self, spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return execute(spec)

    def checkpoint(self, spec: dict[str, Any]) -> Any:
        """Resubmit the same run; its state has been saved."""
        return import_module("submitit").helpers.DelayedSubmission(self, spec)


def _private_directory(path: Path) -> Path:
    """A directory that only this user reads and writes: submitit leaves pickles there, which run code when read."""
    make_directory(path)
    if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
        raise OdeumError(f"'{path}' belongs to another user, whose jobs would be run as yours; give another --out")
    path.chmod(0o700)
    return path


class Ray:
    """Ray Core: `address` of a running cluster, or none for one on this machine."""

    def __init__(self, address: str | None, jobs: int | None) -> None:
        if address is None:
            # Read when Ray is imported: a cluster of this machine alone listens on 127.0.0.1, where by default it
            # listens on all interfaces, and who reaches its ports may run code.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            ray: Any = import_module("ray")
        except ImportError:
            raise OdeumError("Ray is not installed; `pip install odeum[ray]`, or use --jobs on this machine") from None
        self.ray = ray
        self.jobs = jobs
        try:
            options: dict[str, Any] = {"_node_ip_address": "127.0.0.1"} if address is None else {}
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False, **options)
        except Exception as error:  # Ray raises several kinds, bare ones among them: a slow start, a path too long
            where = "Ray could not be started here" if address is None else f"there is no Ray cluster at '{address}'"
            raise OdeumError(f"{where}: {' '.join(str(error).split())}") from None
        self.gpus = ray.cluster_resources().get("GPU", 0) > 0

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def run(self, runs: Sequence[RunSpec], tell: Tell) -> list[Event]:
        """Carry out these runs; Ray restarts a run whose process or machine is lost."""
        waiting, running = deque(enumerate(runs)), {}
        ended: dict[int, Event] = {}
        most = self.jobs or max(1, int(self.ray.cluster_resources().get("GPU" if self.gpus else "CPU", 1)))
        code = 130
        try:
            self._run_all(runs, tell, waiting, running, ended, most)
        except KeyboardInterrupt as stop:  # each run continues from its last state
            code = stop_code(stop)
            for reference in running:
                self.ray.cancel(reference, force=True)
        missing = Event("interrupted", {"sentence": "stopped", "code": code})
        return [ended.get(number, missing) for number in range(len(runs))]

    def _run_all(
        self,
        specs: Sequence[RunSpec],
        tell: Tell,
        waiting: deque[tuple[int, RunSpec]],
        running: dict[Any, int],
        ended: dict[int, Event],
        most: int,
    ) -> None:
        while waiting or running:
            while waiting and len(running) < most:
                number, spec = waiting.popleft()
                remote = self.ray.remote(
                    num_cpus=spec.threads or 1, num_gpus=int(self.gpus), max_retries=TRIES - 1, max_calls=0
                )(execute)
                running[remote.remote(spec.spec().to_json())] = number
            done, _ = self.ray.wait(list(running), timeout=POLL)
            for reference in done:
                number = running.pop(reference)
                ended[number] = self._end(reference)
                tell(number, ended[number])
            for number in running.values():
                for event in progress_of(specs[number]):
                    tell(number, event)

    def _end(self, reference: Any) -> Event:
        try:
            return Event(*self.ray.get(reference))
        except self.ray.exceptions.LocalRayletDiedError:  # by which every run is lost, those to come too
            raise OdeumError("the Ray process on this machine has ended; the same command continues its runs") from None
        except self.ray.exceptions.RayError as error:
            first = str(error).strip().split("\n")[0]
            return Event("failed", {"sentence": f"Ray lost the process of this run: {first}"})

    def close(self) -> None:
        """Disconnect from the cluster, and stop it if it was started here."""
        self.ray.shutdown()


class Slurm:
    """submitit: a Slurm array on `partition` (default: the default one), or its local executor to try it out."""

    def __init__(self, partition: str | None, jobs: int | None, folder: Path) -> None:
        try:
            submitit: Any = import_module("submitit")
        except ImportError:
            raise OdeumError(
                "submitit is not installed; `pip install odeum[slurm]`, or use --jobs on this machine"
            ) from None
        local = partition == "local"
        place = _private_directory(folder / ".slurm")
        try:
            self.executor: Any = submitit.AutoExecutor(folder=place, cluster="local" if local else "slurm")
        except RuntimeError as error:
            raise OdeumError(f"Slurm is not available here: {error}; --on slurm:local tries it without") from None
        self.jobs = jobs or (1 if local else None)
        self.parameters: dict[str, Any] = {"timeout_min": 24 * 60, "name": "odeum"}
        if partition is not None and not local:
            self.parameters["slurm_partition"] = partition

    def __enter__(self) -> Slurm:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def run(self, runs: Sequence[RunSpec], tell: Tell) -> list[Event]:
        """Carry out these runs, at most `jobs` at once (None: as many as Slurm allows)."""
        waiting = deque((number, 1) for number in range(len(runs)))
        running: dict[int, tuple[Any, int]] = {}
        ended: dict[int, Event] = {}
        most = self.jobs or len(runs)
        try:
            while waiting or running:
                self._submit(runs, waiting, running, most)
                time.sleep(POLL)
                for number, (job, tries) in list(running.items()):
                    if not job.done():
                        for event in progress_of(runs[number]):
                            tell(number, event)
                        continue
                    del running[number]
                    event = self._end(job)
                    if event.kind == "lost" and tries < TRIES:
                        tell(number, Event("said", {"text": f"{event.content['sentence']}; it is tried again"}))
                        waiting.append((number, tries + 1))
                        continue
                    ended[number] = Event("failed", event.content) if event.kind == "lost" else event
                    tell(number, ended[number])
        except KeyboardInterrupt as stop:
            for job, _ in running.values():
                job.cancel()
            missing = Event("interrupted", {"sentence": "stopped", "code": stop_code(stop)})
            return [ended.get(number, missing) for number in range(len(runs))]
        return [ended[number] for number in range(len(runs))]

    def _submit(
        self, specs: Sequence[RunSpec], waiting: deque[tuple[int, int]], running: dict[int, tuple[Any, int]], most: int
    ) -> None:
        batch = []
        while waiting and len(running) + len(batch) < most:
            batch.append(waiting.popleft())
        if not batch:
            return
        self.executor.update_parameters(cpus_per_task=specs[batch[0][0]].threads or 1, **self.parameters)
        jobs = self.executor.map_array(CarryOut(), [specs[number].spec().to_json() for number, _ in batch])
        for (number, tries), job in zip(batch, jobs, strict=True):
            running[number] = job, tries

    def _end(self, job: Any) -> Event:
        try:
            return Event(*job.result())
        except Exception as error:  # submitit raises several kinds for a job that is gone
            first = str(error).strip().split("\n")[0]
            return Event("lost", {"sentence": f"Slurm lost the process of this run: {first}"})

    def close(self) -> None:
        """Nothing to close."""


def progress_of(spec: RunSpec) -> Iterator[Event]:
    """The progress of a run, from the last line of its metrics."""
    record = RunDir(spec.directory).last_record()
    if record is not None:
        numbers = {key: value for key, value in record.items() if isinstance(value, int | float)}
        yield Event("progress", numbers | {"fraction": _fraction(spec.training, numbers)})


def _fraction(training: Training, numbers: dict[str, float]) -> float:
    """The completed fraction of a run, by whichever length it has."""
    budget = seconds_of(training.budget) if training.budget else None
    ends = (("step", training.steps), ("seconds", budget), ("macs", training.macs))
    key, end = next(((key, end) for key, end in ends if end), ("epoch", training.epochs))
    return min(1.0, numbers.get(key, 0.0) / end)
