"""Runs that did not begin with a training: imported, converted or refined; and weights that a training begins with."""

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
"""how the names of weights begin that belong to what is told apart, which another task may have more or fewer of"""


def write_run(directory: Path, model: OdeumModel, task: Task, origin: dict[str, Any], command: str) -> None:
    """All that `odeum.load`, `predict` and `train --from` read; `origin` says where the weights come from."""
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
    """The content of run.json for every run, trained or not: its task, what decides it, its model, its circumstances.

    `facts` is what `describe` says of the model.
    """
    return {
        "task": task.name,
        "kind": task.kind,
        "data": list(task.source),
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        **identity,
        **{key: facts[key] for key in ("equation", "scheme", "parameters", "macs", "evaluations", "order")},
        "versions": versions(),
        "git": git_revision(),
        "command": command,
        "record": to_record(architecture),
        **plugins_of(architecture, model),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def begin_with(model: nn.Module, run: Path) -> tuple[list[str], list[str]]:
    """Put the weights of a run into a model by their roles; what was kept, and what is new, which is told.

    Learned positions beyond the model's length are left out; a head of another size is new.
    """
    kept, new = take_weights(model, by_role(load_model(run)))
    if new:
        names = ", ".join(new[:3]) + (" …" if len(new) > 3 else "")
        notice(f"{len(new)} of {len(kept) + len(new)} weights do not come from '{run}' and are new: {names}")
    return kept, new


def take_weights(model: nn.Module, source: dict[str, Tensor]) -> tuple[list[str], list[str]]:
    """The same from weights by role; one of another size has a place only where it is a head's."""
    own = model.state_dict()
    names = role_names(model)
    kept: dict[str, Tensor] = {}
    for name, path in find(model, source).items():
        value = source[name]
        if path in own and name.endswith("positions.table.weight"):
            value = value[: own[path].shape[0]]
        if path not in own:
            continue
        if own[path].shape == value.shape:
            kept[path] = value
        elif not name.startswith(HEADS):
            raise OdeumError(
                f"{name} is {list(value.shape)} in the run and {list(own[path].shape)} in this model; the sizes of a "
                "model that begins with a run's weights are that run's: leave out what changes them"
            )
    if not kept:
        raise OdeumError("no weight has a place in this model: its sizes are others")
    model.load_state_dict({**own, **kept})
    return [names[path] for path in kept], [names[path] for path in own if path not in kept]
