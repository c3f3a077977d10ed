"""run.json: what decides a run, written first, so that a directory never mixes two."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from odeum.errors import OdeumError, notice
from odeum.lab.tasks import Task
from odeum.lab.tasks.evidence import CONFUSION, EXAMPLES
from odeum.lab.train.distributed.world import World
from odeum.lab.train.memory import keep_freed_memory
from odeum.lab.train.origin import begin_mark, begin_with
from odeum.lab.train.provenance import git_revision, versions
from odeum.lab.train.resume import check_origin
from odeum.lab.train.settings import MAY_CHANGE, Training
from odeum.models import OdeumModel, build
from odeum.models.description import describe
from odeum.models.saved import plugins_of
from odeum.registry.plugins import check_requirements
from odeum.registry.spelling import spell, to_record
from odeum.settings.architecture import Architecture
from odeum.settings.limits import check_memory, machine_memory
from odeum.settings.model import Model
from odeum.storage import read_json, remark_unsealed, sweep, write_json

BEGUN = ("metrics.jsonl", "checkpoint", "result.json")
"""any of these is something to lose; without them a run is only a plan, and may be planned again"""
OTHERS = ("config.json", "model.safetensors", "tensorboard", EXAMPLES, CONFUSION)
"""what else a run leaves"""

THREADS = torch.get_num_threads()
SMALL_STEP = 1e9
"""multiply–adds of a step below which threads wait for each other longer than they work"""


def check_seed(seed: int) -> None:
    """Refuse what no random stream begins with."""
    if not 0 <= seed < 2**63:
        raise OdeumError(f"the seed should be a number from 0 to 2⁶³ − 1, not {seed}")


@dataclass(frozen=True)
class Job:
    """All that decides a run."""

    task: Task
    model: Model
    architecture: Architecture
    training: Training
    seed: int
    directory: Path
    command: str = ""
    resume_from: Path | None = None
    """the state of another run to go on from, with what is new in these settings"""
    overwrite: bool = False
    """begin again where there is a run"""
    threads: int | None = None
    """of a CPU; part of the plan, because they decide in which order sums are rounded (none: by the size of a step)"""
    begin_from: Path | None = None
    """the run whose weights it begins with"""
    facts: dict[str, Any] | None = None
    """what `describe` says of the model, if it has been asked already"""
    built: list[OdeumModel] = field(default_factory=list, compare=False)
    """the model as it begins, if it has been built already; who takes it out may train it"""

    def __post_init__(self) -> None:
        check_seed(self.seed)


def first_model(job: Job) -> OdeumModel:
    """The model before its first step: what the seed makes of it, or the weights that the run begins with."""
    if job.built:
        return job.built.pop()
    torch.manual_seed(job.seed)
    model = build(job.architecture, job.model)
    assert isinstance(model, OdeumModel)
    if job.begin_from is not None:
        begin_with(model, job.begin_from)
    return model


def facts_of(job: Job) -> dict[str, Any]:
    """What `describe` says of the model."""
    return job.facts or describe(job.architecture, job.model, detail=False)


def macs_per_step(job: Job, macs: int) -> float:
    """Forward and backward cost three forwards of as many examples of full length as a batch holds."""
    return 3.0 * macs * job.task.examples_a_step(job.training.batch_size, job.model)


def plan_run(job: Job, world: World) -> dict[str, Any]:
    """What run.json will say; refuses what cannot be built before there is a directory."""
    facts = facts_of(job)
    _check_memory(job, world, facts["parameters"])
    if world.device.type == "cpu":
        keep_freed_memory()
        torch.set_num_threads(job.threads or (1 if macs_per_step(job, facts["macs"]) < SMALL_STEP else THREADS))
    return {
        "task": job.task.name,
        "kind": job.task.kind,
        "data": list(job.task.source),
        "metric": job.task.metric,
        "higher_is_better": job.task.higher_is_better,
        **_identity(job),
        **{key: facts[key] for key in ("equation", "scheme", "parameters", "macs", "evaluations", "order")},
        "device": str(world.device),
        "processes": world.size,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "git": git_revision(),
        "command": job.command,
        "record": to_record(job.architecture),
        **plugins_of(job.architecture, job.model),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _check_memory(job: Job, world: World, parameters: int) -> None:
    """Weights, gradients, Adam's two averages and ours, and a batch of images, before any of them is made."""
    copies = 4 + bool(job.training.ema) + bool(job.training.average)
    shared = world.size if job.training.strategy == "fsdp2" else 1
    side, channels = getattr(job.model, "image_size", 0), getattr(job.model, "channels", 0)
    images = 4.0 * job.training.batch_size * channels * side * side
    cuda = world.device.type == "cuda"
    there = float(torch.cuda.mem_get_info(world.device)[1]) if cuda else machine_memory()
    check_memory(4.0 * parameters * copies / shared + images, there, job.model, "training this model")


