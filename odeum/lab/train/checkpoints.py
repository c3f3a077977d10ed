"""Training checkpoints: written atomically, checked, and pruned."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from odeum.errors import OdeumError
from odeum.lab.train.distributed.ranks import ProcessLost
from odeum.lab.train.distributed.shards import StoredTensors
from odeum.storage import Moved, current_path, sync, sync_together, write_json

if TYPE_CHECKING:
    from odeum.lab.train.distributed.world import World

DEFAULT_KEEP = 2
"""default number of checkpoints: the last one and a fallback"""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Checkpoints:
    """The checkpoints of a run: folders `checkpoint/step-N/` with tensors and state.json."""

    def __init__(self, directory: Path, keep: int = DEFAULT_KEEP) -> None:
        self.directory, self.keep = directory / "checkpoint", keep

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, in increasing order."""
        folders = current_path(self.directory).glob("step-*")
        return sorted(int(p.name[5:]) for p in folders if p.name[5:].isdigit() and (p / "state.json").exists())

    def at(self, step: int) -> Path:
        """The folder of the checkpoint at that step."""
        return self.directory / f"step-{step:08d}"

    def summary(self) -> str:
        """A clause for messages that says which checkpoint exists."""
        steps = self.steps()
        return f"the state of step {steps[-1]} is kept" if steps else "no state was saved yet"

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any], world: World) -> None:
        """Write to a temporary folder, rename it, then remove the oldest: a complete checkpoint exists at any time."""
        target, part = self.at(step), self.directory / f"part-{step:08d}"
        failure: Exception | None = None
        try:
            if world.main:
                shutil.rmtree(current_path(part), ignore_errors=True)
                current_path(part).mkdir(parents=True)
        except (OSError, OdeumError) as error:
            failure = error
        world.wait()
        try:
            if failure is None:
                with sync_together() as directories:
                    world.write(part, tensors)
                    if world.main:
                        directories.discard(current_path(part))  # synced below, with state.json
        except (OSError, OdeumError) as error:
            failure = error
        world.wait()  # one process may have a slow disk
        failed = world.add([failure is not None])[0]
        try:
            if world.main and not failed:
                first = not self.steps()
                write_json(part / "state.json", {**state, "files": StoredTensors(part).seals})
                if current_path(target).exists():
                    shutil.rmtree(current_path(target))
                os.rename(current_path(part), current_path(target))
                sync(current_path(self.directory))
                if first:
                    sync(current_path(self.directory.parent))
        except (OSError, OdeumError) as error:
            failure = error
        if failure is not None or failed:
            if world.main and not isinstance(failure, Moved):
                shutil.rmtree(current_path(part), ignore_errors=True)
            raise self._unsaved(failure)
        if world.main:
            for old in self.steps()[: -self.keep]:
                shutil.rmtree(current_path(self.at(old)), ignore_errors=True)
        world.wait()

    def _unsaved(self, failure: Exception | None) -> OdeumError:
        if failure is None:
            return ProcessLost(f"another process could not write its part of the state; {self.summary()}")
        if isinstance(failure, Moved):
            return failure
        cause = failure if isinstance(failure, OSError) else failure.__context__
        full = isinstance(cause, OSError) and cause.errno in NO_SPACE
        return OdeumError(
            f"{failure}; {self.summary()}, the same command continues{' when there is space' if full else ''}"
        )

    def finish(self) -> None:
        """Remove the checkpoints of a finished run, unless `keep` exceeds the default."""
        if self.keep <= DEFAULT_KEEP:
            shutil.rmtree(current_path(self.directory), ignore_errors=True)

    def sweep(self) -> None:
        """Remove incomplete checkpoints left behind by a killed process."""
        for path in current_path(self.directory).glob("part-*"):
            shutil.rmtree(path, ignore_errors=True)
