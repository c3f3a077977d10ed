"""The pace of architectures: measured in turns, beside the baseline, in the memory that there is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import job

from odeum.lab.study import measuring
from odeum.lab.study.measuring import measure
from odeum.lab.study.pace import Pace, read_paces
from odeum.lab.train.distributed.world import join
from odeum.lab.train.job import facts_of


def test_four_evaluations_a_step_cost_more_than_one_and_a_copy_is_a_tie(tmp_path: Path) -> None:
    names = {"sequential": "sequential", "again": "sequential", "rk4": "rk4"}
    jobs = {name: replace(job(tmp_path / name, spelled), threads=1) for name, spelled in names.items()}
    found = measure(jobs, "sequential", join(jobs["rk4"].training), lambda steps: 20.0)
    assert found["sequential"].ratio == 1.0 and 2.0 < found["rk4"].ratio < 6.0
    assert found["rk4"].low <= found["rk4"].ratio <= found["rk4"].high
    assert found["rk4"].seconds == pytest.approx(found["sequential"].seconds * found["rk4"].ratio)
    assert 0.8 < found["again"].ratio < 1.25
    assert all(pace.memory > 10**7 for pace in found.values())
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.slow
def test_models_that_do_not_fit_at_once_are_measured_beside_the_baseline_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {name: job(tmp_path / name, name) for name in ("sequential", "parallel", "rk4", "macaron")}
    each = measuring.BYTES_A_PARAMETER * facts_of(jobs["sequential"])["parameters"]
    groups: list[list[str]] = []
    take = measuring._Turns._interleaved

    def seen(turns, names):
        groups.append(list(names))
        return take(turns, names)

    monkeypatch.setattr(measuring._Turns, "_interleaved", seen)
    for models, expected in (
        (8, [["sequential", "parallel", "rk4", "macaron"]]),
        (3, [["sequential", "parallel"], ["sequential", "rk4", "macaron"]]),
        (1, [["sequential"], ["parallel"], ["sequential"], ["rk4"], ["sequential"], ["macaron"]]),
    ):
        groups.clear()
        monkeypatch.setattr(measuring, "available_memory", lambda models=models: 2.1 * models * each)
        assert measure(jobs, "sequential", join(jobs["rk4"].training), lambda steps: 0.0).keys() == jobs.keys()
        assert groups == expected


def test_a_ratio_inside_the_noise_is_a_tie_whatever_it_is_beside() -> None:
    base, tie, slow = Pace(2.0, 1.0, 1.0, 1.0), Pace(2.0, 1.0, 0.9, 1.2), Pace(5.0, 2.5, 2.0, 3.0)
    assert slow.beside(base).middle == 2.5 and slow.beside(base).tells(0.1)
    assert not tie.beside(base).tells(0.1) and tie.beside(base).middle == 1.0
    assert slow.beside(tie) == replace(slow.beside(tie), middle=2.5, low=2.0 / 1.2, high=3.0 / 0.9)
    near = Pace(4.6, 2.3, 1.9, 2.8)
    assert near.beside(slow).middle == 1.0, "their ranges overlap"
    assert slow.steps_in(11.0) == 2 and slow.steps_in(1.0) == 1


@pytest.mark.parametrize("damage", ["[]", "7", '{"a": 3}', '{"a": {"seconds": -1, "ratio": 1, "low": 1, "high": 1}}'])
def test_a_damaged_pace_is_none(damage: str) -> None:
    assert read_paces(json.loads(damage)) == {}
    whole = {"b": Pace(2.0, 1.0, 1.0, 1.0, 5)}
    assert read_paces({name: pace.record() for name, pace in whole.items()}) == whole


def test_a_ratio_lies_in_its_own_range_whatever_both_were_measured_beside() -> None:
    slow, fast = Pace(3.06, 1.77, 1.70, 1.83), Pace(2.0, 1.0, 1.0, 1.0)  # of two sessions: 1.77 × 1.73 s, and 2 s
    found = slow.beside(fast)
    assert found.low <= found.middle <= found.high and found.middle == pytest.approx(1.53)
    later = Pace(9.0, 2.0, 1.9, 2.2).after(Pace(5.0, 2.5, 2.0, 3.0))
    assert (later.seconds, later.ratio, later.low, later.high) == pytest.approx((10.0, 5.0, 3.8, 6.6))
