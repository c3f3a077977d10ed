"""Default learning rates: the rule, where it applies, and what says so."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from odeum.lab.cli import main
from odeum.lab.tasks import KINDS
from odeum.lab.train.rates import RateRule

ROOT = Path(__file__).parents[3]
TEXT = "".join(f"the {a} {b} of the {c}\n" for a in ("red", "old", "tall") for b in "xyz" for c in range(150))


def test_a_rule_falls_with_the_width_and_is_constant_below_the_widths_that_were_swept() -> None:
    rule = RateRule(0.016, 1.5)
    assert [rule.at(width) for width in (16, 64, 128, 256)] == [0.016, 0.016, 0.0057, 0.002]


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[float, str]:
    """The learning rate of --print_config and the line that says where it comes from."""
    assert main([*words, "--print_config"]) == 0
    text = capsys.readouterr().out
    return yaml.safe_load(text)["train"]["learning_rate"], text.strip().splitlines()[-1]


def test_the_printed_configuration_says_where_the_rate_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.txt").write_text(TEXT)
    rule = KINDS["language"].rates
    assert rule is not None
    for verb in ("train", "compare"):
        words = [verb, str(tmp_path / "own.txt")]
        for width in (64, 256):
            rate, line = printed([*words, "--width", str(width), "--heads", "4"], capsys)
            assert rate == rule.at(width) and line == f"# learning_rate {rate:g}: rule for language: {rule}"
        assert printed([*words, "--lr", "0.5"], capsys) == (0.5, "# learning_rate 0.5: given")
        transferred = ["--width", "256", "--train.parametrization", "completep"]
        assert printed([*words, *transferred], capsys)[0] == rule.at(64)  # the rate is that of the base width
    assert printed(["train", "listops"], capsys)[1].endswith("recipe of listops")


def test_the_run_record_and_the_folder_know_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.txt").write_text(TEXT)
    small = ["--width", "16", "--heads", "2", "--depth", "1", "--hidden", "16", "--data.length", "8", "--steps", "1"]
    assert main(["train", "own.txt", *small]) == 0
    (path,) = Path("runs").rglob("run.json")
    run = json.loads(path.read_text())
    rule = KINDS["language"].rates
    assert rule is not None and run["training"]["learning_rate"] == rule.at(16)
    assert run["learning_rate_from"] == f"rule for language: {rule}"
    assert "learning_rate" not in str(path)


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("verb", ["train", "compare"])
def test_a_run_with_an_earlier_default_says_how_to_continue_it(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.txt").write_text(TEXT)
    words = [verb, "own.txt", "--width", "16", "--heads", "2", "--depth", "1", "--hidden", "16", "--data.length", "8"]
    words += ["--steps", "1"] + (
        ["--seeds", "1", "--jobs", "1", "--architectures", "parallel"] if verb == "compare" else []
    )
    with monkeypatch.context() as patch:
        patch.setattr(RateRule, "at", lambda rule, width: 0.002)
        assert main(words) == 0
    capsys.readouterr()
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "training.learning_rate is 0.016 and was 0.002" in told
    given = re.search(r"--train.learning_rate \S+ --out \S+", told)
    assert given is not None
    assert main([*words, *given[0].split()]) == 0


def test_each_size_of_a_ladder_has_the_rate_of_its_width(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(TEXT)
    words = ["compare", str(tmp_path / "own.txt"), "--architectures", "sequential", "--seeds", "1", "--quiet"]
    words += ["--width", "96", "--heads", "6", "--depth", "3", "--hidden", "16", "--data.length", "8", "--steps", "3"]
    words += ["--sizes", "64x1,80x2,96x3", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert main(words) in (0, None)
    rule = KINDS["language"].rates
    assert rule is not None
    for width, size in ((64, "64x1"), (80, "80x2"), (96, "96x3")):
        (path,) = (tmp_path / "out" / f"size-{size}").rglob("run.json")
        assert json.loads(path.read_text())["training"]["learning_rate"] == rule.at(width)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script of `benchmarks` by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_the_page_holds_the_tables_of_the_results(benchmark: Callable[[str], ModuleType]) -> None:
    page = (ROOT / "docs" / "rates.md").read_text(encoding="utf-8")
    rates, positions = benchmark("rates"), benchmark("positions")
    assert f"<!-- rates -->\n{rates.table(rates.stored())}<!-- /rates -->" in page
    losses = json.loads(positions.RESULT.read_text(encoding="utf-8"))["losses"]
    assert f"<!-- positions -->\n{positions.table(losses)}<!-- /positions -->" in page
    stated = {name: rule for name, kind in KINDS.items() if (rule := kind.rates) is not None}
    for name, rule in stated.items():
        assert f"| {name} | {rule} |" in page


def test_defaults_are_near_the_best_rate_of_held_out_sets(benchmark: Callable[[str], ModuleType]) -> None:
    rates = benchmark("rates")
    runs, sets = rates.stored(), set()
    for case in rates.CASES:
        grid = runs.get(case.name, {})
        if case.fit or case.default is None or rates.missing(case, grid):
            continue
        far = rates.behind(case, grid)
        assert any(far[name] <= rates.NEAR[name] for name in far), case.name
        sets.add((case.kind, case.data))
    assert {kind for kind, _ in sets} == {name for name, kind in KINDS.items() if kind.rates is not None}
