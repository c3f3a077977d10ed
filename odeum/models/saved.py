"""A model in a directory: config.json says what it is, model.safetensors what it has learned."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from odeum.draws import shapes_only
from odeum.errors import OdeumError
from odeum.fields.roles import find, role_names
from odeum.models.base import OdeumModel
from odeum.models.factory import build
from odeum.models.pretrained import pretrained_from
from odeum.models.settings import MODEL_KINDS, Model, kind_of_settings
from odeum.models.tensors import TensorFile, not_finite, write_tensors
from odeum.registry.names import Architecture
from odeum.registry.plugins import check_requirements, requirement, requirements
from odeum.registry.spelling import from_record, parse, spell, to_record
from odeum.storage import Damaged, check_one_run, current_path, read_json, write_json

WEIGHTS = "model.safetensors"
RECORDS = ("run.json", "config.json", WEIGHTS, "task.json", "result.json")
"""the files of a run that name their run"""


def save_model(directory: Path, model: OdeumModel, weights: dict[str, Tensor] | None = None) -> None:
    """config.json and model.safetensors."""
    config = {
        "kind": type(model.settings).__name__,
        "architecture": spell(model.architecture),
        "record": to_record(model.architecture),
        "model": settings_record(model.settings),
        **plugins_of(model.architecture, model.settings),
    }
    write_json(directory / "config.json", config)
    write_tensors(directory / WEIGHTS, _by_role(model, weights))


def weights_entry(directory: Path) -> dict[str, Any]:
    """The entry of result.json that says which weights it is the result of."""
    return {"weights": TensorFile.open(directory / WEIGHTS).seal}


def check_run_files(directory: Path) -> None:
    """Raise `Damaged` if files of several runs, or of several trainings, lie in the directory of a run."""
    run_ids: dict[Path, object] = {}
    weights = result = None
    for name in RECORDS:
        path = directory / name
        if not current_path(path).exists():
            continue
        if name == WEIGHTS:
            weights = TensorFile.open(path)
            run_ids[path] = weights.run_id
        else:
            record = read_json(path)
            run_ids[path] = record.get("run_id")
            result = record.get("weights") if name == "result.json" else None
    if run_ids:
        check_one_run(run_ids)
    if result is not None and weights is not None and result != weights.seal:
        raise Damaged(f"'{weights.path}' is not what 'result.json' beside it was measured with: one of them is older")


def plugins_of(architecture: Architecture, settings: Model) -> dict[str, Any]:
    """The entry of a record that says which plugins it needs, if it needs any."""
    decoder, kind = getattr(settings, "decoder", None), kind_of_settings(type(settings))
    needed = [need for a in (architecture, *([parse(decoder)] if decoder else [])) for need in requirements(a)]
    needed += [] if kind is None else requirement(MODEL_KINDS, kind.name)
    return {"plugins": needed} if needed else {}


def _by_role(model: OdeumModel, weights: dict[str, Tensor] | None) -> dict[str, Tensor]:
    names = role_names(model)
    return {names.get(path, path): w for path, w in (weights or model.state_dict()).items()}


def read_settings(directory: Path) -> tuple[Model, Architecture]:
    """The words a run's model was built from."""
    config = read_json(directory / "config.json")
    try:
        check_requirements(config)
        settings = settings_from_record(str(config["kind"]), config["model"])
        record = config.get("record")  # runs made before there was one have the spelling alone
        return settings, parse(config["architecture"]) if record is None else from_record(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, OdeumError):
            raise
        raise OdeumError(f"'{directory / 'config.json'}' is not the configuration of an Odeum run") from None


def settings_record(settings: Model) -> dict[str, Any]:
    """Settings as JSON has them."""
    return asdict(settings)


def settings_from_record(kind: str, values: Mapping[str, Any]) -> Model:
    """The inverse, for the settings of that name."""
    known = kind_of_settings(kind)
    if known is None:
        raise OdeumError(f"no registered kind has {kind} models; name the plugin that registers it with --plugin")
    kinds_own: Any = known.settings
    arguments: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    if "pretrained" in arguments:
        arguments["pretrained"] = pretrained_from(arguments["pretrained"])
    return kinds_own(**arguments)


def load_model(directory: str | Path) -> nn.Module:
    """The trained model of a run, in evaluation mode."""
    directory = Path(directory)
    if not directory.is_dir():
        what = "is a file, not the folder of a run" if directory.exists() else None
        raise OdeumError(f"'{directory}' {what}" if what else f"there is no run '{directory}'")
    path = directory / WEIGHTS
    if not path.exists():
        raise OdeumError(_missing_model_message(directory))
    check_run_files(directory)
    settings, architecture = read_settings(directory)
    file = TensorFile.open(path)
    file.check()
    paths = _matched(file, settings, architecture)
    weights = dict(file.read())
    if broken := not_finite(weights):
        raise OdeumError(f"the weights '{path}' contain NaN or infinity in {broken}")
    model = build(architecture, settings)
    model.load_state_dict({paths[name]: weight for name, weight in weights.items()})
    return model.eval()


def _matched(file: TensorFile, settings: Model, architecture: Architecture) -> dict[str, str]:
    """Paths of the tensors of a file in the model of config.json; raises `OdeumError` if one does not match.

    Compared before memory is taken for either.
    """
    with shapes_only():
        model = build(architecture, settings)
    paths, names = find(model, file.shapes), role_names(model)
    wanted = {names.get(path, path): tuple(value.shape) for path, value in model.state_dict().items()}
    stored = {names.get(paths[name], name): shape for name, shape in file.shapes.items()}
    for name in [*wanted, *stored]:
        if wanted.get(name) != stored.get(name):
            should, has = (list(w[name]) if name in w else "not there" for w in (wanted, stored))
            raise OdeumError(
                f"the weights '{file.path}' do not fit the model that config.json describes: "
                f"{name} must be {should} and is {has}"
            )
    return paths


def _same_command(command: str, directory: Path) -> str:
    """The command of a run with this directory as its --out: the folder may have been moved since."""
    words = shlex.split(command)
    if words[:2] not in (["odeum", "train"], ["odeum", "compare"]):
        return command
    out = directory if words[1] == "train" else directory.parent.parent
    rest = [w for w, before in zip(words, ["", *words], strict=False) if "--out" not in (w, before)]
    return shlex.join([*(word for word in rest if not word.startswith("--out=")), "--out", str(out)])


def _missing_model_message(directory: Path) -> str:
    result = directory / "result.json"
    if result.exists() and (failed := read_json(result).get("failed")):
        return f"the run '{directory}' failed: {failed}"
    if (directory / "run.json").exists():
        again = _same_command(str(read_json(directory / "run.json").get("command") or ""), directory)
        if result.exists():
            return (
                f"the run '{directory}' is finished, but its weights model.safetensors are missing; copy them back, or "
                f"train again with {f'`{again} --overwrite`' if again else '--overwrite'}"
            )
        return f"the run '{directory}' is not finished; {f'`{again}`' if again else 'its own command'} continues it"
    inside = sorted(path.parent for path in directory.glob("*/**/model.safetensors"))
    hint = f"; there are runs inside, such as '{inside[0]}'" if inside else ""
    return f"'{directory}' is not a run of Odeum: it has no model.safetensors{hint}"
