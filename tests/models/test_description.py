"""What `describe` counts: as torch's own counter does, and alike on the meta device and on a small model that runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from odeum.models import description
from odeum.models.description import describe, whole_model
from odeum.models.operations import OperationCounter
from odeum.models.settings import Model, find_preset
from odeum.registry.names import ARCHITECTURES
from odeum.registry.spelling import parse

OTHERS = ("transevolve:random-1", "rk4:gradient=checkpointed", "parallel:weights=hyper", "parallel:weights=adaln")
NAMES = [name for name in (*ARCHITECTURES, *OTHERS) if name != "continuous"]
QUICK = ("sequential", "post-norm", "ode-transformer", "hyper", "looped", "transevolve", "transevolve:random-1")
KINDS = ("vit_8", "language_small", "translation_small", "masked_small", "classification_small")


def small(kind: str) -> Model:
    """Of four layers, with all that is random in training."""
    size = {"width": 32, "heads": 2, "depth": 4, "hidden": 64, "dropout": 0.1, "stochastic_depth": 0.1}
    return replace(find_preset(kind), **size, **({} if kind == "vit_8" else {"length": 16, "vocabulary": 50}))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_small_model_that_runs_costs_what_it_costs_on_the_meta_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small(KINDS[NAMES.index(name) % len(KINDS)])
    before = torch.get_rng_state()
    ran = describe(name, settings)
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(description, "SMALL", 0)
    assert describe(name, settings) == ran


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize(
    ("name", "kind"), [("sequential", "vit_8"), ("parallel", "translation_small"), ("transevolve", "language_small")]
)
def test_operations_are_counted_as_torch_counts_them(name: str, kind: str, device: str) -> None:
    with torch.device(device):
        model = whole_model(parse(name), small(kind)).eval().requires_grad_(False)
    example = model.example(device)
    with torch.no_grad(), OperationCounter() as ours:
        model(**example)
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        model(**example)
    assert ours.flops == theirs.get_total_flops() > 0


def test_neither_describing_nor_a_first_step_loads_the_compiler(tmp_path: Path) -> None:
    """It takes as long to load as torch itself. A run under `--train.compile` wants it, and others do without."""
    code = f"""
import sys
from odeum.lab.cli import main
assert main(["describe", "parallel", "--model", "vit_8"]) == 0
assert main(["train", "digits", "--train.steps", "2", "--out", {str(tmp_path / "run")!r}]) == 0
print("torch" in sys.modules, [name for name in ("torch._dynamo", "sympy", "sklearn") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "True []"
