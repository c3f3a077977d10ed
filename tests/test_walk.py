"""A walk through a whole comparison: strings end at the front door, and nothing is made twice."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odeum.compare.comparison
import odeum.distributed.parallel
import odeum.report
import odeum.train.loop  # noqa: F401  all that a comparison calls is there to be counted
from odeum.cli import main
from odeum.models import build
from odeum.models.description import describe
from odeum.settings.spelling import parse


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


def test_a_comparison_parses_each_spelling_once_and_builds_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    import odeum.commands.compare  # noqa: F401

    for function in (parse, build, describe):
        count_calls(monkeypatch, counts, function)
    words = ["--architectures", "sequential,parallel:independent=1", "--baseline", "sequential", "--seeds", "2"]
    short = ["--train.steps", "1", "--train.batch_size", "8", "--model.width", "8", "--out", str(tmp_path)]
    assert main(["compare", "digits", *words, *short, "--jobs", "1", "--quiet"]) == 0  # nothing is measured beforehand
    assert counts["parse of text"] == 2, "a spelling is read at the front door, once"
    assert counts["build of an object"] == 4 and counts["build of text"] == 0, "each run builds its model once"
    assert counts["describe of an object"] == 2 and counts["describe of text"] == 0, "an architecture is described once"
