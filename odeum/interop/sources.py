"""Sources of pretrained models: a directory, a file of weights, a name on the hub, or a module in memory."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.models.tensors import TensorFile
from odeum.storage import expanded, read_json

SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


FILE_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".json", ".msgpack", ".h5", ".gguf", ".onnx")
"""suffixes of files; names on the hub may contain dots too, as in pythia-1.4b"""


class PretrainedSource(NamedTuple):
    """The configuration (empty if there is none), the tensors, and the folder if there is one."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    folder: Path | None
    name: str


def open_source(source: str | Path | nn.Module | Mapping[str, Tensor]) -> PretrainedSource:
    """Read a source of any kind; the weights are on the CPU in their own precision."""
    if isinstance(source, nn.Module):
        return _module(source)
    if isinstance(source, Mapping):
        return PretrainedSource({}, dict(source), None, "tensors")
    path = expanded(source)
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        beside = path.parent / "config.json"
        return PretrainedSource(
            _named_by_timm(read_json(beside)) if beside.exists() else {}, _file(path), path.parent, path.stem
        )
    if path.suffix in FILE_SUFFIXES or str(source).count("/") > 1 or str(source).startswith((".", "/", "~")):
        raise OdeumError(
            f"there is no '{source}'; give a directory with config.json and weights, a .safetensors or .bin file, or a "
            "name of the hub such as openai-community/gpt2"
        )
    return _folder(_downloaded(str(source)))._replace(name=str(source).rpartition("/")[2])


def _module(module: nn.Module) -> PretrainedSource:
    config = getattr(module, "config", None)
    record = {**config.to_dict(), "architectures": [type(module).__name__]} if hasattr(config, "to_dict") else {}
    tensors = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
    if type(module).__module__.startswith("timm."):
        record = _timm_config(module)
    return PretrainedSource(record, tensors, None, type(module).__name__)


def _timm_config(model: Any) -> dict[str, Any]:
    """The configuration of a VisionTransformer of timm."""
    blocks = getattr(model, "blocks", None)
    if blocks is None or not hasattr(blocks[0], "attn") or not hasattr(blocks[0], "mlp"):
        kind = "" if blocks is None else f" with blocks of the kind {type(blocks[0]).__name__}"
        raise OdeumError(f"{type(model).__name__} of timm{kind} is not a vision transformer that can be imported")
    first = blocks[0]
    act = type(first.mlp.act).__name__.lower()
    return {
        "model_type": "timm_vit",
        "num_attention_heads": first.attn.num_heads,
        "hidden_act": "gelutanh" if getattr(first.mlp.act, "approximate", "none") == "tanh" else act,
        "layer_norm_eps": first.norm1.eps,
        "global_pool": model.global_pool,
        "pool_include_prefix": model.pool_include_prefix,
        "block": type(first).__name__,
        "image_size": model.patch_embed.img_size,
    }


def _named_by_timm(config: dict[str, Any]) -> dict[str, Any]:
    """Complete the configuration of a timm folder, which only names the architecture; unchanged if timm is missing."""
    if "architecture" not in config or "model_type" in config:
        return config
    try:
        timm: Any = import_module("timm")
        with torch.device("meta"):
            options = {"num_classes": config.get("num_classes", 0), **(config.get("model_args") or {})}
            return {**config, **_timm_config(timm.create_model(config["architecture"], **options))}
    except (ImportError, RuntimeError, TypeError, AttributeError):  # not installed, or no such name or option
        return config


def _folder(path: Path) -> PretrainedSource:
    config = _named_by_timm(read_json(path / "config.json") if (path / "config.json").exists() else {})
    for index in (SAFE_INDEX, PICKLED_INDEX):
        if (path / index).exists():
            files = sorted(set(_shards(path / index)))
            return PretrainedSource(
                config, {k: v for name in files for k, v in _file(path / name).items()}, path, path.name
            )
    for name in (SAFE, PICKLED):
        if (path / name).exists():
            return PretrainedSource(config, _file(path / name), path, path.name)
    others = sorted([*path.glob("*.safetensors"), *path.glob("*.bin")])
    if len(others) == 1:
        return PretrainedSource(config, _file(others[0]), path, path.name)
    raise OdeumError(f"'{path}' holds no weights: neither {SAFE} nor {PICKLED}, whole or in parts")


def _shards(index: Path) -> list[str]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise OdeumError(f"'{index}' is damaged: its weight_map must map weights to files")
    names = [str(name) for name in places.values()]
    for name in names:
        if Path(name).name != name:
            raise OdeumError(f"'{index}' names the file '{name}' outside of its folder")
    return names


def _file(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return dict(TensorFile.open(path).read())
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the pickle holds: nothing in it is executed
        reason = str(error).split(".")[0] if isinstance(error, pickle.UnpicklingError) else "torch cannot open it"
        raise OdeumError(f"'{path}' cannot be read as weights without executing its content: {reason}") from None
    content = content.get("state_dict", content.get("model", content)) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise OdeumError(f"'{path}' holds something other than tensors by name")
    return content


def _downloaded(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise OdeumError(f"downloading '{name}' from the hub needs `pip install odeum[hf]`") from None
    try:
        patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "pytorch_model*.bin"]
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # no network, no such name, no permission
        reason = " ".join(str(error).split())[:160]
        raise OdeumError(
            f"'{name}' is not a local path and cannot be downloaded from the Hugging Face hub ({reason}); "
            "give a directory"
        ) from None
