"""The examples run, small."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_line_swaps_the_encoder() -> None:
    assert example("swap_encoder").main("rk4", steps=3) > 0.3


def test_a_converted_model_is_fine_tuned() -> None:
    pytest.importorskip("accelerate", reason="Trainer needs accelerate")
    before, after = example("finetune_converted").main(steps=5)
    assert after < before
