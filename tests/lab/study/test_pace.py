"""The pace of architectures: measured in turns, beside the baseline, in the memory that there is."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import job

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.study import measuring
from odeum.lab.study.design import recorded_paces
from odeum.lab.study.measuring import measure
from odeum.lab.study.pace import Pace, read_paces
from odeum.lab.train.distributed.world import join
from odeum.lab.train.job import facts_of
from odeum.storage import write_json


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


@pytest.mark.skipif(sys.platform != "linux", reason="the peak memory of a process is only reset on Linux")
def test_memory_depends_on_the_row_and_not_on_the_rows_before_it(tmp_path: Path) -> None:
    """Memory that an earlier row has freed hides nothing of a later one's: the same row costs the same again."""
    few = replace(job(tmp_path / "few", "sequential"), threads=1)
    many = replace(few, training=replace(few.training, batch_size=512))
    paces = measure({"many": many, "few": few, "again": many}, "many", join(few.training), lambda steps: 0.0)
    memory = {name: pace.memory / 2**20 for name, pace in paces.items()}
    assert memory["many"] > memory["few"] + 20
    assert memory["again"] == pytest.approx(memory["many"], abs=10), memory


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
    assert slow.ratio_to(base).middle == 2.5 and slow.ratio_to(base).differs(0.1)
    assert not tie.ratio_to(base).differs(0.1) and tie.ratio_to(base).middle == 1.0
    assert slow.ratio_to(tie) == replace(slow.ratio_to(tie), middle=2.5, low=2.0 / 1.2, high=3.0 / 0.9)
    near = Pace(4.6, 2.3, 1.9, 2.8)
    assert near.ratio_to(slow).middle == 1.0, "their ranges overlap"
    assert slow.steps_in(11.0) == 2 and slow.steps_in(1.0) == 1


@pytest.mark.parametrize("damage", ["[]", "7", '{"a": 3}', '{"a": {"seconds": -1, "ratio": 1, "low": 1, "high": 1}}'])
def test_a_damaged_pace_is_none(damage: str) -> None:
    assert read_paces(json.loads(damage)) == {}
    whole = {"b": Pace(2.0, 1.0, 1.0, 1.0, 5)}
    assert read_paces({name: pace.record() for name, pace in whole.items()}) == whole


def test_a_ratio_lies_in_its_own_range_whatever_both_were_measured_beside() -> None:
    slow, fast = Pace(3.06, 1.77, 1.70, 1.83), Pace(2.0, 1.0, 1.0, 1.0)  # of two sessions: 1.77 × 1.73 s, and 2 s
    found = slow.ratio_to(fast)
    assert found.low <= found.middle <= found.high and found.middle == pytest.approx(1.53)
    later = Pace(9.0, 2.0, 1.9, 2.2).relative_to(Pace(5.0, 2.5, 2.0, 3.0))
    assert (later.seconds, later.ratio, later.low, later.high) == pytest.approx((10.0, 5.0, 3.8, 6.6))


def test_step_times_of_another_comparison_give_its_step_counts_and_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal cost by default: rk4 gets fewer steps, a warm-up in steps shrinks with them, and both can be repeated."""
    tiny = "--model.width 16 --model.heads 2 --model.depth 1 --train.steps 12 --train.warmup 6 --seeds 1 --jobs 1"
    words = ["compare", "digits", *tiny.split(), "--architectures", "sequential,rk4", "--quiet"]
    again = [*words, "--step-times", str(tmp_path / "a")]
    assert main([*words, "--out", str(tmp_path / "a")]) == main([*again, "--out", str(tmp_path / "b")]) == 0
    plan = json.loads((tmp_path / "a" / "comparison.json").read_text())
    assert plan["match"] == "time" and recorded_paces(tmp_path / "a") == recorded_paces(tmp_path / "b")
    for out in ("a", "b"):
        runs = [json.loads((tmp_path / out / row / "seed-0" / "run.json").read_text()) for row in ("sequential", "rk4")]
        base, dear = (run["training"] for run in runs)
        cost = 1 / plan["pace"]["rk4"]["ratio"]
        assert (base["steps"], base["warmup"]) == (12, 6) and dear["steps"] == round(12 * cost) < 8
        assert dear["warmup"] == pytest.approx(6 * cost)
    a, b = (json.loads((tmp_path / out / "rk4/seed-0/result.json").read_text())["test"] for out in ("a", "b"))
    assert a == b
    capsys.readouterr()
    changed = {name: {**pace, "seconds": 2 * pace["seconds"]} for name, pace in plan["pace"].items()}
    (tmp_path / "c").mkdir()
    write_json(tmp_path / "c" / "comparison.json", {**plan, "pace": changed})
    assert main([*words, "--step-times", str(tmp_path / "c"), "--out", str(tmp_path / "a")]) == 2
    assert "with other step times for" in capsys.readouterr().err
    assert main([*words, "--match", "steps", "--out", str(tmp_path / "a")]) == 2
    assert "add --match time to continue it" in capsys.readouterr().err
    with pytest.raises(OdeumError, match="holds no comparison with measured step times"):
        recorded_paces(tmp_path)
