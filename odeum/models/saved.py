"""A model in a directory: config.json says what it is, model.safetensors what it has learned."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.kinds import KINDS, kind_of_settings
from odeum.models import OdeumModel, build
from odeum.plugins import check_requirements, requirement, requirements
from odeum.settings.architecture import Architecture
from odeum.settings.model import Model
from odeum.settings.spelling import from_record, parse, spell, to_record
from odeum.storage import read_json, sync, write_json


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
        "record": to_record(model.architecture),
        "model": asdict(model.settings),
        **plugins_of(model.architecture, model.settings),
    }
    write_json(directory / "config.json", config)
    save_weights(directory / "model.safetensors", model.state_dict() if weights is None else weights)


def plugins_of(architecture: Architecture, settings: Model) -> dict[str, Any]:
    """The entry of a record that says which plugins it needs, if it needs any."""
    decoder, kind = getattr(settings, "decoder", None), kind_of_settings(type(settings))
    needed = [need for a in (architecture, *([parse(decoder)] if decoder else [])) for need in requirements(a)]
    needed += [] if kind is None else requirement(KINDS, kind.name)
    return {"plugins": needed} if needed else {}


def read_settings(directory: Path) -> tuple[Model, Architecture]:
    """The words a run's model was built from."""
    config = read_json(directory / "config.json")
    try:
        check_requirements(config)
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in config["model"].items()}
        kind = kind_of_settings(str(config["kind"]))
        if kind is None:
            raise OdeumError(
                f"the run '{directory}' has a {config['kind']} model, which no kind here has; name the file that "
                "registers its kind with --plugin"
            )
        kinds_own: Any = kind.settings
        record = config.get("record")  # runs made before there was one have the spelling alone
        return kinds_own(**settings), parse(config["architecture"]) if record is None else from_record(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, OdeumError):
            raise
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