def open_run(job: Job, world: World, run: dict[str, Any]) -> dict[str, Any]:
    """Write run.json, or see that the directory holds this run and no other; the first process is alone in it."""
    if world.main:
        if job.overwrite:
            _forget(job.directory)
        sweep(job.directory)
        if refuse_another(job):
            _remark_rounding(run, job.directory)
            remark_unsealed(job.directory)
        else:
            if job.resume_from is not None:
                check_origin(job.resume_from, _identity(job))
            job.task.save(job.directory)
            write_json(job.directory / "run.json", run)
    world.wait()
    return run


def refuse_another(job: Job) -> bool:
    """Whether the directory holds this run; a sentence if it holds another one that has begun."""
    path = job.directory / "run.json"
    there = [name for name in (*BEGUN, *OTHERS) if (job.directory / name).exists()]
    if there and not path.exists():
        raise OdeumError(
            f"'{job.directory}' holds {there[0]} but no run.json, so it is no run of Odeum, and a run would overwrite "
            "it; give another --out"
        )
    if job.overwrite or not any(name in BEGUN for name in there):
        return False
    before = read_json(path)
    _same_run(_identity(job), before, job.directory)
    check_requirements(before)  # a plugin that has changed since is remarked
    return True


def holds(job: Job) -> bool:
    """Whether the directory holds this run and no other."""
    try:
        return refuse_another(job)
    except OdeumError:
        return False


def _forget(directory: Path) -> None:
    """Remove an earlier run, and nothing else; run.json is written over, so that it stays a run at every moment."""
    if not (directory / "run.json").exists():
        return
    for name in (*BEGUN, *OTHERS):
        path = directory / name
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise OdeumError(f"cannot remove '{path}': {error.strerror}") from None


def _remark_rounding(run: Mapping[str, Any], directory: Path) -> None:
    """Say what adds numbers up in another order than where the run began."""
    before = read_json(directory / "run.json")
    there, here = before.get("threads"), run["threads"]
    if there not in (None, here):
        notice(
            f"'{directory}' began with {there} threads and goes on with {here}: sums are rounded in another order, "
            f"so it may end with other bits; OMP_NUM_THREADS={there} keeps them"
        )
    there, here = (before.get("versions") or {}).get("vectors"), run["versions"]["vectors"]
    if there not in (None, here):
        notice(
            f"'{directory}' began on a processor with {there} and goes on with {here}: sums are rounded in another "
            "order, so it may end with other bits"
        )
    there, here = ((run.get("versions") or {}).get("products", "torch") for run in (before, run))  # of old runs: torch
    if there != here:
        notice(
            f"'{directory}' began with products by {there} and goes on with products by {here}: sums are rounded in "
            "another order, so it may end with other bits"
        )


def _identity(job: Job) -> dict[str, Any]:
    """What must be equal for a run to be the same run, as JSON has it."""
    content = {
        "architecture": spell(job.architecture),
        "seed": job.seed,
        "model": {"kind": type(job.model).__name__, **asdict(job.model)},
        "training": asdict(job.training),
        "fingerprint": job.task.fingerprint(),
        "resumed_from": None if job.resume_from is None else str(job.resume_from),
        **({} if job.begin_from is None else {"begun_from": begin_mark(job.begin_from)}),
    }
    return json.loads(json.dumps(content))


def _same_run(new: dict[str, Any], old: dict[str, Any], directory: Path) -> None:
    if new["fingerprint"] != old.get("fingerprint"):
        raise OdeumError(
            f"'{directory}' holds a run on other data ({old.get('task')}, fingerprint {old.get('fingerprint')} and not "
            f"{new['fingerprint']}); give another --out, or begin again with --overwrite"
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
        raise OdeumError(
            f"'{directory}' holds a run with other settings ({'; '.join(changes)}); give another --out, or begin again "
            "with --overwrite"
        )
