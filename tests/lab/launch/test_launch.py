"""Runs side by side: the same bits as one after the other, and no run is lost with its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odeum.architectures.layered import Layered
from odeum.errors import OdeumError
from odeum.lab.launch.cluster import progress_of
from odeum.lab.launch.inline import Inline
from odeum.lab.launch.launcher import launcher
from odeum.lab.launch.local import Local
from odeum.lab.launch.worker import Event
from odeum.lab.tasks import open_task
from odeum.lab.train.job import Job
from odeum.lab.train.run import with_changes
from odeum.lab.train.spec import RunSpec
from odeum.registry.spelling import parse


@pytest.fixture(scope="module")
def digits() -> Any:
    return open_task("digits")


def jobs(task: Any, folder: Path, steps: int) -> list[Job]:
    training = with_changes(task.training(), {"steps": steps, "checkpoint_every": 5})
    model = with_changes(task.model(), {"width": 16, "heads": 2, "depth": 1})
    return [
        Job.on(task, model, parse(name), training, seed, folder / name / f"seed-{seed}", threads=1)
        for seed in range(2)
        for name in ("sequential", "parallel")
    ]


def scores_of(events: list[Event]) -> list[Any]:
    assert [event.kind for event in events] == ["done"] * len(events)
    return [event.content["test"] for event in events]


def ignore(number: int, event: Event) -> None:
    pass


def test_a_spec_is_json_and_says_the_same_job(digits: Any, tmp_path: Path) -> None:
    spec = replace(jobs(digits, tmp_path, 3)[1], command="odeum compare", begin_from=tmp_path, facts={"macs": 1}).spec()
    again = RunSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert again.facts == spec.facts


@pytest.mark.slow
def test_two_processes_give_the_bits_of_one_and_die_with_nothing_lost(digits: Any, tmp_path: Path) -> None:
    with Inline() as one:
        expected = scores_of(one.run(jobs(digits, tmp_path / "one", 40), ignore))
    killed: list[int] = []

    with Local(2) as two:

        def kill_once(number: int, event: Event) -> None:
            if event.kind == "progress" and event.content["step"] > 10 and not killed:
                worker = next(w for w in two.workers if w.run == number)
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)

        events = two.run(jobs(digits, tmp_path / "two", 40), kill_once)
        pids = {worker.process.pid for worker in two.workers}
        assert killed and killed[0] not in pids
        assert scores_of(events) == expected
        # The same processes take the next runs, and find those that are done.
        assert scores_of(two.run(jobs(digits, tmp_path / "two", 40), ignore)) == expected
        assert {worker.process.pid for worker in two.workers} == pids
    assert not any(worker.process.is_alive() for worker in two.workers)


@pytest.mark.parametrize("make", [Inline, pytest.param(lambda: Local(1), marks=pytest.mark.slow)])
def test_a_run_that_cannot_be_does_not_stop_the_others(digits: Any, tmp_path: Path, make: Any) -> None:
    first, second, *_ = jobs(digits, tmp_path, 2)
    wrong = replace(first, architecture=Layered(independent=7), directory=tmp_path / "wrong")
    with make() as one:
        events = one.run([wrong, second], ignore)
    assert [event.kind for event in events] == ["failed", "done"]
    assert "does not divide" in events[0].content["sentence"]


def test_words_that_name_no_launcher_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(OdeumError, match="--jobs must be auto or a positive number"):
        launcher(None, "0", 1, tmp_path)
    with pytest.raises(OdeumError, match=r"unknown launcher 'rya'.*did you mean 'ray'"):
        launcher("rya", "auto", 1, tmp_path)


@pytest.mark.slow
def test_ray_gives_the_same_and_survives_a_killed_worker(digits: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    with Inline() as one:
        expected = scores_of(one.run(jobs(digits, tmp_path / "one", 400), ignore))
    killed: set[str] = set()

    def kill_once(what: str, number: int, event: Event) -> None:
        if event.kind == "progress" and what not in killed:
            run = json.loads((wanted[number].directory / "run.json").read_text())
            assert run["threads"] == 1
            for process in psutil.Process().children(recursive=True):  # not those of another Ray
                if what in " ".join(process.cmdline()):
                    killed.add(what)
                    process.kill()
                    break

    wanted = jobs(digits, tmp_path / "ray", 400)
    with (
        launcher("ray", "2", 1, tmp_path) as cluster,
        pytest.raises(OdeumError, match="the Ray process on this machine has ended; the same command continues"),
    ):
        cluster.run(wanted, partial(kill_once, "raylet/raylet"))
    with launcher("ray", "2", 1, tmp_path) as cluster:
        assert scores_of(cluster.run(wanted, partial(kill_once, "ray::execute"))) == expected
    assert len(killed) == 2


@pytest.mark.slow
def test_a_ray_of_this_machine_listens_on_loopback_alone(tmp_path: Path) -> None:
    """Who reaches a port of Ray may run code. In a process of its own: Ray reads the setting when it is imported."""
    pytest.importorskip("ray")
    pytest.importorskip("psutil")
    code = (
        "import sys; from pathlib import Path; from odeum.lab.launch.launcher import launcher\n"
        "with launcher('ray', '1', 1, Path(sys.argv[1])) as cluster:\n"
        "    import psutil\n"
        "    mine = psutil.Process()\n"
        "    for process in (mine, *mine.children(recursive=True)):\n"
        "        for c in process.net_connections('inet'):\n"
        "            if c.status == psutil.CONN_LISTEN: print('listens', c.laddr.ip)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=200)
    places = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("listens")}
    assert places and places <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, done.stdout + done.stderr


@pytest.mark.slow
def test_submitit_gives_the_same(digits: Any, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    with Inline() as one:
        expected = scores_of(one.run(jobs(digits, tmp_path / "one", 10), ignore))
    (tmp_path / ".slurm").mkdir(mode=0o777)
    with launcher("slurm:local", "2", 1, tmp_path) as cluster:
        assert (tmp_path / ".slurm").stat().st_mode & 0o777 == 0o700  # pickles are exchanged there
        assert scores_of(cluster.run(jobs(digits, tmp_path / "slurm", 10), ignore)) == expected


@pytest.mark.parametrize(
    ("end", "fraction"),
    [({"steps": 40}, 0.5), ({"budget": "10s"}, 0.3), ({"macs": 4e9}, 0.25), ({}, 0.1)],
)
def test_how_far_a_run_elsewhere_is_is_read_from_its_folder(
    digits: Any, tmp_path: Path, end: dict[str, Any], fraction: float
) -> None:
    job = jobs(digits, tmp_path, 40)[0]
    spec = replace(job, training=replace(job.training, **{"steps": None, "epochs": 20.0, **end}))
    assert list(progress_of(spec)) == []
    job.directory.mkdir(parents=True)
    line = {"split": "train", "step": 20, "epoch": 2.0, "seconds": 3.0, "macs": 1e9}
    (job.directory / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (event,) = progress_of(spec)
    assert event.kind == "progress" and event.content["fraction"] == pytest.approx(fraction)
    (job.directory / "metrics.jsonl").write_text("[1, 2]\n")
    assert list(progress_of(spec)) == []


def test_a_ray_that_cannot_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sockets lie in a folder whose path may be too long for them: no ConnectionError, and no bug of ours."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("long" * 40)))
    with pytest.raises(OdeumError, match="Ray could not be started here: "):
        launcher("ray", "2", 1, tmp_path).__enter__()
