"""A walk through a whole comparison: strings end at the front door, and nothing is made twice."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import odeum.lab.study
import odeum.lab.study.execute
import odeum.lab.study.findings
import odeum.lab.study.grid
import odeum.lab.study.report
import odeum.lab.study.runs
import odeum.lab.train.distributed.parallel
import odeum.lab.train.loop
from odeum.lab.cli import main
from odeum.models import build
from odeum.models.description import describe
from odeum.registry.spelling import parse


def count_calls(monkeypatch: pytest.MonkeyPatch, counts: Counter[str], function: Callable[..., Any]) -> None:
    """Count the calls of a function from wherever in Odeum it has been imported."""

    def counted(*given: Any, **more: Any) -> Any:
        counts[f"{function.__name__} of {'text' if isinstance(given[0], str) else 'an object'}"] += 1
        return function(*given, **more)

    for name, module in list(sys.modules.items()):
        if name.startswith("odeum"):
            for key, value in list(vars(module).items()):
                if value is function:
                    monkeypatch.setattr(module, key, counted)


IN_WORKERS = """
import multiprocessing, pathlib, sys
from odeum.models import build
from odeum.models.description import describe

def counted(function):
    def call(*given, **more):
        with open(pathlib.Path(__file__).with_name("calls"), "a") as file:
            file.write(function.__name__ + "\\n")
        return function(*given, **more)
    return call

if multiprocessing.parent_process() is not None:
    for function in (build, describe):
        new = counted(function)
        for module in [module for name, module in sys.modules.items() if name.startswith("odeum")]:
            for key, value in list(vars(module).items()):
                if value is function:
                    setattr(module, key, new)
"""
"""a plugin, because that is what reaches the processes in which runs go on; this one is counted from within"""


def test_a_comparison_parses_each_spelling_once_and_builds_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    import odeum.lab.commands.compare
    import odeum.lab.study.measuring  # noqa: F401

    (tmp_path / "counting.py").write_text(IN_WORKERS)
    for function in (parse, build, describe):
        count_calls(monkeypatch, counts, function)
    words = ["--architectures", "sequential,parallel:independent=1", "--baseline", "sequential", "--seeds", "2"]
    short = ["--train.steps", "1", "--train.batch_size", "8", "--model.width", "8", "--out", str(tmp_path / "runs")]
    command = ["compare", "digits", *words, *short, "--plugin", str(tmp_path / "counting.py")]
    assert main(command) == 0
    assert counts["parse of text"] == 2, "a spelling is read at the front door, once"
    assert counts["describe of an object"] == 2 and counts["describe of text"] == 0, "an architecture is described once"
    runs = (tmp_path / "calls").read_text().split() if (tmp_path / "calls").exists() else []
    here = counts["build of an object"]
    assert counts["build of text"] == 0 and (here, runs) in (
        (2, ["build"] * 4),  # side by side: here one model of each is timed, and each run builds its own elsewhere
        (4, []),  # on one core all of it happens here, and what was timed was a copy of a run's own model
    )
    plan = (tmp_path / "runs" / "comparison.json").read_text()
    counts.clear()
    assert main(command) == 0
    assert not any(counts[key] for key in counts if key.startswith("build")), "what was measured is not measured again"
    assert (tmp_path / "runs" / "comparison.json").read_text() == plan


def test_one_seed_in_one_process_builds_and_describes_once_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    import odeum.lab.study.measuring  # noqa: F401

    for function in (parse, build, describe):
        count_calls(monkeypatch, counts, function)
    words = ["--architectures", "sequential,parallel:independent=1", "--baseline", "sequential", "--seeds", "1"]
    short = ["--train.steps", "2", "--train.batch_size", "8", "--model.width", "8", "--model.dropout", "0.1"]
    assert main(["compare", "digits", *words, *short, "--jobs", "1", "--out", str(tmp_path / "here")]) == 0
    del counts["parse of an object"]  # given back as it is: the doors take both
    assert counts == {"parse of text": 2, "build of an object": 2, "describe of an object": 2}
    assert main(["compare", "digits", *words, *short, "--jobs", "2", "--out", str(tmp_path / "there")]) == 0
    for path in (tmp_path / "here").glob("*/seed-0/model.safetensors"):
        other = tmp_path / "there" / path.relative_to(tmp_path / "here")
        mine, theirs = load_file(path), load_file(other)
        assert mine.keys() == theirs.keys()
        for name, weight in mine.items():
            assert torch.equal(weight, theirs[name]), "a run whose model was built before its time is the same run"


@pytest.mark.usefixtures("without_plots")
def test_a_report_and_a_papers_table_are_read_once_and_go_through_one_judge_and_one_renderer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Path(__file__).parents[3] / "results" / "digits"
    calls: list[str] = []

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, **more: (calls.append(name), function(*given, **more))[1])

    count(odeum.lab.study.findings, "judge")
    count(odeum.lab.study.report, "read")
    count(odeum.lab.study.runs.Store, "results")
    count(odeum.lab.study.grid.Grid, "text")
    assert main(["report", str(shutil.copytree(kept, tmp_path / "digits"))]) == 0
    assert calls == ["read", "judge", "text"]
    calls.clear()
    assert main(["table", "zhong2022/table1"]) == 0
    assert calls == ["results", "judge", "text", "text"]  # the rows and the claims
