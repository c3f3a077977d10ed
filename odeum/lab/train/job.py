"""A run in this process: its spec with the data open, and the content of its run.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from odeum.errors import OdeumError, notice
from odeum.kernels.matmul import use_onednn
from odeum.lab.tasks import Task
from odeum.lab.train.batches import seed_generators
from odeum.lab.train.distributed.world import World
from odeum.lab.train.memory import keep_freed_memory
from odeum.lab.train.origin import load_initial_weights, run_record
from odeum.lab.train.resume import check_origin
from odeum.lab.train.rundir import COMPARISON, RunDir
from odeum.lab.train.settings import MAY_CHANGE, Training
from odeum.lab.train.spec import RunSpec
from odeum.lab.train.transfer import scale_initial_weights, transferred
from odeum.models import OdeumModel, build
from odeum.models.description import describe
from odeum.models.limits import available_memory, check_memory
from odeum.models.settings import Model
from odeum.registry.names import Architecture
from odeum.registry.plugins import check_requirements
from odeum.registry.spelling import label
from odeum.storage import begin_run, remove_parts, sync_together

THREADS = torch.get_num_threads()
SMALL_STEP = 1e9
"""MACs per step below which one thread is faster than several"""


@dataclass(frozen=True)
class Job(RunSpec):
    """A run whose data is open in this process."""

    task: Task = field(kw_only=True)
    overwrite: bool = field(default=False, kw_only=True)
    """discard an earlier run in the folder"""
    built: list[tuple[tuple[Any, ...], OdeumModel]] = field(default_factory=list, compare=False, kw_only=True)
    """cache of initial models, each with its key; runs may share the list"""

    @classmethod
    def on(
        cls,
        task: Task,
        model: Model,
        architecture: Architecture,
        training: Training,
        seed: int = 0,
        directory: Path = Path(),
        **more: Any,
    ) -> Self:
        """Returns a run on a task whose data is open."""
        data = task.source, task.kind, asdict(task.options)
        return cls(*data, model, architecture, training, seed, directory, task=task, **more)

    def moved_to(self, task: Task) -> Self:
        """The same run on other data; settings that the data decides, such as the vocabulary, are taken from it."""
        model = replace(self.model, **task.facts())
        data = {"source": task.source, "kind": task.kind, "options": asdict(task.options), "task": task}
        return replace(self, **data, model=model, facts=self.facts if model == self.model else None)

    @property
    def _initial(self) -> tuple[Any, ...]:
        """Cache key of the initial model."""
        return self.architecture, self.model, self.seed, self.begin_from

    def put_model(self, model: OdeumModel) -> None:
        """Keep the initial model for the training."""
        self.built.append((self._initial, model))

    def take_model(self) -> OdeumModel | None:
        """The initial model, if it has been built; it is removed, since the caller may train it."""
        for place, (initial, model) in enumerate(self.built):
            if initial == self._initial:
                del self.built[place]
                return model
        return None

    @property
    def folder(self) -> RunDir:
        return RunDir(self.directory)


def initial_model(job: Job) -> OdeumModel:
    """The model before its first step: initialised from the seed, or with the weights of `begin_from`."""
    if (built := job.take_model()) is not None:
        return built
    seed_generators(job.seed, torch.device("cpu"))
    model = build(*transferred(job.architecture, job.model, job.training))
    assert isinstance(model, OdeumModel)
    scale_initial_weights(model, job.training)
    if job.begin_from is not None:
        load_initial_weights(model, job.begin_from)
    return model


def facts_of(job: Job) -> dict[str, Any]:
    """The result of `describe` for the job's model."""
    return job.facts or describe(*transferred(job.architecture, job.model, job.training), detail=False)


def macs_per_step(job: Job, facts: Mapping[str, Any]) -> float:
    """Training MACs per step: three forward passes of a batch of full-length examples.

    If the schedule changes during training, the mean over training.
    """
    return 3.0 * forward_macs(facts) * job.task.examples_per_step(job.training.batch_size, job.model)


def forward_macs(facts: Mapping[str, Any]) -> int:
    """Multiply–adds of one example, forward, as a mean over training."""
    return facts.get("macs_in_training", facts["macs"])


def plan_run(job: Job, world: World) -> dict[str, Any]:
    """The content of run.json; raises `OdeumError` for a model that cannot be built, before anything is written."""
    facts = facts_of(job)
    if job.training.patience and "macs_in_training" in facts:
        raise OdeumError(
            f"--train.patience {job.training.patience} may end training before the core of {label(job.architecture)} "
            "repeats; leave out one of them"
        )
    _check_memory(job, world, facts["parameters"])
    if world.device.type == "cpu":
        keep_freed_memory()
        use_onednn()
        torch.set_num_threads(job.threads or (1 if macs_per_step(job, facts) < SMALL_STEP else THREADS))
    identity = job.identity(job.task.fingerprint())
    record = run_record(job.task, identity, job.architecture, job.model, facts, job.command)
    record |= {"row": job.row} if job.row else {}
    record |= {"learning_rate_from": job.rate_from} if job.rate_from else {}
    return record | {"device": str(world.device), "processes": world.size, "threads": torch.get_num_threads()}


