"""Run folders of imported, converted or edited models; initial weights taken from another run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from odeum.errors import OdeumError, notice
from odeum.fields.roles import by_role, find, role_names
from odeum.lab.tasks import Task
from odeum.lab.train.provenance import git_revision, versions
from odeum.lab.train.rundir import RunDir
from odeum.lab.train.spec import recorded
from odeum.models.base import OdeumModel
from odeum.models.description import describe
from odeum.models.saved import load_model, plugins_of, save_model
from odeum.models.settings import Model
from odeum.registry.names import Architecture
from odeum.registry.spelling import spell, to_record
from odeum.storage import begin_run, make_directory, open_directory

HEADS = ("head.", "output.", "bias")
"""name prefixes of output weights, whose size depends on the task's classes"""


def write_run(directory: Path, model: OdeumModel, task: Task, origin: dict[str, Any], command: str) -> None:
    """Write a run folder that `odeum.load`, `predict` and `train --from` can read.

    `origin` describes where the weights come from.
    """
    make_directory(directory)
    facts = describe(model.architecture, model.settings, detail=False)
    mark = task.fingerprint() if task.has_data else None
    identity: dict[str, Any] = {"architecture": spell(model.architecture), "seed": 0, "model": recorded(model.settings)}
    identity |= {"training": {}, "fingerprint": mark}
    content = run_record(task, identity, model.architecture, model.settings, facts, command)
    with open_directory(directory):
        begin_run(directory)
        task.save(directory)
        save_model(directory, model)
        RunDir(directory).write_run(content | {"origin": origin})


def run_record(
    task: Task,
    identity: Mapping[str, Any],
    architecture: Architecture,
    model: Model,
    facts: Mapping[str, Any],
    command: str,
) -> dict[str, Any]:
    """Returns the content of run.json, for trained and other runs: task, identity, model, versions and command.

    `facts` is the result of `describe` for the model.
    """
    return {
        "task": task.name,
        "kind": task.kind,
        "data": list(task.source),
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        **identity,
        **{key: facts[key] for key in ("equation", "scheme", "parameters", "macs", "evaluations", "order")},
        **{key: facts[key] for key in ("loop", "macs_in_training") if key in facts},
        "versions": versions(),
        "git": git_revision(),
        "command": command,
        "record": to_record(architecture),
        **plugins_of(architecture, model),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def load_initial_weights(model: nn.Module, run: Path) -> tuple[list[str], list[str]]:
    """Copy the weights of a run into a model by role. Returns the names of copied and of new weights.

    Learned positions beyond the model's length are dropped, and a head of another size stays new. Prints a notice if
    any weight is new.
    """
    copied, new = copy_weights(model, by_role(load_model(run)))
    if new:
        names = ", ".join(new[:3]) + (" …" if len(new) > 3 else "")
        notice(f"{len(new)} of {len(copied) + len(new)} weights do not come from '{run}' and are new: {names}")
    return copied, new


def copy_weights(model: nn.Module, source: dict[str, Tensor]) -> tuple[list[str], list[str]]:
    """Copy weights, given by role, into a model. Returns the names of copied and of new weights.

    Raises `OdeumError` if a weight other than a head's has another size.
    """
    initial = model.state_dict()
    names = role_names(model)
    copied: dict[str, Tensor] = {}
    for name, path in find(model, source).items():
        value = source[name]
        if path in initial and name.endswith("positions.table.weight"):
            value = value[: initial[path].shape[0]]
        if path not in initial:
            continue
        if initial[path].shape == value.shape:
            copied[path] = value
        elif not name.startswith(HEADS):
            raise OdeumError(
                f"{name} is {list(value.shape)} in the run and {list(initial[path].shape)} in this model; "
                "a model that starts from a run's weights must have that run's sizes: leave out what changes them"
            )
    if not copied:
        raise OdeumError("no weight fits this model: none has the same name and size")
    model.load_state_dict({**initial, **copied})
    return [names[path] for path in copied], [names[path] for path in initial if path not in copied]
