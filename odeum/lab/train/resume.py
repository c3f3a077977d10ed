"""Which checkpoint a run continues from: its own last intact one, or one of another run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, notice
from odeum.lab.train.checkpoints import Checkpoints
from odeum.lab.train.distributed.shards import StoredTensors
from odeum.lab.train.distributed.world import World
from odeum.lab.train.metrics import Metrics
from odeum.lab.train.rundir import RunDir
from odeum.storage import Damaged, check_one_run, current_path, read_json

SAME = ("architecture", "model", "fingerprint")
"""settings that must be equal for a run to continue from a checkpoint of another"""


def last_intact_state(checkpoints: Checkpoints, world: World) -> Path | None:
    """Returns the last checkpoint that passes its checks; None if there is no checkpoint.

    Damaged checkpoints are reported, and removed if an intact one exists. Raises `OdeumError` if all are damaged.
    """
    if world.main:
        checkpoints.sweep()
    damaged: list[tuple[Path, str]] = []
    while step := int(world.broadcast(max(checkpoints.steps()[: -len(damaged) or None], default=0))):
        path = checkpoints.at(step)
        reason = check_state(path, world)
        if reason is None:
            for damaged_path, message in damaged if world.main else ():
                notice(f"{message}; the run continues from the previous state, of step {step}")
                shutil.rmtree(current_path(damaged_path), ignore_errors=True)
            world.wait()
            return path
        damaged.append((path, reason))
    if damaged:
        raise unreadable_state(*damaged[0])
    return None


def unreadable_state(path: Path, reason: object) -> OdeumError:
    """The error for a checkpoint that exists and cannot be used."""
    return OdeumError(f"the state '{path}' cannot be read ({reason}); --overwrite starts again")


def check_state(directory: Path, world: World) -> str | None:
    """Returns why a checkpoint cannot be used, or None if it can.

    Each process checks its share of the files; all get the same answer.
    """
    reason: str | None = None
    try:
        state, stored = read_json(directory / "state.json"), StoredTensors(directory)
        _check_consistent(directory, state, stored)
        for file in stored.files[world.rank :: world.size]:
            file.check()
    except OdeumError as error:
        reason = str(error)
    world.wait()  # processes may read at different speeds
    if not world.add([reason is not None])[0]:
        return None
    return reason or "another process found it damaged"


def _check_consistent(directory: Path, state: dict[str, Any], stored: StoredTensors) -> None:
    """Raises `Damaged` if the files belong to different checkpoints or to different runs."""
    check_one_run({directory / "state.json": state.get("run_id"), **{f.path: f.run_id for f in stored.files}})
    if state.get("run_id") is None:
        return
    if state.get("step") != int(directory.name.removeprefix("step-")):
        raise Damaged(f"'{directory / 'state.json'}' is of step {state.get('step')}, so it is of another state")
    if state.get("files") != stored.seals:
        raise Damaged(f"the tensors in '{directory}' are not those that its state.json was written with")


def find_state(given: str) -> Path:
    """Returns the checkpoint that --resume_from names: its directory, or the last checkpoint of a run's directory."""
    path = Path(given).resolve()
    steps = Checkpoints(path).steps() if path.is_dir() else []
    if steps:
        path = Checkpoints(path).at(steps[-1])
    if not (path / "state.json").is_file() or not (path.parent.parent / "run.json").is_file():
        raise OdeumError(
            f"'{given}' is not a checkpoint; --resume_from takes RUN/checkpoint/step-N, or a RUN that is not finished"
        )
    return path


def check_origin(state: Path, identity: dict[str, Any]) -> None:
    """Raises `OdeumError` if the checkpoint belongs to a run with another model or other data."""
    folder = RunDir(state.parent.parent)
    origin = folder.run()
    run_ids = {folder.path / "run.json": origin.get("run_id")}
    check_one_run(run_ids | {state / "state.json": read_json(state / "state.json").get("run_id")})
    for key in SAME:
        if origin.get(key) != identity[key]:
            raise OdeumError(
                f"cannot resume from '{state}': its {key} is {origin.get(key)}, and this run's is {identity[key]}; "
                "only settings of the training may differ"
            )


def adopt_state(state: Path, metrics: Metrics, world: World) -> None:
    """Check the checkpoint of another run, and copy that run's metrics."""
    if reason := check_state(state, world):
        raise OdeumError(f"cannot resume from '{state}': {reason}")
    if world.main:
        metrics.copy_from(state.parent.parent)
    world.wait()
