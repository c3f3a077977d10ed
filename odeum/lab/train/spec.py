"""RunSpec: everything that determines one run, in plain values, without torch.

A command line, a row of a paper's table and a comparison all yield specs. Launchers send them to other processes as
JSON, run.json repeats them, and stored results are found by their `key`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.train.settings import MAY_CHANGE, Training
from odeum.models.settings import Model
from odeum.registry.names import Architecture
from odeum.registry.spelling import parse, spell
from odeum.storage import checksum, read_bytes, slug

_PATHS = ("directory", "resume_from", "begin_from")


def check_seed(seed: int) -> None:
    """Raises `OdeumError` for a seed that no random generator accepts."""
    if not 0 <= seed < 2**63:
        raise OdeumError(f"the seed must be a number from 0 to 2⁶³ − 1, not {seed}")


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines a run."""

    source: tuple[str, ...]
    """a named data set, or paths"""
    kind: str
    """the kind of task"""
    options: Mapping[str, Any]
    """options of the data; those left out have their defaults"""
    model: Model
    architecture: Architecture
    training: Training
    seed: int = 0
    directory: Path = Path()
    """the run's folder"""
    command: str = ""
    threads: int | None = None
    """CPU threads, which determine the order of sums (None: chosen by the cost of a step)"""
    resume_from: Path | None = None
    """the checkpoint of another run to continue from"""
    begin_from: Path | None = None
    """the run whose weights this one starts with"""
    row: str = ""
    """label of the study's row that the run belongs to, if that is not the architecture's spelling"""
    rate_from: str = field(default="", compare=False)
    """origin of the learning rate, for run.json: given, a rule or tuning"""
    test: bool = True
    """whether the test part is evaluated at the end; tuning runs read the validation part alone"""
    plugins: tuple[str, ...] = ()
    """files or modules that a process must load before it reads the spec"""
    facts: dict[str, Any] | None = field(default=None, compare=False)
    """the result of `describe` for this model, if it was computed"""

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @property
    def name(self) -> str:
        """The spelling of the architecture."""
        return spell(self.architecture)

    @property
    def title(self) -> str:
        """Row and seed, for messages."""
        return f"{self.row or self.name} seed {self.seed}"

    def spec(self) -> RunSpec:
        """The plain spec for another process: an absolute directory, and one thread unless it has a number."""
        values: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(RunSpec)}
        values |= {"directory": self.directory.absolute(), "threads": self.threads or 1}
        return RunSpec(**values)

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold; the inverse of `from_json`."""
        content = {item.name: getattr(self, item.name) for item in fields(RunSpec)}
        content |= {name: None if content[name] is None else str(content[name]) for name in _PATHS}
        content |= {"options": dict(self.options), "model": recorded(self.model), "architecture": self.name}
        return content | {"training": asdict(self.training), "source": list(self.source), "plugins": list(self.plugins)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunSpec:
        """The spec that `to_json` wrote; loads its plugins first, since they may register its names."""
        from odeum.models.saved import settings_from_record
        from odeum.registry.plugins import load_plugin

        for plugin in content["plugins"]:
            load_plugin(plugin)
        model = {**content["model"]}
        values: dict[str, Any] = {
            **content,
            "source": tuple(content["source"]),
            "plugins": tuple(content["plugins"]),
            "model": settings_from_record(model.pop("kind"), model),
            "architecture": parse(content["architecture"]),
            "training": Training(**content["training"]),
        }
        values |= {name: None if values[name] is None else Path(values[name]) for name in _PATHS}
        return cls(**values)

    def identity(self, fingerprint: str | None) -> dict[str, Any]:
        """The part of run.json that must be equal for a folder to hold this run. `fingerprint` is that of the data."""
        content = {
            "architecture": self.name,
            "seed": self.seed,
            "model": recorded(self.model),
            "training": asdict(self.training),
            "fingerprint": fingerprint,
            "resumed_from": None if self.resume_from is None else str(self.resume_from),
        }
        if self.begin_from is not None:
            content["begun_from"] = f"{self.begin_from} {checksum(read_bytes(self.begin_from / 'model.safetensors'))}"
        return json.loads(json.dumps(content))

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything but the seed, as differences from the defaults, so that a new option changes no recipe."""
        content = {
            "data": " ".join(self.source),
            "options": dict(self.options),
            "architecture": self.name,
            "model": {"kind": type(self.model).__name__, **_changes(self.model)},
            "training": {key: v for key, v in _changes(self.training).items() if key not in MAY_CHANGE},
        }
        return json.loads(json.dumps(content))

    @property
    def key(self) -> str:
        """DATA/ARCHITECTURE-HASH: the place of this recipe's runs and stored results."""
        digest = hashlib.blake2b(json.dumps(self.recipe, sort_keys=True).encode(), digest_size=4).hexdigest()
        return f"{slug(' '.join(self.source))}/{slug(self.name)}-{digest}"


def recorded(model: Model) -> dict[str, Any]:
    """Model settings with the name of their class, as in run.json."""
    return {"kind": type(model).__name__, **asdict(model)}


def _changes(settings: Any) -> dict[str, Any]:
    default, values = type(settings)(), asdict(settings)
    return {f.name: values[f.name] for f in fields(settings) if getattr(settings, f.name) != getattr(default, f.name)}
