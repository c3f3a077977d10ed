"""Every value of the JSON files that others wrote, replaced by one of a wrong type: read, or refused in one message."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import run
from test_import_settings import MODELS

from odeum.errors import OdeumError
from odeum.lab.cli import _out_of_memory
from odeum.lab.commands.import_run import _read
from odeum.lab.tasks.run import load
from odeum.lab.train.origin import write_run
from odeum.storage import read_json, write_json

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
WRONG: tuple[Any, ...] = ("text", ["gpt2"], {}, {"a": 1}, -1, 0, 10**30, 1.5, True, [], "7", float("nan"), None)
BESIDE: dict[str, dict[str, Any]] = {
    "generation_config.json": {"bos_token_id": 1, "eos_token_id": [2]},
    "tokenizer_config.json": {"add_bos_token": True, "do_lower_case": True},
    "preprocessor_config.json": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a record, and to the first of each list."""
    yield at
    for key in value if isinstance(value, dict) else range(min(1, len(value)) if isinstance(value, list) else 0):
        yield from places(value[key], (*at, key))


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = put(copy[at[0]], at[1:], new)
    return copy


def cases(content: Any, count: int | None) -> list[tuple[tuple[Any, ...], Any]]:
    every = [(at, wrong) for at in places(content) for wrong in WRONG]
    return every if count is None else random.Random(0).sample(every, min(count, len(every)))


def pretrained(name: str, folder: Path) -> dict[str, Any]:
    model, config, settings = MODELS[name]
    model(config(**settings)).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"t{i}" for i in range(24))]
    (folder / "vocab.txt").write_text("\n".join(words))
    files = {"config.json": {"id2label": {"0": "a", "1": "b"}, **json.loads((folder / "config.json").read_text())}}
    return files | BESIDE


def fuzz_import(folder: Path, name: str, count: int | None) -> None:
    files = pretrained(name, folder / "source")
    for file, content in files.items():
        (folder / "source" / file).write_text(json.dumps(content))
    for file, content in files.items():
        for at, wrong in cases(content, count):
            (folder / "source" / file).write_text(json.dumps(put(content, at, wrong)))
            try:
                imported, task, _ = _read({"source": str(folder / "source")})
                write_run(folder / "out", imported.model, task, {}, "")
            except OdeumError:
                continue
            finally:
                shutil.rmtree(folder / "out", ignore_errors=True)
        (folder / "source" / file).write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["gpt2", "bert-classes", "vit"])
def test_some_values_of_pretrained_models(tmp_path: Path, name: str) -> None:
    fuzz_import(tmp_path, name, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_all_values_of_pretrained_models(tmp_path: Path, name: str) -> None:
    fuzz_import(tmp_path, name, None)


@pytest.mark.parametrize(
    ("name", "file", "change", "reason"),
    [
        ("gpt2", "config.json", {"model_type": ["gpt2"]}, r"a model of the type '\['gpt2'\]' cannot be imported"),
        ("gpt2", "config.json", {"n_head": float("nan")}, "n_head=nan .* must be a number"),
        ("bert-classes", "config.json", {"architectures": -1}, "cannot be read as a bert"),
        ("bert-classes", "config.json", {"id2label": {"a": 1}}, "id2label .* must map class numbers to names"),
        ("vit", "preprocessor_config.json", {"image_mean": -1}, "image_mean .* must be 3 numbers, not -1"),
        ("vit", "preprocessor_config.json", {"image_std": [0, 0, 0]}, "image_std .* must be 3 numbers"),
    ],
)
def test_messages_name_the_value(tmp_path: Path, name: str, file: str, change: dict[str, Any], reason: str) -> None:
    files = pretrained(name, tmp_path)
    (tmp_path / file).write_text(json.dumps(files[file] | change))
    with pytest.raises(OdeumError, match=reason):
        _read({"source": str(tmp_path)})


def fuzz_run(folder: Path, count: int | None) -> None:
    run(folder / "run", steps=1)
    for file in ("config.json", "task.json", "run.json", "result.json"):
        content = read_json(folder / "run" / file)
        for at, wrong in cases(content, count):
            changed = put(content, at, wrong)
            if not isinstance(changed, dict):
                continue
            write_json(folder / "run" / file, changed)
            try:
                load(folder / "run")
            except OdeumError:
                continue
        write_json(folder / "run" / file, content)


def test_some_values_of_runs(tmp_path: Path) -> None:
    fuzz_run(tmp_path, 12)


@pytest.mark.slow
def test_all_values_of_runs(tmp_path: Path) -> None:
    fuzz_run(tmp_path, None)


def test_libraries_without_memory_are_recognised() -> None:
    """As when torch is loaded under a limit of the address space."""
    try:
        try:
            raise OSError("libtorch_cpu.so: failed to map segment from shared object")
        except OSError:
            raise ImportError("torch") from None
    except ImportError as error:
        assert _out_of_memory(error)
    assert _out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")) and _out_of_memory(MemoryError())
    assert not _out_of_memory(RuntimeError("shape mismatch"))
