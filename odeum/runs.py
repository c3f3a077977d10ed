"""Run directories: what is written so that nothing is lost, and read so that a model can be used again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.models import OdeumModel, build
from odeum.settings.architecture import Architecture, parse, spell
from odeum.settings.model import Classification, Language, Model, Translation, Vision

KINDS = {kind.__name__: kind for kind in (Vision, Language, Classification, Translation)}


def slug(spelling: str) -> str:
    """`parallel:independent=6` as the name of a folder."""
    return re.sub(r"[^\w.]+", "-", spelling).strip("-")


def make_directory(path: Path) -> None:
    """A directory to write into, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        there = next(p for p in (path, *path.parents) if p.is_file())
        raise OdeumError(f"'{there}' is a file, so there can be no runs in it; give another --out") from None
    except OSError as error:
        raise OdeumError(f"cannot make the directory '{path}': {error.strerror}; give another --out") from None


@contextlib.contextmanager
def alone_in(directory: Path) -> Generator[None]:
    """Two trainings must not write the same states: the second is refused. Where there are no locks, nothing is."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    number = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise OdeumError(f"another process is training in '{directory}'; wait for it, or give another --out") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(number)


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all: a reader, or a power cut, never sees half a file."""
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OdeumError(f"cannot write '{path}': {error.strerror}") from None


def sync(path: Path) -> None:
    """Let a file, or the names in a directory, reach the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Safetensors, whole or not at all; a weight that is used twice is stored once because it is one module."""
    part = path.with_name(path.name + ".part")
    try:
        save_file({name: w.detach().cpu().contiguous() for name, w in weights.items()}, part)
        sync(part)
        os.replace(part, path)
    except Exception as error:  # safetensors raises its own kinds for a full disk
        part.unlink(missing_ok=True)
        raise OdeumError(f"cannot write '{path}': {error}") from None


def save_model(directory: Path, model: OdeumModel, weights: dict[str, Tensor] | None = None) -> None:
    """config.json and model.safetensors."""
    config = {
        "kind": type(model.settings).__name__,
        "architecture": spell(model.architecture),
        "model": asdict(model.settings),
    }
    write_json(directory / "config.json", config)
    save_weights(directory / "model.safetensors", model.state_dict() if weights is None else weights)


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
        return found
    except FileNotFoundError:
        raise OdeumError(f"'{path.parent}' is no finished run: it has no {path.name}") from None
    except (ValueError, OSError) as error:
        raise OdeumError(f"cannot read '{path}': {error}") from None


def read_settings(directory: Path) -> tuple[Model, Architecture]:
    """The words a run's model was built from."""
    config = read_json(directory / "config.json")
    try:
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in config["model"].items()}
        kind: Any = KINDS[config["kind"]]
        return kind(**settings), parse(config["architecture"])
    except (KeyError, TypeError, AttributeError):
        raise OdeumError(f"'{directory / 'config.json'}' is not the configuration of a run of Odeum") from None


def load_model(directory: str | Path) -> nn.Module:
    """The trained model of a run, in evaluation mode."""
    directory = Path(directory)
    if not directory.is_dir():
        raise OdeumError(f"there is no run '{directory}'")
    path = directory / "model.safetensors"
    if not path.exists():
        raise OdeumError(_why_no_model(directory))
    settings, architecture = read_settings(directory)
    model = build(architecture, settings)
    try:
        model.load_state_dict(load_file(path))
    except (RuntimeError, SafetensorError) as error:  # written by another version, or damaged
        reason = " ".join(str(error).split("\n")[-1].split())
        raise OdeumError(f"the weights '{path}' do not fit the model of their run: {reason}") from None
    return model.eval()


def _why_no_model(directory: Path) -> str:
    result = directory / "result.json"
    if result.exists() and (failed := read_json(result).get("failed")):
        return f"the run '{directory}' failed: {failed}"
    if (directory / "run.json").exists():
        command = read_json(directory / "run.json").get("command") or "the command that began it"
        return f"the run '{directory}' is not finished; `{command}` continues it"
    inside = sorted(path.parent for path in directory.glob("*/**/model.safetensors"))
    hint = f"; there are runs inside, such as '{inside[0]}'" if inside else ""
    return f"'{directory}' is no run of Odeum: it holds no model.safetensors{hint}"


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


def versions() -> dict[str, str]:
    """What a result depends on besides the code."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    out = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("odeum", "numpy", "tokenizers", "sacrebleu"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def git_revision() -> str | None:
    """Of the library's own checkout, with a mark if it was changed; None for an installed package."""
    import subprocess

    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        run = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(run, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
