"""Several comparisons in one report: a table each, and an order over all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_runs import write_plan, write_run

from odeum.lab.cli import main
from odeum.lab.study.statistics import mean_ranks


def test_ties_share_a_rank_and_only_shared_rows_count() -> None:
    tables = [{"a": 0.9, "b": 0.9, "c": 0.5}, {"a": 30.0, "b": 20.0, "d": 1.0, "c": 40.0}]
    assert mean_ranks(tables, [True, False]) == {"b": 1.25, "a": 1.75, "c": 3.0}
    assert mean_ranks([{"a": 1.0}, {"b": 1.0}], [True, True]) == {}


def test_two_comparisons_are_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        write_plan(tmp_path / place, ["sequential", "parallel"])
        for name, score in (("sequential", 0.8), ("parallel", 0.9)):
            write_run(tmp_path / place, name, 0, score)
    words = ["report", str(tmp_path / "one"), str(tmp_path / "two")]
    assert main(words) == 0
    shown, told = capsys.readouterr()
    assert "1.00  parallel\n  2.00  sequential" in shown and shown.count("architecture") >= 2
    page = tmp_path / "overview.html"
    assert f"all of them on one page: {page}" in told
    text = page.read_text()
    assert 'href="one/report.html"' in text and 'href="two/report.html"' in text
    assert "<strong>parallel</strong> has the best mean rank" in text and text.count('<table class="results">') == 2
    assert main([*words, "--format", "csv"]) == 2
    assert main([*words[:2], "--out", "page.html"]) == 2
    assert "--out is the page of several comparisons" in capsys.readouterr().err


@pytest.mark.usefixtures("without_plots")
def test_a_folder_may_be_named_and_one_architecture_is_no_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, other in (("one", "rk4"), ("two", "macaron")):
        for name in ("sequential", other):
            write_run(tmp_path / place, name, 0, 0.9)
    words = ["report", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(tmp_path / "all")]
    assert main(words) == 0
    assert "no two architectures are in all 2 comparisons" in capsys.readouterr().out
    assert "there is no order over all of them" in (tmp_path / "all" / "overview.html").read_text()
