"""The examples run, small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import load_script

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    return load_script(f"examples/{name}.py")


def test_one_line_swaps_the_encoder() -> None:
    assert example("swap_encoder").main("rk4", steps=3) > 0.3


def test_a_converted_model_is_fine_tuned() -> None:
    pytest.importorskip("accelerate", reason="Trainer needs accelerate")
    before, after = example("finetune_converted").main(steps=5)
    assert after < before


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells use no command of Jupyter's own, so they run in order as one program."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((EXAMPLES / "start.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4 and all(cell.get("outputs", []) == [] for cell in notebook["cells"])
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert names["accuracy"](names["models"]["sequential"]) > 0.6
    assert "rk4" in capsys.readouterr().out