def _check_memory(job: Job, world: World, parameters: int) -> None:
    """Raises `OdeumError` if weights, gradients, Adam's state, weight averages and a batch of images cannot fit."""
    copies = 4 + bool(job.training.ema) + bool(job.training.average)
    shared = world.size if job.training.strategy == "fsdp2" else 1
    side, channels = getattr(job.model, "image_size", 0), getattr(job.model, "channels", 0)
    images = 4.0 * job.training.batch_size * channels * side * side
    cuda = world.device.type == "cuda"
    available = float(torch.cuda.mem_get_info(world.device)[1]) if cuda else available_memory()
    check_memory(4.0 * parameters * copies / shared + images, available, job.model, "training this model")


def open_run(job: Job, world: World, run: dict[str, Any]) -> dict[str, Any]:
    """Write run.json, or check that the directory holds this run; only the first process touches the directory."""
    if world.main:
        if job.overwrite:
            job.folder.clear()
        remove_parts(job.directory)
        if check_same_run(job):
            _report_rounding(run, job.directory)
        else:
            if job.resume_from is not None:
                check_origin(job.resume_from, job.identity(job.task.fingerprint()))
            begin_run(job.directory)
            with sync_together():
                job.task.save(job.directory)
                job.folder.write_run(run)
    world.wait()
    return run


def check_same_run(job: Job) -> bool:
    """Returns whether the directory holds this run. Raises `OdeumError` if it holds another one that has begun."""
    job.folder.check_overwrite()
    if job.overwrite or not job.folder.begun:
        return False
    before = job.folder.run()
    _check_identity(job.identity(job.task.fingerprint()), before, job)
    check_requirements(before)  # a plugin that has changed since is remarked
    return True


def holds(job: Job) -> bool:
    """Returns whether the directory holds this run."""
    try:
        return check_same_run(job)
    except OdeumError:
        return False


def _report_rounding(run: Mapping[str, Any], directory: Path) -> None:
    """Print a notice for each change since the run began that alters the order of floating-point sums."""
    before = RunDir(directory).run()
    old, new = before.get("threads"), run["threads"]
    if old not in (None, new):
        notice(
            f"'{directory}' started with {old} threads and continues with {new}: sums are rounded in another order, "
            f"so results may differ in the last digits; OMP_NUM_THREADS={old} avoids this"
        )
    old, new = (before.get("versions") or {}).get("vectors"), run["versions"]["vectors"]
    if old not in (None, new):
        notice(
            f"'{directory}' started on a processor with {old} and continues with {new}: sums are rounded in another "
            "order, so results may differ in the last digits"
        )
    old, new = ((run.get("versions") or {}).get("draws") for run in (before, run))
    if old != new:
        notice(
            f"'{directory}' started with initial weights drawn by {old or 'construction order'}, and they "
            "are now drawn by "
            f"{new}: it continues from its last checkpoint, but a new start would draw other weights"
        )
    old, new = ((run.get("versions") or {}).get("products", "torch") for run in (before, run))  # of old runs: torch
    if old != new:
        notice(
            f"'{directory}' started with matrix products by {old} and continues with {new}: sums are rounded in "
            "another order, so results may differ in the last digits"
        )


def _check_identity(new: dict[str, Any], old: dict[str, Any], job: Job) -> None:
    directory = job.directory
    if new["fingerprint"] != old.get("fingerprint"):
        raise OdeumError(
            f"'{directory}' holds a run on other data ({old.get('task')}, fingerprint {old.get('fingerprint')} and not "
            f"{new['fingerprint']}); give another --out, or start again with --overwrite"
        )
    changes = []
    for key, now in new.items():
        before = old.get(key)
        if not isinstance(now, dict):
            changes += [f"{key} is {now} and was {before}"] if now != before else []
            continue
        before = before if isinstance(before, dict) else {}
        names = [name for name in now if name not in MAY_CHANGE and now[name] != before.get(name)]
        changes += [f"{key}.{name} is {now[name]} and was {before.get(name)}" for name in names]
    if changes:
        rate = (old.get("training") or {}).get("learning_rate")
        only_rate = [change.split()[0] for change in changes] == ["training.learning_rate"]
        if only_rate and job.rate_from.startswith(("rule", "recipe")):
            folder = next((up for up in directory.parents if (up / COMPARISON).exists()), directory)
            remedy = f"--train.learning_rate {rate} --out {folder} continues it, because the default is another one now"
        else:
            remedy = "give another --out"
        raise OdeumError(
            f"'{directory}' holds a run with other settings ({'; '.join(changes)}); {remedy}, or start again with "
            "--overwrite"
        )
