"""What kept runs say about the papers' claims."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from test_recipes import keep, small_table

from odeum.lab.study.judge import Claim, CostClaim
from odeum.lab.study.pace import Pace
from odeum.lab.study.runs import Store
from odeum.lab.study.tables import paper_table
from odeum.storage import sealed_line


def test_verdicts_of_claims(tmp_path: Path) -> None:
    table = small_table()
    cases = {
        "agrees": [0.90, 0.91, 0.905],
        "disagrees": [0.60, 0.61, 0.605],
        "practically equal": [0.8001, 0.8121, 0.8012],
        "not resolved": [0.80, 0.84, 0.81],
    }
    for opinion, values in cases.items():
        store = Store(tmp_path / opinion)
        keep(store, table, "first", values)
        keep(store, table, "second", [0.80, 0.812, 0.801])
        (found,) = table.findings("laptop", store).claims
        assert found.opinion == opinion
        assert (found.more is not None) == (opinion == "not resolved")
    (empty,) = table.findings("laptop", Store(tmp_path / "none")).claims
    assert empty.opinion == "not run" and empty.difference is None


def test_two_seeds_decide_nothing(tmp_path: Path) -> None:
    store, table = Store(tmp_path), small_table()
    keep(store, table, "first", [0.9, 0.9001])
    keep(store, table, "second", [0.1, 0.1002])
    (found,) = table.findings("laptop", store).claims
    assert found.opinion == "not resolved" and found.more == 1


def test_seeds_beyond_a_look_wait_for_the_next(tmp_path: Path) -> None:
    store, table = Store(tmp_path), small_table()
    keep(store, table, "first", [0.70, 0.95, 0.80, 0.99, 0.99])
    keep(store, table, "second", [0.80, 0.812, 0.801, 0.1, 0.1])
    (found,) = table.findings("laptop", store).claims
    assert found.difference is not None and found.difference.n == 3


def test_comparable_is_judged_against_the_margin(tmp_path: Path) -> None:
    table = small_table(claims=(Claim("as good", "first", "second", "comparable"),))
    for opinion, shift in (("agrees", -0.001), ("disagrees", -0.1), ("not resolved", -0.0101)):
        store = Store(tmp_path / opinion)
        keep(store, table, "second", [0.80, 0.812, 0.801])
        keep(store, table, "first", [0.80 + shift, 0.8121 + shift, 0.8011 + shift])
        (found,) = table.findings("laptop", store).claims
        assert found.opinion == opinion, found


def test_claims_without_runs_keep_their_share_of_the_error(tmp_path: Path) -> None:
    """The interval of a claim is the same before and after the other rows of its table ran."""
    claims = (Claim("first", "first", "second"), Claim("third", "third", "second"))
    table = small_table(claims=claims)
    store = Store(tmp_path)
    keep(store, table, "first", [0.90, 0.91, 0.905])
    keep(store, table, "second", [0.80, 0.812, 0.801])
    before = table.findings("laptop", store).claims[0].difference
    alone = small_table().findings("laptop", store).claims[0].difference
    keep(store, table, "third", [0.90, 0.91, 0.905])
    after = table.findings("laptop", store).claims[0].difference
    assert before and after and alone and before.level == after.level > alone.level


def test_claims_about_costs(tmp_path: Path) -> None:
    size, speed = (CostClaim("less", "first", "second", what, 0.5) for what in ("parameters", "step"))
    table, store = small_table(costs=(size, speed)), Store(tmp_path)
    assert [found.opinion for found in table.findings("laptop", store).costs] == ["not run", "not run"]
    keep(store, table, "first", [0.9])
    keep(store, table, "second", [0.8])
    first, second = (table.spec(table.row(name), "laptop").key for name in ("first", "second"))
    for low, high, opinion in ((0.3, 0.4, "agrees"), (0.4, 0.6, "not resolved"), (0.6, 0.9, "disagrees")):
        middle = (low + high) / 2
        paces = {first: Pace(0.2 * middle, middle, low, high), second: Pace(0.2, 1.0, 1.0, 1.0)}
        store.keep_paces(paces, {"date": f"2026-{opinion}", "rows": ["second", "first"], "versions": {}})
        found = table.findings("laptop", store)
        assert [each.opinion for each in found.costs] == ["disagrees", opinion]  # as many parameters, so not half
        assert opinion in paper_table(found)
        (store.directory / "pace.jsonl").unlink()


def test_a_diverged_run_is_a_result(tmp_path: Path) -> None:
    store, table = Store(tmp_path), small_table()
    keep(store, table, "first", [0.9, math.nan, 0.9])
    keep(store, table, "second", [0.1, 0.1, 0.1])
    result = table.findings("laptop", store)
    assert result.claims[0].opinion == "not resolved" and result.row("first").diverged == (1,)
    assert "1 diverged" in paper_table(result)


def test_what_is_kept_names_no_place_and_damage_is_left_out(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    store, table = Store(tmp_path), small_table()
    keep(store, table, "first", [0.9, 0.8, 0.7])
    recipe = table.spec(table.row("first"), "laptop")
    assert store.lines(recipe)[0]["facts"]["command"] == "odeum table x --seeds 3"
    first, second, third = store.path(recipe).read_bytes().splitlines(keepends=True)
    other = json.loads(second)
    other["identity"]["data"] = "cifar100"
    other.pop("checksum")
    store.path(recipe).write_bytes(first[:50] + b"\n" + sealed_line(other) + third + third[:40])
    assert list(store.lines(recipe)) == [2]
    told = " ".join(str(warning.message) for warning in recwarn)
    assert f"{store.path(recipe)}:2' was trained with another recipe" in told
    assert all(f"{store.path(recipe)}:{line}' is damaged" in told for line in (1, 4))
    shutil.rmtree(tmp_path / "runs")
    keep(store, table, "first", [0.9, 0.8, 0.7])  # after a torn last line
    assert list(store.lines(recipe)) == [0, 1, 2]
