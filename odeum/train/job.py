"""run.json: what decides a run, written first, so that a directory never mixes two."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from odeum.distributed.world import World
from odeum.errors import OdeumError
from odeum.models.description import describe
from odeum.models.saved import plugins_of
from odeum.plugins import check_requirements
from odeum.settings.architecture import Architecture
from odeum.settings.model import Model
from odeum.settings.spelling import spell, to_record
from odeum.settings.training import Training
from odeum.storage import make_directory, read_json, write_json
from odeum.tasks import Task
from odeum.train.provenance import git_revision, versions

FREE = ("device", "strategy", "tensorboard", "checkpoint_every")
"""settings of the training that say how, not what: a run may move"""

BEGUN = ("metrics.jsonl", "checkpoint", "result.json")
"""any of these is something to lose; without them a run is only a plan, and may be planned again"""


THREADS = torch.get_num_threads()
SMALL_STEP = 1e9
"""multiply–adds of a step below which threads wait for each other longer than they work"""


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

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise OdeumError(f"the seed should be a number from 0 to 2⁶³ − 1, not {self.seed}")


def macs_per_step(job: Job, macs: int) -> float:
    """Forward and backward cost three forwards of as many examples of full length as a batch holds."""
    return 3.0 * macs * job.task.examples_a_step(job.training.batch_size, job.model)


def open_run(job: Job, world: World) -> dict[str, Any]:
    """Write run.json, or see that the directory holds this run and no other."""
    facts = describe(job.architecture, job.model, detail=False)
    if world.device.type == "cpu":
        torch.set_num_threads(1 if macs_per_step(job, facts["macs"]) < SMALL_STEP else THREADS)
    run = {
        "task": job.task.name,
        "kind": job.task.kind,
        "data": list(job.task.source),
        "metric": job.task.metric,
        "higher_is_better": job.task.higher_is_better,
        "notes": list(job.task.notes),
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
    if not refuse_another(job) and world.main:
        make_directory(job.directory)
        try:
            job.task.save(job.directory)
        except OSError as error:
            raise OdeumError(f"cannot write into '{job.directory}': {error.strerror}") from None
        write_json(job.directory / "run.json", run)
    return run


def refuse_another(job: Job) -> bool:
    """Whether the directory holds this run; a sentence if it holds another one that has begun."""
    path = job.directory / "run.json"
    there = [name for name in (*BEGUN, "config.json", "model.safetensors") if (job.directory / name).exists()]
    if there and not path.exists():
        raise OdeumError(
            f"'{job.directory}' holds {there[0]} but no run.json, so it is no run of Odeum, and a run would overwrite "
            "it; give another --out"
        )
    if not any(name in BEGUN for name in there):
        return False
    before = read_json(path)
    _same_run(json.loads(json.dumps(_identity(job))), before, job.directory)
    check_requirements(before)  # a plugin that has changed since is remarked
    return True


def _identity(job: Job) -> dict[str, Any]:
    """What must be equal for a run to be the same run."""
    return {
        "architecture": spell(job.architecture),
        "seed": job.seed,
        "model": {"kind": type(job.model).__name__, **asdict(job.model)},
        "training": asdict(job.training),
        "fingerprint": job.task.fingerprint(),
    }


def _same_run(new: dict[str, Any], old: dict[str, Any], directory: Path) -> None:
    if new["fingerprint"] != old.get("fingerprint"):
        raise OdeumError(
            f"'{directory}' holds a run on other data ({old.get('task')}, fingerprint {old.get('fingerprint')} and not "
            f"{new['fingerprint']}); give another --out or remove it"
        )
    changes = []
    for key, now in new.items():
        before = old.get(key)
        if not isinstance(now, dict):
            changes += [f"{key} is {now} and was {before}"] if now != before else []
            continue
        before = before if isinstance(before, dict) else {}
        names = [name for name in now if name not in FREE and now[name] != before.get(name)]
        changes += [f"{key}.{name} is {now[name]} and was {before.get(name)}" for name in names]
    if changes:
        raise OdeumError(
            f"'{directory}' holds a run with other settings ({'; '.join(changes)}); give another --out or remove it"
        )
