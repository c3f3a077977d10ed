"""Runs that cannot be spoiled: damage is noticed, what is read is not run and is no bomb."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_runs import Stopping, job, run

from odeum.errors import Notice, OdeumError
from odeum.interop.transevolve import load as load_published
from odeum.lab.study.runs import _run
from odeum.lab.tasks.run import load
from odeum.lab.train.progress import Progress
from odeum.lab.train.run import train
from odeum.models.tensors import write_tensors
from odeum.storage import Damaged, Moved, lock_directory, make_directory, read_json, write_bytes, write_json


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


def strip_run_ids(directory: Path) -> None:
    """Make it a run of an earlier version: no ids, no checksums."""
    for path in directory.rglob("*.json"):
        content = {key: value for key, value in read_json(path).items() if key not in ("run_id", "weights", "files")}
        path.write_text(json.dumps(content))
    for path in directory.rglob("*.safetensors"):
        save_file(load_file(path), path)
    for path in directory.rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({**line, "run_id": None}) + "\n" for line in lines))


def test_runs_without_ids_and_checksums_load_and_go_on(copy: Path, tmp_path: Path) -> None:
    strip_run_ids(copy)
    load(copy)
    run(tmp_path / "half", stop=3, steps=6, checkpoint_every=2)
    strip_run_ids(tmp_path / "half")
    assert run(tmp_path / "half", steps=6, checkpoint_every=2)["steps"] == 6
    assert not any("run_id" in read_json(path) for path in (tmp_path / "half").glob("*.json"))
    load(tmp_path / "half")


MIXTURES = ("run.json", "config.json", "task.json", "model.safetensors", "result.json", "metrics.jsonl")


@pytest.mark.parametrize("name", MIXTURES)
def test_files_of_two_runs_are_not_mixed(copy: Path, tmp_path: Path, name: str) -> None:
    """As a backup that is restored in part, or a copy that was cut off, would leave them."""
    other = replace(job(tmp_path / "other", steps=3), seed=1)
    train(other, Progress("", quiet=True))
    plain = shutil.copytree(other.directory, tmp_path / "plain")
    strip_run_ids(plain)
    for source in (other.directory, plain):  # of another seed; of one that names no run
        mixed = shutil.copytree(copy, tmp_path / f"mixed-{source.name}")
        shutil.copyfile(source / name, mixed / name)
        before = {path: path.read_bytes() for path in mixed.rglob("*") if path.is_file()}
        if name != "metrics.jsonl":
            with pytest.raises(OdeumError, match="another run"):
                load(mixed)
            refused = "another run|other settings" if name == "run.json" else "another run"
            with pytest.raises(OdeumError, match=refused):
                run(mixed, steps=3)
        assert {path: path.read_bytes() for path in mixed.rglob("*") if path.is_file()} == before
        if name in ("run.json", "result.json", "metrics.jsonl"):
            left_out: list[str] = []
            _run(mixed, [mixed], {}, [], left_out)
            assert any("another run" in sentence for sentence in left_out)


@pytest.mark.parametrize("name", ["checkpoint", "state.json", "tensors.safetensors", "older", "metrics.jsonl"])
def test_states_of_two_runs_are_not_mixed(tmp_path: Path, name: str) -> None:
    settings: dict[str, Any] = {"steps": 9, "checkpoint_every": 2}
    run(tmp_path / "run", stop=6, **settings)
    with pytest.raises(KeyboardInterrupt):
        train(replace(job(tmp_path / "other", **settings), seed=1), Stopping(6, signal.SIGINT))
    mine, theirs = (sorted((tmp_path / out / "checkpoint").iterdir()) for out in ("run", "other"))
    if name == "checkpoint":
        shutil.rmtree(tmp_path / "run" / name)
        shutil.copytree(tmp_path / "other" / name, tmp_path / "run" / name)
    elif name == "metrics.jsonl":
        shutil.copyfile(tmp_path / "other" / name, tmp_path / "run" / name)
    else:
        for last, source in zip(mine, theirs, strict=True):
            file = "tensors.safetensors" if name == "older" else name
            if name != "older" or last != mine[0]:
                shutil.copyfile((mine[0] if name == "older" else source) / file, last / file)
    if name == "older":  # falls back to the state whose tensors they are
        with pytest.warns(Notice, match=r"are not those that its state\.json was written with.*of step"):
            run(tmp_path / "run", **settings)
        run(tmp_path / "whole", **settings)
        a, b = (load_file(tmp_path / out / "model.safetensors") for out in ("run", "whole"))
        assert all(torch.equal(a[key], b[key]) for key in a)
    else:
        with pytest.raises(OdeumError, match="another run"):
            run(tmp_path / "run", **settings)


def test_weights_of_an_earlier_training_are_not_those_of_the_result(copy: Path) -> None:
    """A run by the clock that was begun again has the same words and other weights."""
    weights = load_file(copy / "model.safetensors")
    weights["head.bias"] += 1.0
    write_tensors(copy / "model.safetensors", weights, run_id=read_json(copy / "run.json")["run_id"])
    with pytest.raises(Damaged, match=r"is not what 'result\.json' beside it was measured with"):
        load(copy)


# folders that move


@pytest.mark.parametrize("fate", ["moved", "removed", "replaced", "relinked"])
@pytest.mark.parametrize("at", [1, 4, 6])
def test_a_run_whose_folder_is_taken_away_writes_nowhere_else(tmp_path: Path, fate: str, at: int) -> None:
    """Another run may have begun in its place: neither gets a file of the other."""
    out, away, other = tmp_path / "out", tmp_path / "away", tmp_path / "other"
    (tmp_path / "folder").mkdir()
    if fate == "relinked":
        out.symlink_to("folder")
    run(other, "parallel", stop=2, steps=6, checkpoint_every=2)
    seen: list[dict[Path, bytes]] = []

    def happens() -> None:
        if fate == "removed":
            shutil.rmtree(out)
        elif fate == "relinked":
            out.unlink()
        else:
            out.rename(away)
        if fate in ("replaced", "relinked"):
            out.symlink_to("other") if fate == "relinked" else other.rename(out)
            seen.append({path: path.read_bytes() for path in out.rglob("*") if path.is_file()})

    class Taking(Progress):
        def update(self, *, step: int, **values: Any) -> None:
            if step == at:
                happens()

    with pytest.raises(OdeumError, match=r"was (moved away|removed) .*while this process wrote to it"):
        train(job(out, steps=6, checkpoint_every=2), Taking("", quiet=True))
    if seen:
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == seen[0]
    else:
        assert not out.exists()
    if fate in ("moved", "replaced"):
        assert run(away, steps=6, checkpoint_every=2)["steps"] == 6


def test_without_descriptors_of_folders_the_name_is_checked(tmp_path: Path) -> None:
    """As on systems without /proc."""
    with lock_directory(make(tmp_path / "a")) as held:
        held.place = held.path
        write_json(tmp_path / "a" / "x.json", {})
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "a").mkdir()
        for write in (lambda path: write_json(path, {}), lambda path: write_bytes(path, b""), make_directory):
            with pytest.raises(Moved, match="another directory is in its place"):
                write(tmp_path / "a" / "y.json")
    assert not list((tmp_path / "a").iterdir())


def make(path: Path) -> Path:
    path.mkdir()
    return path


def test_weights_that_are_not_finite_do_not_answer(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["head.weight"][0, 0] = torch.nan
    strip_run_ids(copy)
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(OdeumError, match=r"contain NaN or infinity in head\.weight"):
        load(copy)


def test_a_task_of_another_run_is_refused(copy: Path) -> None:
    task = read_json(copy / "task.json")
    for change, sentence in (
        ({"classes": ["a", "b"]}, "does not belong to its model: it has classes 2, and config.json says 10"),
        ({"mean": "x"}, "is damaged"),
        ({"mean": []}, "does not belong|is damaged"),
        ({"settings": "Nothing", "kind": "nothing"}, "not registered"),
        ({"options": 3}, "is damaged"),
        ({"options": {"size": -4}}, "must be a positive integer"),
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
    with pytest.raises(
        OdeumError, match=r"width 400000 .* training this model takes about .*, but only .* are available"
    ):
        train(large, Progress("", quiet=True))
    assert not (tmp_path / "run").exists()
