"""Two processes under torchrun do what one does, end together, and continue each other's runs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_runs import lines, losses, run, states

from odeum.lab.train.batches import divide
from odeum.models.base import OdeumModel

ARCHITECTURES = ("sequential", "parallel:independent=1", "rk4:gradient=checkpointed", "transevolve", "adams-bashforth")
STRATEGIES = ("ddp", "fsdp2")
STEPS, STOP, LONG = 8, 4, 20
COMPLAINT = "unknown architecture 'rk5'"
# Everything that has a state, and a batch that neither two processes nor two parts divide evenly.
RICH = {"ema": 0.9, "average": 3, "accumulate": 2, "clip": 0.5, "steps": STEPS}
WORDS = ["train", "digits", "--model.depth", "2", "--model.width", "32", "--train.evaluate_every", "100000"]


def steps_of(architecture: str) -> int:
    """One of them for longer: a difference that grows would show there."""
    return LONG if architecture == "adams-bashforth" else STEPS


def torchrun(*words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]


def launch(jobs: list[dict[str, Any]]) -> str:
    """Small runs, one after another, in two processes; what they say."""
    script = str(Path(__file__).parents[2] / "small_runs.py")
    done = subprocess.run(torchrun(script, json.dumps(jobs)), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One launch for all that is compared with one process below: importing torch takes longer than training."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "two-processes"
    out.mkdir(exist_ok=True)
    with open(out / "lock", "w") as lock:  # the workers of pytest-xdist share it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "done").exists():
            make_runs(out)
            (out / "done").touch()
    return out


def make_runs(out: Path) -> None:
    for strategy in STRATEGIES:
        run(out / f"one-{strategy}", stop=STOP, **RICH)
    jobs: list[dict[str, Any]] = []
    for strategy in STRATEGIES:
        other = STRATEGIES[strategy == "ddp"]
        jobs += [
            {"out": f"{out}/{strategy}/{a}", "architecture": a, "strategy": strategy, "steps": steps_of(a)}
            for a in ARCHITECTURES
        ]
        jobs += [
            {"out": f"{out}/rich-{strategy}", "strategy": strategy, **RICH},
            {"out": f"{out}/one-{strategy}", "strategy": strategy, **RICH},
            {"out": f"{out}/{strategy}-one", "strategy": strategy, "stop": STOP, **RICH},
            {"out": f"{out}/{strategy}-{other}", "strategy": strategy, "stop": STOP, **RICH},
            {"out": f"{out}/{strategy}-{other}", "strategy": other, **RICH},
        ]
    (out / "told").write_text(launch([*jobs, {"complaint": COMPLAINT}]))
    for architecture in ARCHITECTURES:
        run(out / "alone" / architecture, architecture, steps=steps_of(architecture))
    run(out / "rich", **RICH)


def assert_same_curve(path: Path, expected: Path, steps: int = STEPS) -> None:
    assert [line["step"] for line in lines(path)] == list(range(1, steps + 1))
    torch.testing.assert_close(losses(path), losses(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_two_processes_learn_what_one_learns(runs: Path, architecture: str, strategy: str) -> None:
    assert_same_curve(runs / strategy / architecture, runs / "alone" / architecture, steps_of(architecture))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_parts_clipping_and_averages(runs: Path, strategy: str) -> None:
    path, alone = runs / f"rich-{strategy}", runs / "rich"
    assert_same_curve(path, alone)
    result, expected = (json.loads((p / "result.json").read_text()) for p in (path, alone))
    # What is evaluated and stored is the average of the weights, whole.
    assert result["test"]["loss"] == pytest.approx(expected["test"]["loss"], abs=1e-4)
    weights, known = (load_file(p / "model.safetensors") for p in (path, alone))
    assert {name: w.shape for name, w in weights.items()} == {name: w.shape for name, w in known.items()}
    torch.testing.assert_close(weights["head.weight"], known["head.weight"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("way", ["one-ddp", "one-fsdp2", "ddp-fsdp2", "fsdp2-ddp", "ddp-one", "fsdp2-one"])
def test_a_run_moves_between_worlds(runs: Path, way: str) -> None:
    if way.endswith("-one"):
        state = next((runs / way / "checkpoint").glob("step-*"))
        shards = ["00000.safetensors", "00001.safetensors"] if way.startswith("fsdp2") else []
        assert sorted(path.name for path in state.glob("shards/*")) == shards  # and nothing pickled
        assert not (runs / way / "result.json").exists()
        run(runs / way, **RICH)
    assert_same_curve(runs / way, runs / "rich")
    result, expected = (json.loads((p / "result.json").read_text()) for p in (runs / way, runs / "rich"))
    assert result["steps"] == STEPS
    assert result["test"]["loss"] == pytest.approx(expected["test"]["loss"], abs=1e-4)
    assert not (runs / way / "checkpoint").exists()


def test_every_label_counts_once() -> None:
    labels = torch.tensor([[1, -100, -100], [2, 3, 4], [5, 6, -100]])
    parts = divide({"input_ids": labels, "labels": labels}, 2, OdeumModel.counted)
    assert [share for _, share in parts] == pytest.approx([1 / 6, 5 / 6])
    # A process without a row computes along and counts for nothing.
    (whole,) = divide({"labels": labels}, 1, OdeumModel.counted)
    assert whole[0]["labels"] is labels and whole[1] == 1.0
    assert divide({"labels": torch.full((2, 3), -100)}, 1, OdeumModel.counted)[0][1] == 0.0
    parts = divide({"labels": torch.tensor([7, 8])}, 4, OdeumModel.counted)
    assert sum(share for _, share in parts) == 1
    assert [len(piece["labels"]) for piece, _ in parts] == [1, 1, 1, 1]
    assert [share for _, share in parts] == [0.0, 0.5, 0.0, 0.5]


class Launched:
    """torchrun in the background, its words in a file."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        self.file = log.open("w")
        self.process = subprocess.Popen(torchrun("-m", "odeum", *words), stderr=self.file, stdout=self.file)

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        self.file.close()

    def text(self) -> str:
        return self.log.read_text()

    def until(self, condition: Any, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.05)

    def workers(self) -> list[int]:
        """Process ids, in the order of their ranks."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
                if int(parent) == self.process.pid:
                    words = dict(w.split("=", 1) for w in (path / "environ").read_text().split("\0") if "=" in w)
                    found[int(words["RANK"])] = int(path.name)
            except (OSError, KeyError):
                continue
        return [found[rank] for rank in sorted(found)]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes through /proc")
@pytest.mark.parametrize("strategy", [pytest.param("ddp"), pytest.param("fsdp2", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_killed_process_ends_all_and_the_command_continues(tmp_path: Path, strategy: str) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    words = [*WORDS, "--train.steps", "200", "--train.checkpoint_every", "5", "--out", str(out)]
    words += ["--train.strategy", strategy]
    with Launched(log, *words) as both:
        both.until(lambda: list(out.glob("checkpoint/step-*/state.json")))
        begin = time.monotonic()
        os.kill(both.workers()[1], signal.SIGKILL)
        assert both.process.wait(60) != 0
        assert time.monotonic() - begin < 60
        sentence = "odeum: another process of this run has ended or does not answer; the same command continues"
        assert both.text().count(sentence) == 1
    with Launched(log, *words) as both:
        both.until(lambda: "continues at step" in both.text())
        before = max(line["step"] for line in lines(out))
        both.until(lambda: max(line["step"] for line in lines(out)) > before)
        both.process.send_signal(signal.SIGTERM)
        assert both.process.wait(60) != 0
        assert both.text().count("odeum: stopped at step") == 1
        stopped = int(both.text().split("stopped at step ")[1].split(";")[0])
    assert states(out)[-1] == stopped and len(states(out)) == 2
    # One process ends what two began.
    done = subprocess.run([sys.executable, "-m", "odeum", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"continues at step {stopped}" in done.stderr
    assert [line["step"] for line in lines(out)] == list(range(1, 201))


def test_what_both_have_to_say_is_said_once(runs: Path) -> None:
    assert (runs / "told").read_text().count(f"odeum: {COMPLAINT}") == 1


@pytest.mark.slow
def test_a_mistake_is_said_once(tmp_path: Path) -> None:
    words = [*WORDS, "--architecture", "rk5", "--out", str(tmp_path)]
    done = subprocess.run(torchrun("-m", "odeum", *words), capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert done.stderr.count("odeum: ") == 1
    assert 'File "' + str(Path(__file__).parents[3] / "odeum") not in done.stderr  # none of ours in a traceback


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["translation", "language"])
def test_other_tasks(tmp_path: Path, kind: str) -> None:
    """Sharded, with an encoder's memory, tied embeddings and decoding in the evaluation."""
    random = torch.Generator().manual_seed(0)
    words = "red green blue cat dog house tree big small runs sees".split()  # noqa: SIM905
    texts = {
        " ".join(words[i] for i in torch.randint(len(words), (int(n),), generator=random))
        for n in torch.randint(3, 12, (1500,), generator=random)
    }
    if kind == "translation":
        data, architecture = tmp_path / "pairs.tsv", "transevolve"
        data.write_text("".join(f"{text}\t{text[::-1]}\n" for text in sorted(texts)))
    else:
        data, architecture = tmp_path / "corpus.txt", "macaron"
        data.write_text("".join(f"{text}.\n" for text in sorted(texts)))
    command = ["-m", "odeum", "train", str(data), "--architecture", architecture, "--model.dropout", "0"]
    command += ["--model.depth", "2", "--model.width", "32", "--train.steps", "10", "--train.strategy", "fsdp2"]
    for start in ([sys.executable], torchrun()):
        out = ["--out", str(tmp_path / str(len(start)))]
        done = subprocess.run([*start, *command, *out], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
    one, two = tmp_path / "1", tmp_path / str(len(torchrun()))
    assert losses(two) == pytest.approx(losses(one), abs=1e-5)
    known, result = (json.loads((path / "result.json").read_text())["test"] for path in (one, two))
    assert result == pytest.approx(known, rel=1e-4)


@pytest.mark.slow
def test_elastic_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    monkeypatch.setenv("PET_MAX_RESTARTS", "1")  # what torchrun reads instead of --max-restarts
    out = tmp_path / "run"
    words = [*WORDS, "--train.steps", "200", "--train.checkpoint_every", "5", "--out", str(out)]
    with Launched(tmp_path / "log", *words) as both:
        both.until(lambda: list(out.glob("checkpoint/step-*/state.json")))
        os.kill(both.workers()[0], signal.SIGKILL)
        assert both.process.wait(120) == 0, both.text()
        assert "continues at step" in both.text()
    assert [line["step"] for line in lines(out)] == list(range(1, 201))


FREEZES = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from odeum.lab.train.distributed import parallel
place, write = sys.argv[2], parallel.Replicated.write
def frozen(self, directory, tensors):
    if self.rank == 1 and self.place == "before":
        os.kill(os.getpid(), signal.SIGSTOP)
    write(self, directory, tensors)
    if self.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
parallel.Replicated.write, parallel.Replicated.place = frozen, place
from odeum.errors import OdeumError
from odeum.lab.train.distributed.ranks import exit_code, print_error
from small_runs import run
try:
    run(sys.argv[1], steps=6, checkpoint_every=2)
except OdeumError as error:
    print_error(error)
    exit_code(2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_process_that_stops_around_a_save_is_given_up_in_time(tmp_path: Path, place: str) -> None:
    """A paused process, or a machine that hangs: the others say so in 25 seconds; torchrun kills it after 30 more."""
    script = tmp_path / "freezes.py"
    script.write_text(FREEZES.format(tests=str(Path(__file__).parents[2])))
    begin = time.monotonic()
    words = torchrun(str(script), str(tmp_path / "run"), place)
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0 and time.monotonic() - begin < 120
    assert "odeum: process 1 of this run has given no sign of life for 25 seconds" in done.stderr
