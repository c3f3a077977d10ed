"""Runs that cannot be spoiled: damage is noticed, what is read is not run and is no bomb."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_runs import job, run

from odeum.errors import Notice, OdeumError
from odeum.interop.transevolve import load as load_published
from odeum.lab.tasks.run import load
from odeum.lab.train.progress import Progress
from odeum.lab.train.run import train
from odeum.storage import Damaged, read_json, write_json


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("done")
    run(out, steps=3)
    return out


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "run")


def flip(path: Path, place: int, bit: int = 3) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


# damage


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "task.json"])
def test_a_flipped_bit_is_an_error_that_names_the_file(copy: Path, name: str) -> None:
    whole = (copy / name).read_bytes()
    for place in random.Random(1).sample(range(150, len(whole) - 60), 12):  # not in the word `checksum`
        flip(copy / name, place)
        with pytest.raises(OdeumError, match=name.replace(".", r"\.")):
            load(copy)
        (copy / name).write_bytes(whole)
    load(copy)


def test_a_flipped_result_is_noticed(copy: Path) -> None:
    flip(copy / "result.json", 30, bit=0)
    with pytest.raises(Damaged, match=r"result\.json"):
        run(copy, steps=3)


def test_a_result_without_its_numbers_is_a_sentence(copy: Path) -> None:
    result = read_json(copy / "result.json")
    for change in ({"test": None}, {"valid": {"loss": "low"}}):
        write_json(copy / "result.json", result | change)
        with pytest.raises(Damaged, match=r"result\.json' is damaged: it has no numbers of the (test|valid) part"):
            run(copy, steps=3)


def test_a_tokenizer_of_another_run_is_noticed(tmp_path: Path) -> None:
    from odeum.lab.tasks import load_task, open_task

    corpus = tmp_path / "text.txt"
    corpus.write_text("".join(f"line {i} of a small text, with words of all kinds.\n" for i in range(400)))
    open_task(corpus).save(tmp_path / "run")
    path = tmp_path / "run" / "tokenizer.json"
    whole = path.read_text()
    load_task(tmp_path / "run")
    for damaged in (whole.replace("w", "v", 1), "{", "[]", '{"odeum": "words", "entries": 3}', whole[:-20]):
        path.write_text(damaged)
        with pytest.raises(Damaged, match=r"tokenizer\.json' is damaged"):
            load_task(tmp_path / "run")


def test_runs_without_checksums_load_with_a_notice(copy: Path) -> None:
    for name in ("config.json", "task.json"):
        content = read_json(copy / name)
        (copy / name).write_text(json.dumps(content))
    save_file(load_file(copy / "model.safetensors"), copy / "model.safetensors")
    with pytest.warns(Notice, match="written without checksums") as seen:
        load(copy)
    assert len(seen) == 1


def test_weights_that_are_not_finite_do_not_answer(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["head.weight"][0, 0] = torch.nan
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(OdeumError, match=r"head\.weight holds values that are not finite"):
        load(copy)


def test_a_task_of_another_run_is_refused(copy: Path) -> None:
    task = read_json(copy / "task.json")
    for change, sentence in (
        ({"classes": ["a", "b"]}, "does not belong to its model: it has classes 2, and config.json says 10"),
        ({"mean": "x"}, "is damaged"),
        ({"mean": []}, "does not belong|is damaged"),
        ({"settings": "Nothing", "kind": "nothing"}, "not known here"),
        ({"options": 3}, "is damaged"),
        ({"options": {"size": -4}}, "should be positive"),
        ({"files": {"/dev/zero": "0"}}, "outside of its run"),
    ):
        write_json(copy / "task.json", task | change)
        with pytest.raises(OdeumError, match=sentence):
            load(copy)


# no stranger's code


class Trap:
    """Whoever unpickles this makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_nothing_that_is_read_is_run(done: Path, tmp_path: Path) -> None:
    from odeum.lab.cli import main

    mark = tmp_path / "executed"
    trap = pickle.dumps(Trap(mark))
    pickle.loads(trap)
    assert mark.exists()  # it works
    mark.rmdir()
    for name in ("model.safetensors", "config.json", "task.json", "result.json", "run.json", "tokenizer.json"):
        hostile = shutil.copytree(done, tmp_path / f"pickled-{name}")
        (hostile / name).write_bytes(trap)
        main(["predict", str(hostile), "x.png"])
    hostile = shutil.copytree(done, tmp_path / "bin")
    (hostile / "model.safetensors").rename(hostile / "pytorch_model.bin")
    (hostile / "pytorch_model.bin").write_bytes(trap)
    assert main(["predict", str(hostile), "x.png"]) == 2
    for number, name in enumerate(
        ("tensors.safetensors", "shards/.metadata", "shards/00000.safetensors", "state.json")
    ):
        out = tmp_path / f"state-{number}"
        run(out, stop=3, steps=9)
        (state,) = (out / "checkpoint").iterdir()
        (state / "tensors.safetensors").unlink()
        (state / name).parent.mkdir(exist_ok=True)
        (state / name).write_bytes(trap)
        with pytest.raises(OdeumError, match="damaged"):
            run(out, steps=9)
    np.savez(tmp_path / "published.npz", allow_pickle=True, weights=np.array([Trap(mark)], dtype=object))
    (tmp_path / "published.pt").write_bytes(trap)
    for path in (tmp_path / "published.npz", tmp_path / "published.pt"):
        with pytest.raises(OdeumError):
            load_published(path)
    (tmp_path / "options.yaml").write_text(f"source: !!python/object/apply:os.mkdir ['{mark}']\n")
    assert main(["train", "--config", str(tmp_path / "options.yaml")]) == 2
    assert not mark.exists()


