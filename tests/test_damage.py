"""Runs that cannot be spoiled: damage is noticed, a good state stays, what is read is not run and is no bomb."""

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
from small_runs import job, lines, losses, run, states

from odeum.distributed.shards import StoredTensors, write_shard
from odeum.errors import Diverged, Notice, OdeumError
from odeum.interop.transevolve import load as load_published
from odeum.storage import Damaged, alone_in, read_json, write_json
from odeum.tasks.run import load
from odeum.train import Interrupted, train
from odeum.train.checkpoints import Checkpoints
from odeum.train.optimization import make_optimizer
from odeum.train.progress import Progress
from odeum.train.resume import find_state


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
    from odeum.tasks import load_task, open_task

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


# states


RICH: dict[str, Any] = {"ema": 0.9, "average": 2, "steps": 12, "checkpoint_every": 3}


def test_a_damaged_state_falls_back_to_the_one_before(tmp_path: Path) -> None:
    run(tmp_path / "whole", **RICH)
    run(tmp_path / "run", stop=7, **RICH)
    assert states(tmp_path / "run") == [6, 8]
    last = tmp_path / "run" / "checkpoint" / "step-00000008"
    flip(last / "tensors.safetensors", -5)
    with pytest.warns(Notice, match=r"step-00000008.* is damaged.*goes on from the state before, of step 6"):
        run(tmp_path / "run", **RICH)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_when_all_states_are_damaged_it_is_said(tmp_path: Path) -> None:
    run(tmp_path, stop=7, **RICH)
    for path in (tmp_path / "checkpoint").iterdir():
        flip(path / "state.json", 10)
    with pytest.raises(OdeumError, match=r"step-00000008' cannot be read .*--overwrite begins again"):
        run(tmp_path, **RICH)
    assert run(tmp_path, steps=1, overwrite=True)["steps"] == 1


def test_a_state_that_is_no_number_is_never_saved(tmp_path: Path) -> None:
    """Whatever breaks, and whenever: what is kept can be gone on from, and the sentence says what is kept."""
    for rate in (1e3, 1e10, 1e25, 1e38):
        out = tmp_path / str(rate)
        with pytest.raises(Diverged, match=r"the state of step \d+ is kept; --resume_from .*step-|no state was saved"):
            run(out, learning_rate=rate, clip=0.0, warmup=0.0, checkpoint_every=1, steps=300)
        for path in (out / "checkpoint").glob("step-*/tensors.safetensors"):
            assert all(bool(value.isfinite().all()) for value in load_file(path).values())


def test_going_on_with_another_learning_rate(tmp_path: Path) -> None:
    run(tmp_path / "a", stop=7, **RICH)
    state = find_state(str(tmp_path / "a"))
    assert state.name == "step-00000008"
    changed = replace(job(tmp_path / "b", learning_rate=1e-4, **RICH), resume_from=state)
    assert train(changed, Progress("", quiet=True))["steps"] == 12
    assert losses(tmp_path / "b")[:8] == losses(tmp_path / "a")[:8] and len(losses(tmp_path / "b")) == 12
    assert read_json(tmp_path / "b" / "run.json")["resumed_from"] == str(state)
    assert states(tmp_path / "a") == [6, 8]  # the other run is as it was
    for other, sentence in (
        (job(tmp_path / "c", "parallel", **RICH), "its architecture is sequential, and this run's is parallel"),
        (job(tmp_path / "c", dropout=0.1, **RICH), "its model is"),
    ):
        with pytest.raises(OdeumError, match=sentence):
            train(replace(other, resume_from=state), Progress("", quiet=True))
    with pytest.raises(OdeumError, match="is no state of a run"):
        find_state(str(tmp_path / "b"))


