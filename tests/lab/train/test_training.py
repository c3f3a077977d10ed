"""A run ends the same however often it is interrupted, and whatever goes wrong is a sentence and loses nothing."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from full_disk import files_up_to
from safetensors.torch import load_file
from small_runs import digits, job, lines, losses, run, states

from odeum.errors import CutOff, Diverged, OdeumError
from odeum.lab.train.distributed import world
from odeum.lab.train.metrics import Metrics
from odeum.lab.train.optimization import Average, TrainingEnd, learning_rate, seconds_of
from odeum.lab.train.progress import Progress
from odeum.lab.train.run import train
from odeum.lab.train.settings import Training
from odeum.storage import lock_directory

# Everything that is random or has a state.
RICH = {"dropout": 0.2, "ema": 0.9, "average": 3, "accumulate": 2, "steps": 40, "checkpoint_every": 8}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing interrupts."""
    out = tmp_path_factory.mktemp("whole")
    run(out, **RICH)
    return out


def assert_same_end(path: Path, whole: Path) -> None:
    """Bit for bit, and with every step logged once."""
    weights, expected = load_file(path / "model.safetensors"), load_file(whole / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    result, known = (json.loads((p / "result.json").read_text()) for p in (path, whole))
    assert result["test"] == known["test"] and result["steps"] == known["steps"]
    assert losses(path) == losses(whole)
    assert [line["step"] for line in lines(path)] == list(range(1, result["steps"] + 1))
    assert not (path / "checkpoint").exists()


def test_kill_9_and_the_same_command_again(tmp_path: Path, whole: Path) -> None:
    words = {"out": str(tmp_path), "stop": 21, "by": signal.SIGKILL, **RICH}
    script = Path(__file__).parents[2] / "small_runs.py"
    done = subprocess.run([sys.executable, str(script), json.dumps([words])], timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert states(tmp_path) == [8, 16]
    assert len(lines(tmp_path)) == 20
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 2')  # half a line, as a power cut leaves it
    run(tmp_path, **RICH)
    assert_same_end(tmp_path, whole)


def test_control_c_again_and_again(tmp_path: Path, whole: Path) -> None:
    for step in (3, 20, 38):
        assert run(tmp_path, stop=step, **RICH) == {}
        # The step in which it was asked is finished, and one more: then the state is saved.
        assert states(tmp_path)[-1] == step + 1 and len(states(tmp_path)) == (1 if step == 3 else 2)
    result = run(tmp_path, **RICH)
    assert_same_end(tmp_path, whole)
    assert 0 < result["step_seconds"] <= result["seconds"]
    assert result["seconds"] == pytest.approx(sum(t for t in [result["step_seconds"]] * 40), rel=3)
    assert run(tmp_path, **RICH) == result  # done is done


def test_a_full_disk_leaves_the_last_state(tmp_path: Path, whole: Path) -> None:
    run(tmp_path, stop=10, **RICH)
    with (
        files_up_to(50_000),
        pytest.raises(OdeumError, match=r"^cannot write .* the state of step 11 is kept, the same"),
    ):
        run(tmp_path, **RICH)
    assert states(tmp_path) == [8, 11]
    run(tmp_path, **RICH)
    assert_same_end(tmp_path, whole)


def test_a_full_disk_before_the_first_state(tmp_path: Path) -> None:
    with files_up_to(50_000), pytest.raises(OdeumError, match="no state was saved yet"):
        run(tmp_path, **RICH)
    assert not any((tmp_path / "checkpoint").iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_metrics_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(OdeumError, match=r"cannot write .*metrics\.jsonl"):
        Metrics(tmp_path).write({"step": 1, "split": "train", "loss": 2.0})


def test_a_broken_state_is_named(tmp_path: Path) -> None:
    run(tmp_path, stop=5)
    (state,) = (tmp_path / "checkpoint").iterdir()
    os.truncate(state / "tensors.safetensors", 1000)
    with pytest.raises(OdeumError, match=r"the state .*step-00000006.* cannot be read"):
        run(tmp_path)


def test_another_run_in_the_same_place(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    # Two settings differ, and one of those that may.
    with pytest.raises(OdeumError, match=r"other settings \(training\.batch_size is 16 and was 33; training.clip is 0"):
        run(tmp_path, steps=2, batch_size=16, clip=0.0, device="cpu")
    with pytest.raises(OdeumError, match=r"architecture is parallel and was sequential"):
        run(tmp_path, "parallel", steps=2)
    assert run(tmp_path, steps=2, device="cpu", strategy="ddp", checkpoint_every=3)["steps"] == 2


def test_parts_of_a_batch_add_up(tmp_path: Path) -> None:
    for parts in (1, 2, 5):
        run(tmp_path / f"{parts}", accumulate=parts)
    assert losses(tmp_path / "2") == pytest.approx(losses(tmp_path / "1"), abs=1e-6)
    assert losses(tmp_path / "5") == pytest.approx(losses(tmp_path / "1"), abs=1e-6)


def test_the_end_comes_by_steps_time_or_work(tmp_path: Path) -> None:
    assert run(tmp_path / "steps", steps=3)["steps"] == 3
    assert run(tmp_path / "epochs", steps=None, epochs=0.1)["steps"] == round(0.1 * digits().steps_per_epoch(33))
    timed = run(tmp_path / "time", steps=None, budget="0.5s", schedule="constant")
    assert 0.5 <= timed["seconds"] < 3
    assert lines(tmp_path / "time")[-1]["step"] == timed["steps"]
    one = json.loads((tmp_path / "steps" / "result.json").read_text())["macs"] / 3
    assert run(tmp_path / "macs", steps=None, macs=5.2 * one)["steps"] == 5
    with pytest.raises(OdeumError, match="one of steps, budget or macs, not by steps and budget"):
        TrainingEnd(Training(steps=3, budget="1m"), 10, 1.0)


def test_no_progress_ends_it_early(tmp_path: Path) -> None:
    settings = {"evaluate_every": 2, "patience": 2, "learning_rate": 1e-12, "steps": 50}
    assert run(tmp_path, **settings)["steps"] <= 8  # nothing is learned, so the first look stays about the best
    assert len(lines(tmp_path, "valid")) >= 3
    interrupted = tmp_path / "interrupted"
    run(interrupted, stop=3, **settings)
    run(interrupted, **settings)
    known, again = (json.loads((p / "result.json").read_text()) for p in (tmp_path, interrupted))
    assert again["steps"] == known["steps"] and again["test"] == known["test"]


def test_a_loss_that_explodes(tmp_path: Path) -> None:
    with pytest.raises(OdeumError, match=r"the loss of sequential \(seed 0\) is (nan|inf) at step \d+; a smaller"):
        run(tmp_path, learning_rate=1e30, clip=0.0)
    assert not (tmp_path / "result.json").exists()


def test_bfloat16_is_refused_without_instructions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(world, "processor_has_bfloat16", lambda: False)
    with pytest.raises(OdeumError, match=r"no bfloat16 instructions .* use --train.precision fp32"):
        run(tmp_path, precision="bf16")
    cpu = torch.device("cpu")
    assert not world.uses_bfloat16("auto", cpu) and not world.uses_bfloat16("fp32", cpu)
    monkeypatch.setattr(world, "processor_has_bfloat16", lambda: True)
    assert world.uses_bfloat16("bf16", cpu) and not world.uses_bfloat16("auto", cpu)


def test_precision_and_determinism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "processor_has_bfloat16", lambda: True)  # oneDNN emulates them elsewhere
    run(tmp_path / "fp32")
    run(tmp_path / "bf16", precision="bf16")
    assert losses(tmp_path / "bf16") != losses(tmp_path / "fp32")
    assert losses(tmp_path / "bf16") == pytest.approx(losses(tmp_path / "fp32"), abs=0.05)
    assert {w.dtype for w in load_file(tmp_path / "bf16" / "model.safetensors").values()} == {torch.float32}
    try:
        run(tmp_path / "sure", deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        run(tmp_path / "free", steps=1)
    assert not torch.are_deterministic_algorithms_enabled()
    assert losses(tmp_path / "sure") == losses(tmp_path / "fp32")


@pytest.mark.slow
def test_compiled(tmp_path: Path) -> None:
    run(tmp_path / "plain")
    run(tmp_path / "compiled", compile=True)
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), abs=1e-4)


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Writer:
        def __init__(self, directory: str) -> None:
            self.seen: list[tuple[Any, ...]] = []
            written.append(self)

        def add_scalar(self, *scalar: Any) -> None:
            self.seen.append(scalar)

    written: list[Writer] = []
    fake = type(sys)("torch.utils.tensorboard")
    fake.SummaryWriter = Writer  # ty: ignore[unresolved-attribute]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    run(tmp_path / "with", tensorboard=True, steps=3)
    assert [scalar[2] for scalar in written[0].seen if scalar[0] == "train/loss"] == [1, 2, 3]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(OdeumError, match=r"TensorBoard is not installed; `pip install odeum\[track\]`"):
        run(tmp_path / "without", tensorboard=True)


def test_learning_rates() -> None:
    def curve(steps: int = 100, **words: Any) -> list[float]:
        return [learning_rate(Training(learning_rate=1.0, **words), step, step / steps) for step in range(steps)]

    cosine = curve(warmup=10)
    assert cosine[:10] == pytest.approx([0.1 * i for i in range(1, 11)])
    assert cosine[55] == pytest.approx(0.5 * (1 + math.cos(math.pi * 46 / 91)), abs=0.02)
    assert all(a > b for a, b in pairwise(cosine[10:90])) and cosine[-1] < 0.02
    root = curve(warmup=25, schedule="inverse-sqrt")
    assert root[24] == 1 and root[99] == pytest.approx(0.5)
    assert curve(warmup=0, schedule="inverse-sqrt")[99] == pytest.approx(0.1)
    assert set(curve(warmup=0, schedule="constant")) == {1.0}
    share = curve(warmup=0.2)
    assert 0 < share[0] < 0.05 and share[10] == pytest.approx(0.5) and share[20] == pytest.approx(1, abs=0.01)


def test_what_the_clock_cuts_off_is_saved_and_a_longer_limit_continues_it(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    for _ in range(2):  # the same limit again takes one more step
        with pytest.raises(
            CutOff, match=r"cut off at step \d+ by the limit of 0.001s; a longer --train.limit continues"
        ):
            run(tmp_path / "cut", limit="0.001s")
    assert not (tmp_path / "cut" / "result.json").exists() and states(tmp_path / "cut")
    found = run(tmp_path / "cut", limit="1h")
    assert (found["test"], found["valid"], found["steps"]) == (whole["test"], whole["valid"], 20)
    with pytest.raises(OdeumError, match="the limit 'soon' must be a positive time"):
        Training(limit="soon")


def test_budgets_in_words() -> None:
    assert [seconds_of(words) for words in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    for wrong in ("", "0s", "-5m", "ten minutes", "5d"):
        with pytest.raises(OdeumError, match="must be a positive time such as 90s"):
            seconds_of(wrong)


def test_averages() -> None:
    weights = [torch.zeros(3)]
    mean, ema = Average(weights, None), Average(weights, 0.5)
    for value in (1.0, 2.0, 6.0):
        for average in (mean, ema):
            average.update([torch.full((3,), value)])
    torch.testing.assert_close(mean.values[0], torch.full((3,), 3.0))
    # Young averages remember less: shares 0.9, 9/11, 0.75 of the new weights.
    value = 0.0
    for count, new in enumerate((1.0, 2.0, 6.0), 1):
        value += (1 - min(0.5, count / (count + 9))) * (new - value)
    torch.testing.assert_close(ema.values[0], torch.full((3,), value))


class ImpatientReader(Progress):
    """Presses Ctrl-C when the training is over and the evaluation begins."""

    def say(self, text: str) -> None:
        if "evaluating" in text:
            raise KeyboardInterrupt


def test_an_interrupted_evaluation_loses_nothing(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(job(tmp_path, **RICH), ImpatientReader("test", quiet=True))
    assert states(tmp_path) == [32, 40]
    run(tmp_path, **RICH)
    assert_same_end(tmp_path, whole)


def test_an_end_for_lack_of_progress_is_remembered(tmp_path: Path) -> None:
    settings = {"evaluate_every": 2, "patience": 2, "learning_rate": 1e-12, "steps": 50, "checkpoint_every": 100}
    with pytest.raises(KeyboardInterrupt):
        train(job(tmp_path, **settings), ImpatientReader("test", quiet=True))
    (state,) = (tmp_path / "checkpoint").iterdir()
    assert run(tmp_path, **settings)["steps"] == int(state.name[5:])


@pytest.mark.parametrize("name", ["checkpoint", "metrics.jsonl", "result.json", "config.json", "model.safetensors"])
def test_a_folder_of_other_things_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(OdeumError, match=f"holds {name} but no run.json, so it is not an Odeum run"):
        run(tmp_path, steps=1)
    assert [p.name for p in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "precious"


def test_two_at_once_in_one_place_are_refused(tmp_path: Path) -> None:
    with lock_directory(tmp_path), pytest.raises(OdeumError, match="another process is writing to"):
        run(tmp_path, steps=1)
    assert run(tmp_path, steps=1)["steps"] == 1


def test_weights_that_end_not_finite_are_no_result(tmp_path: Path) -> None:
    """The last step may break the weights after its loss was still a number."""
    with pytest.raises(Diverged, match="the valid loss of sequential"):
        run(tmp_path, steps=1, learning_rate=1e30, warmup=0.0, clip=0.0)
    assert not (tmp_path / "result.json").exists()


def test_multiply_adds_are_those_of_the_examples_there_are(tmp_path: Path) -> None:
    """A batch larger than the data set holds the data set."""
    count = len(digits().plan(0, 1, 0))
    all_at_once, is_batched = (run(tmp_path / str(n), steps=1, batch_size=n)["macs"] for n in (100_000, 33))
    assert all_at_once / is_batched == pytest.approx(count / 33)