# no bombs


@pytest.mark.parametrize(
    ("changes", "architecture"),
    [
        ({"width": 20_000}, "sequential"),
        ({"width": 2**40}, "sequential"),
        ({"depth": 10**6}, "sequential"),
        ({"depth": 10**6}, "parallel:independent=1"),
        ({"classes": 10**9}, "sequential"),
        ({"hidden": 10**9}, "sequential"),
        ({"image_size": 10**6}, "sequential"),
        ({}, "rk4:steps=1000000000"),
        ({}, "transevolve:features=1000000000"),
        ({"width": "32"}, "sequential"),
        ({"width": -32}, "sequential"),
        ({"width": True}, "sequential"),
        ({"width": 1e308}, "sequential"),
        ({"unknown": 1}, "sequential"),
    ],
)
def test_a_hostile_configuration_is_a_sentence_at_once(copy: Path, changes: dict[str, Any], architecture: str) -> None:
    config = read_json(copy / "config.json")
    config.pop("record", None)
    config["model"] |= changes
    write_json(copy / "config.json", config | {"architecture": architecture})
    begin = time.monotonic()
    with pytest.raises(OdeumError):
        load(copy)
    assert time.monotonic() - begin < 20


def test_steps_without_end_are_refused(done: Path) -> None:
    with pytest.raises(OdeumError, match=r"steps 1000000000 would make .* evaluations"):
        load(done).solve_by(steps=10**9)


def test_a_limit_can_be_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    from odeum.models import build

    with pytest.raises(OdeumError, match="depth 5000 would make 5,000 layers, more than the limit of 4,096"):
        build("parallel:independent=1", "vit_8", depth=5000, width=4, heads=1)
    monkeypatch.setenv("ODEUM_LIMITS", "off")
    assert build("parallel:independent=1", "vit_8", depth=5000, width=4, heads=1) is not None


def test_a_model_larger_than_the_machine_is_refused(tmp_path: Path) -> None:
    large = job(tmp_path / "run")
    large = replace(large, model=replace(large.model, width=400_000))
    with pytest.raises(OdeumError, match=r"width 400000 .* training this model takes about .*, and there are .* here"):
        train(large, Progress("", quiet=True))
    assert not (tmp_path / "run").exists()
