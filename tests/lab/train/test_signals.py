"""Signals: what is half written is removed, what is saved is continued, and Slurm starts a job again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_runs import Stopping, job, run, states

from odeum.lab.cli import main
from odeum.lab.commands import answers
from odeum.lab.train import origin
from odeum.lab.train.interrupt import Interrupted, graceful_stop, requeue
from odeum.lab.train.run import train
from odeum.storage import atomic_write, new_directory, remove_abandoned_parts

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("done") / "run"
    run(out, steps=2)
    return out


def send(number: int) -> Any:
    def sends(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), number)

    return sends


@pytest.mark.parametrize("number", ENDING)
def test_converting_leaves_nothing_behind(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The signal comes when half of the new run is there."""
    words = ["convert", str(done), "--architecture", "parallel", "--out", str(tmp_path / "new")]
    with monkeypatch.context() as patch:
        patch.setattr(origin, "save_model", send(number))
        assert main(words) == 128 + number
    assert f"stopped by {signal.Signals(number).name}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(words) == 0 and (tmp_path / "new" / "run.json").exists()
    assert signal.getsignal(number) == signal.SIG_DFL


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_answers_are_whole_or_absent(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    from PIL import Image

    Image.new("L", (8, 8), 90).save(tmp_path / "a.png")
    out = tmp_path / f"answers.{ending}"
    words = ["predict", str(done), *[str(tmp_path / "a.png")] * 3, "--out", str(out)]
    with monkeypatch.context() as patch:
        counted = iter(range(10))
        kind = answers.LineFile if ending == "jsonl" else answers.RowFile
        add = kind.add

        def stopped(self: Any, *answer: Any) -> None:
            add(self, *answer)
            if next(counted) == 1:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(kind, "add", stopped)
        assert main(words) == 143
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert main(words) == 0
    assert len(out.read_text().splitlines()) == (3 if ending == "jsonl" else 4)


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys, signal; from pathlib import Path; from odeum.storage import new_directory, atomic_write\n"
        "with new_directory(Path(sys.argv[1])) as part, atomic_write(Path(sys.argv[2])) as file:\n"
        "    file.write(b'half'); (part / 'half').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "new"), str(tmp_path / "file")], check=False)
    assert len(list(tmp_path.glob(".*.part"))) == 2
    (tmp_path / ".notes.part").write_text("somebody else's")
    with atomic_write(tmp_path / "other") as file:  # of this process, which lives
        file.write(b"x")
        remove_abandoned_parts(tmp_path)
    with new_directory(tmp_path / "new"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".notes.part", "new", "other"]


@pytest.mark.parametrize("number", ENDING)
def test_a_training_saves_first(tmp_path: Path, number: int) -> None:
    with pytest.raises(Interrupted) as stop:
        train(job(tmp_path, steps=9), Stopping(3, number))
    assert stop.value.code == 128 + number and states(tmp_path)


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with graceful_stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_launcher_that_listens_gets_its_signal_after_the_state_is_saved(tmp_path: Path) -> None:
    """As submitit, which hands the job back to Slurm by SIGUSR2."""
    seen: list[list[int]] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(states(tmp_path)))
    try:
        with pytest.raises(Interrupted):
            train(job(tmp_path, steps=9), Stopping(3, signal.SIGUSR2))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert seen and seen[0]


@pytest.mark.parametrize(
    ("about", "code", "again"),
    [
        ("JobState=RUNNING Requeue=1", 128 + signal.SIGUSR1, True),
        ("JobState=RUNNING Requeue=1", 143, True),
        ("JobState=CANCELLED Requeue=1", 143, False),  # scancel sends SIGTERM too
        ("JobState=RUNNING Requeue=0", 143, False),
        ("JobState=RUNNING Requeue=1", 130, False),
        ("JobState=RUNNING Requeue=1", 0, False),
    ],
)
def test_slurm_starts_a_job_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, about: str, code: int, again: bool
) -> None:
    """A script stands for Slurm's scontrol, which is not here."""
    calls = tmp_path / "calls"
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho "JobId=7 {about} Restarts=0"\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert not requeue(code)  # no job of Slurm
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert requeue(code) == again
    assert ("requeue 7" in (calls.read_text() if calls.exists() else "")) == again


def test_a_requeued_training_goes_on(tmp_path: Path) -> None:
    """The whole way: a signal as Slurm sends it, the state, the request, the same command."""
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho "JobState=RUNNING Requeue=1"\n')
    (tmp_path / "scontrol").chmod(0o755)
    sizes = ["--model.width=16", "--model.heads=2", "--model.depth=1", "--train.batch_size=32"]
    words = [sys.executable, "-m", "odeum", "train", "digits", *sizes, "--train.steps=300", "--out", f"{tmp_path}/run"]
    slurm = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env=slurm, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 100
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        text = process.communicate(timeout=100)[1]
    assert process.returncode == 128 + signal.SIGUSR1 and "Slurm will start this job again" in text, text
    assert "requeue 7" in (tmp_path / "calls").read_text() and states(tmp_path / "run")