def test_shards_of_any_size_make_the_whole(tmp_path: Path) -> None:
    whole = {"a": torch.randn(5, 3), "b": torch.randn(1), "step": torch.tensor(4.0)}
    for rank in range(3):
        rows = {name: (min(len(t), rank * -(-len(t) // 3)), min(len(t), (rank + 1) * -(-len(t) // 3)))
                for name, t in whole.items() if t.dim()}  # fmt: skip
        mine = {name: whole[name][low:high] for name, (low, high) in rows.items()}
        pieces = {n: (list(whole[n].shape), [low] + [0] * (whole[n].dim() - 1)) for n, (low, _) in rows.items()}
        write_shard(tmp_path, rank, 3, mine | ({} if rank else {"step": whole["step"]}), pieces)
    found = dict(StoredTensors(tmp_path).read(whole))
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    with pytest.raises(Damaged, match="does not fit"):
        dict(StoredTensors(tmp_path).read({"a": torch.empty(6, 3)}))
    (tmp_path / "shards" / "00001.safetensors").unlink()
    with pytest.raises(Damaged, match="2 of 3 shards"):
        StoredTensors(tmp_path)


# two at once, and ends


def test_a_refused_training_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, stop=3, steps=9)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with alone_in(tmp_path):
        for settings in ({"learning_rate": 0.5}, {"overwrite": True}, {}):
            with pytest.raises(OdeumError, match="another process is training in"):
                run(tmp_path, steps=9, **settings)
    with pytest.raises(OdeumError, match="--overwrite"):
        run(tmp_path, steps=9, learning_rate=0.5)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert run(tmp_path, steps=2, learning_rate=0.5, overwrite=True)["steps"] == 2


def test_overwriting_leaves_what_is_not_of_a_run(tmp_path: Path) -> None:
    run(tmp_path, steps=1)
    (tmp_path / "notes.txt").write_text("mine")
    assert run(tmp_path, steps=2, overwrite=True)["steps"] == 2
    assert (tmp_path / "notes.txt").read_text() == "mine" and len(lines(tmp_path)) == 2


@pytest.mark.parametrize("where", ["result", "clear"])
def test_a_kill_at_the_very_end(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        if where == "clear":
            patch.setattr(Checkpoints, "clear", kill)
        else:
            patch.setattr("odeum.train.loop.save_model", kill)
        run(tmp_path, steps=3)
    assert (tmp_path / "checkpoint").exists()
    run(tmp_path, steps=3)
    assert not (tmp_path / "checkpoint").exists()
    steps = [line["step"] for line in lines(tmp_path, "valid")]
    assert len(steps) == len(set(steps))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_exit_code(tmp_path: Path, number: int) -> None:
    class Sending(Progress):
        def update(self, *, step: int, **values: Any) -> None:
            if step == 3:
                os.kill(os.getpid(), number)

    with pytest.raises(Interrupted) as stop:
        train(job(tmp_path, steps=9), Sending("", quiet=True))
    assert stop.value.code == 128 + number and states(tmp_path) == [4]


def test_metrics_that_are_no_text(tmp_path: Path) -> None:
    run(tmp_path, stop=3, steps=9)
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b"\xff\xfe\n[1]\n{}\n" + b"[" * 200_000 + b'\n{"step": "x"}\n')
    run(tmp_path, steps=9)
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 10))


def test_another_number_of_threads_is_remarked(tmp_path: Path) -> None:
    run(tmp_path, stop=3, steps=9)
    record = read_json(tmp_path / "run.json")
    write_json(tmp_path / "run.json", record | {"threads": 64})
    with pytest.warns(Notice, match="began with 64 threads and goes on with 1"):
        run(tmp_path, steps=9)


def test_places_do_not_decay_but_in_runs_that_began_so(tmp_path: Path) -> None:
    from odeum.models import build

    model = build("sequential", "vit_8", pooling="token")
    training = job(tmp_path).training

    def still(rule: str) -> set[str]:
        group = make_optimizer(model, training, rule).param_groups[-1]
        assert group["weight_decay"] == 0
        known = {id(p): name for name, p in model.named_parameters()}
        return {known[id(p)] for p in group["params"]}

    assert still("maps") - still("matrices") == {"token", "position"}
    text = build("sequential", "language_small", positions="learned", width=16, heads=2, depth=1, vocabulary=50)
    group = make_optimizer(text, training).param_groups[-1]["params"]
    tables = [p for name, p in text.named_parameters() if name.startswith("positions")]
    assert len(tables) == 1 and any(p is tables[0] for p in group)
    run(tmp_path / "old", stop=3, steps=9)
    record = read_json(tmp_path / "old" / "run.json")
    assert record.pop("decay") == "maps"
    write_json(tmp_path / "old" / "run.json", record)  # as earlier versions wrote it
    run(tmp_path / "old", steps=9)
    run(tmp_path / "new", steps=9)
    assert losses(tmp_path / "old")[:4] == losses(tmp_path / "new")[:4]
    assert losses(tmp_path / "old")[5:] != losses(tmp_path / "new")[5:]


# no stranger's code


class Trap:
    """Whoever unpickles this makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_nothing_that_is_read_is_run(done: Path, tmp_path: Path) -> None:
    from odeum.cli import main

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
        with pytest.raises(OdeumError, match="pickled, so reading it could run any code" if number == 1 else "damaged"):
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
