"""States that a run can go on from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from odeum.errors import OdeumError
from odeum.storage import sync, write_json


class Writer(Protocol):
    """The processes that write a state together, each its part or one of them all."""

    @property
    def main(self) -> bool: ...

    def wait(self) -> None: ...

    def write(self, directory: Path, tensors: dict[str, Tensor]) -> None: ...


class Checkpoints:
    """States to go on from: `checkpoint/step-N/` with tensors and a small JSON, the last complete one counts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "checkpoint"

    def _all(self) -> list[Path]:
        found = [p for p in self.directory.glob("step-*") if p.name[5:].isdigit() and (p / "state.json").exists()]
        return sorted(found, key=lambda p: int(p.name[5:]))

    def at(self, step: int) -> Path:
        return self.directory / f"step-{step:08d}"

    def latest(self) -> int | None:
        """The step of the last complete state."""
        found = self._all()
        return int(found[-1].name[5:]) if found else None

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any], world: Writer) -> None:
        """Write beside, rename, then forget the older ones: at every moment one complete state is there."""
        target, part = self.at(step), self.directory / f"part-{step:08d}"
        older = self._all()
        try:
            if world.main:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
            world.wait()
            world.write(part, tensors)
            if world.main:
                write_json(part / "state.json", state)
                sync(part)
                if target.exists():
                    shutil.rmtree(target)
                os.rename(part, target)
                sync(self.directory)
        except (OSError, OdeumError) as error:
            if world.main:
                shutil.rmtree(part, ignore_errors=True)
            kept = f"the state of step {int(older[-1].name[5:])} is kept" if older else "no state was saved yet"
            raise OdeumError(f"{error}; {kept}, the same command continues when there is space") from None
        if world.main:
            for path in older:
                if path != target:
                    shutil.rmtree(path, ignore_errors=True)
        world.wait()

    def clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
