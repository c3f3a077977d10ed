"""States of a run: whole or not taken, and what several processes, signals and ends leave of them."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_runs import job, lines, losses, run, states
from test_damage import flip

from odeum.errors import Diverged, Notice, OdeumError
from odeum.lab.train.checkpoints import Checkpoints
from odeum.lab.train.distributed.shards import StoredTensors, write_shard
from odeum.lab.train.interrupt import Interrupted
from odeum.lab.train.optimization import make_optimizer
from odeum.lab.train.progress import Progress
from odeum.lab.train.resume import find_state
from odeum.lab.train.run import train
from odeum.storage import Damaged, lock_directory, read_json, write_json

RICH: dict[str, Any] = {"ema": 0.9, "average": 2, "steps": 12, "checkpoint_every": 3}


def test_a_damaged_state_falls_back_to_the_one_before(tmp_path: Path) -> None:
    run(tmp_path / "whole", **RICH)
    run(tmp_path / "run", stop=7, **RICH)
    assert states(tmp_path / "run") == [6, 8]
    last = tmp_path / "run" / "checkpoint" / "step-00000008"
    flip(last / "tensors.safetensors", -5)
    with pytest.warns(Notice, match=r"step-00000008.* is damaged.*continues from the previous state, of step 6"):
        run(tmp_path / "run", **RICH)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_when_all_states_are_damaged_it_is_said(tmp_path: Path) -> None:
    run(tmp_path, stop=7, **RICH)
    for path in (tmp_path / "checkpoint").iterdir():
        flip(path / "state.json", 10)
    with pytest.raises(OdeumError, match=r"step-00000008' cannot be read .*--overwrite starts again"):
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
    with pytest.raises(OdeumError, match="is not a checkpoint"):
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


def test_more_states_are_kept_on_request(tmp_path: Path) -> None:
    run(tmp_path, steps=9, checkpoint_every=2, keep=3)
    assert states(tmp_path) == [6, 8, 9]
    run(tmp_path, steps=9, checkpoint_every=2, keep=3)  # it is done
    assert states(tmp_path) == [6, 8, 9]
    changed = replace(
        job(tmp_path / "b", steps=9, learning_rate=1e-4), resume_from=find_state(str(tmp_path)).parent / "step-00000006"
    )
    assert train(changed, Progress("", quiet=True))["steps"] == 9
    with pytest.raises(OdeumError, match="keep of the training must be a positive integer, got 0"):
        run(tmp_path, keep=0)


# two at once, and ends


def test_a_refused_training_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, stop=3, steps=9)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with lock_directory(tmp_path):
        for settings in ({"learning_rate": 0.5}, {"overwrite": True}, {}):
            with pytest.raises(OdeumError, match="another process is writing to"):
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


@pytest.mark.parametrize("every", [0, 100])
@pytest.mark.parametrize("where", ["result", "finish"])
def test_a_kill_at_the_very_end(tmp_path: Path, where: str, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a second of training needs no final checkpoint, unless checkpoints were asked for: it is repeated."""

    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        if where == "finish":
            patch.setattr(Checkpoints, "finish", kill)
        else:
            patch.setattr("odeum.lab.train.loop.save_model", kill)
        run(tmp_path, steps=3, checkpoint_every=every)
    assert (tmp_path / "checkpoint").exists() == (every > 0)
    result = run(tmp_path, steps=3)
    assert not (tmp_path / "checkpoint").exists()
    whole = run(tmp_path / "whole", steps=3)
    assert all(result[part] == whole[part] for part in ("steps", "valid", "test"))
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


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"threads": 64}, "started with 64 threads and continues with 1"),
        ({"versions": {"vectors": "SLOW"}}, "started on a processor with SLOW and continues with"),
        ({"versions": {"products": "hand"}}, "started with matrix products by hand and continues with"),
        ({"versions": {"draws": "lots"}}, "started with initial weights drawn by lots"),
    ],
)
def test_what_rounds_otherwise_is_remarked(change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    run(tmp_path, stop=3, steps=9)
    record = read_json(tmp_path / "run.json")
    write_json(tmp_path / "run.json", record | change)
    with pytest.warns(Notice, match=sentence):
        run(tmp_path, steps=9)


def test_tokens_and_positions_do_not_decay(tmp_path: Path) -> None:
    from odeum.models import build

    model = build("sequential", "vit_8", pooling="token")
    training = job(tmp_path).training
    group = make_optimizer(model, training).param_groups[-1]
    assert group["weight_decay"] == 0
    known = {id(p): (name, p) for name, p in model.named_parameters()}
    still = [known[id(p)] for p in group["params"]]
    assert {name for name, p in still if p.dim() > 1} == {"token", "position"}
    text = build("sequential", "language_small", positions="learned", width=16, heads=2, depth=1, vocabulary=50)
    group = make_optimizer(text, training).param_groups[-1]["params"]
    tables = [p for name, p in text.named_parameters() if name.startswith("positions")]
    assert len(tables) == 1 and any(p is tables[0] for p in group)
