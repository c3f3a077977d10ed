"""A schedule that changes during training: resumed to the bit, recorded, counted and measured as the mean."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import digits, job, lines, losses, run
from test_training import assert_same_end

import odeum
from odeum.errors import OdeumError
from odeum.lab.study.measuring import measure
from odeum.lab.train.distributed.world import join
from odeum.lab.train.job import facts_of, macs_per_step
from odeum.looping import Looped, phases

LATE = "late-looping:late=0.5"
RICH = {"dropout": 0.2, "ema": 0.9, "steps": 20, "checkpoint_every": 4}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    run(out, LATE, **RICH)
    return out


def loop(model: torch.nn.Module) -> Looped:
    (found,) = (part for part in model.modules() if isinstance(part, Looped))
    return found


def test_it_ends_alike_whenever_it_is_interrupted(tmp_path: Path, whole: Path) -> None:
    for step in (3, 9, 12):  # each saves one step later; the first step that repeats is the eleventh
        assert run(tmp_path, LATE, stop=step, by=signal.SIGINT, **RICH) == {}
    run(tmp_path, LATE, **RICH)
    assert_same_end(tmp_path, whole)
    assert [line["repeats"] for line in lines(tmp_path)] == [line["repeats"] for line in lines(whole)]


def test_it_is_the_plain_stack_until_then_and_the_record_says_so(tmp_path: Path, whole: Path) -> None:
    run(tmp_path, "sequential", **RICH)
    plain, late = losses(tmp_path), losses(whole)
    assert late[:10] == plain[:10] and late[10] != plain[10]
    assert [line["repeats"] for line in lines(whole)] == [1] * 10 + [2] * 10
    record, result = (json.loads((whole / name).read_text()) for name in ("run.json", "result.json"))
    assert "in training once until 0.5 of its length" in record["loop"][0]
    both = json.loads((tmp_path / "run.json").read_text())["macs"], record["macs"]
    assert record["macs_in_training"] == sum(both) // 2
    assert result["macs"] == 20 * macs_per_step(job(whole, LATE), record)


def test_a_loaded_model_repeats_and_gives_what_the_run_ended_with(whole: Path) -> None:
    loaded = odeum.load(whole)
    assert loop(loaded.model).schedule == (0, 1, 0, 1)
    assert digits().evaluate(loaded.model, "valid") == json.loads((whole / "result.json").read_text())["valid"]


def test_a_loop_of_ones_own_sets_the_progress() -> None:
    model = odeum.Encoder(width=8, heads=2, depth=5, hidden=16, architecture="late-looping:core=3")
    schedules = []
    for progress in (0.0, 0.34, 0.35, 1.0):
        odeum.set_progress(model, progress)
        schedules.append(loop(model).schedule)
    once, twice = (0, 1, 2, 3, 4), (0, 1, 2, 3, 1, 2, 3, 4)
    assert schedules == [once, once, twice, twice]
    assert phases(model) == [(0.0, 0.35), (0.35, 0.65)]


def test_equal_cost_is_that_of_both_phases(tmp_path: Path) -> None:
    names = ("sequential", "looped:repeats=6,inject=none", "looped:repeats=6,inject=none,late=0.5")
    jobs = {name: replace(job(tmp_path, name), threads=1) for name in names}
    plain, always, late = (facts_of(jobs[name]) for name in names)
    assert 2 * late["macs_in_training"] == plain["macs"] + always["macs"] and late["macs"] == always["macs"]
    paces = measure(jobs, "sequential", join(jobs[names[0]].training), lambda steps: 60.0)
    assert paces[names[2]].ratio == pytest.approx((1 + paces[names[1]].ratio) / 2, rel=0.3)


def test_training_that_may_end_before_the_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OdeumError, match="patience 2 may end training before the core of late-looping"):
        run(tmp_path, LATE, patience=2)
    assert not (tmp_path / "run.json").exists()
