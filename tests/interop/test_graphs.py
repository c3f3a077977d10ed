"""Exported graphs are the model, at any batch and length, for every fixed-step architecture; others are refused."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from scripts import load_script
from torch._dynamo.testing import CompileCounter

import odeum
from odeum.errors import OdeumError
from odeum.fields.transevolve.rotation import Rotation
from odeum.interop.graphs import Graph, compare_graph, fold_rotations, trace, write_graph
from odeum.lab.cli import main
from odeum.models import OdeumModel
from odeum.registry.names import ARCHITECTURES

SMALL = {"width": 8, "heads": 2, "depth": 2}
MODELS = {
    "images": odeum.Vision(**SMALL, image_size=8, patch_size=4, channels=1, classes=3),
    "texts": odeum.Classification(**SMALL, vocabulary=20, classes=3, length=32),
    "language": odeum.Language(**SMALL, vocabulary=20, length=32),
    "translation": odeum.Translation(**SMALL, vocabulary=20, length=32),
}
FIXED = [name for name in ARCHITECTURES if name != "continuous"]


def built(architecture: str, model: str) -> OdeumModel:
    out = odeum.build(architecture, MODELS[model]).eval()
    assert isinstance(out, OdeumModel)
    return out


@pytest.mark.parametrize(("architecture", "model"), [("rk4", "language"), ("transevolve:random-1", "texts")])
def test_a_program_is_the_model_at_other_sizes(architecture: str, model: str) -> None:
    own = built(architecture, model)
    _, program = trace(own)
    assert compare_graph(Graph(own), program.module()) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("architecture", FIXED)
def test_every_fixed_step_architecture_is_a_graph(architecture: str, model: str) -> None:
    test_a_program_is_the_model_at_other_sizes(architecture, model)


def needs_onnx() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="the extra 'export' is not installed")


@pytest.mark.parametrize("model", ["texts", *(pytest.param(m, marks=pytest.mark.slow) for m in MODELS if m != "texts")])
@pytest.mark.slow
def test_onnx_is_the_model_at_other_sizes(model: str, tmp_path: Path) -> None:
    needs_onnx()
    written = write_graph(built("parallel", model), tmp_path, "onnx")
    assert written.difference < 1e-4 and next(iter(written.inputs.values()))[0] == "batch"
    operators = {node.op_type for node in importlib.import_module("onnx").load(written.path).graph.node}
    assert "LayerNormalization" in operators and "Sqrt" not in operators  # a norm is one, its gain and shift included


@pytest.mark.slow
@pytest.mark.parametrize("architecture", FIXED)
def test_every_fixed_step_architecture_is_onnx(architecture: str, tmp_path: Path) -> None:
    needs_onnx()
    assert write_graph(built(architecture, "language"), tmp_path, "onnx").difference < 1e-4


def test_random_feed_forwards_are_multiplied_out() -> None:
    own = built("transevolve:random-1,steps=2", "texts")
    folded = fold_rotations(own)
    assert folded is not own and not any(isinstance(part, Rotation) for part in folded.modules())
    assert any(isinstance(part, Rotation) for part in own.modules())
    assert compare_graph(Graph(own), Graph(folded)) < 1e-5
    plain = built("rk4", "texts")
    assert fold_rotations(plain) is plain


def test_a_graph_that_is_another_function_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = built("sequential", "images")

    def damaged(model: OdeumModel) -> OdeumModel:
        other = built("sequential", "images")
        return other

    monkeypatch.setattr("odeum.interop.graphs.fold_rotations", damaged)
    with pytest.raises(OdeumError, match=r"differs from the model by .* it was not kept"):
        write_graph(own, tmp_path, "torch")
    assert not list(tmp_path.iterdir())


def test_lengths_do_not_compile_anew() -> None:
    """Positions are computed for any length: one graph for the first length, one for all others."""
    torch.compiler.reset()
    model, counter = built("parallel", "language"), CompileCounter()
    compiled = torch.compile(model, backend=counter, dynamic=True)
    for length in (5, 9, 17, 33, 65):
        ids = torch.randint(0, 20, (2, length))
        torch.testing.assert_close(compiled(ids).logits, model(ids).logits, rtol=0, atol=1e-5)
    assert counter.frame_count <= 2
    torch.compiler.reset()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], complaint) -> None:
    run = str(tmp_path / "run")
    small = ["--model.width", "8", "--model.heads", "2", "--model.depth", "1", "--train.steps", "1"]
    assert main(["train", "digits", "--architecture", "continuous", *small, "--out", run]) == 0
    capsys.readouterr()
    assert main(["export", run, str(tmp_path / "out"), "--to", "torch"]) == 2
    assert "export it with fixed steps, such as --solver rk4 --steps 4" in complaint()
    assert main(["export", run, "--to", "torch", str(tmp_path / "out"), "--solver", "midpoint", "--steps", "2"]) == 0
    assert "images [batch, 1, 8, 8] → logits" in capsys.readouterr().out
    about = json.loads((tmp_path / "out" / "export.json").read_text())
    assert about["format"] == "torch" and about["solver"] == "midpoint" and about["difference"] < 1e-4
    assert json.loads((tmp_path / "out" / "task.json").read_text())["classes"][0] == "0"
    program = torch.export.load(tmp_path / "out" / "model.pt2").module()
    images = torch.randn(4, 1, 8, 8)
    expected = odeum.load(run).solve_by("midpoint", 2).model(images).logits
    torch.testing.assert_close(program(images), expected, rtol=0, atol=1e-5)
    assert main(["export", run, str(tmp_path / "out")]) == 2
    assert "already exists" in complaint()
    assert main(["export", run, str(tmp_path / "new"), "--to", "tflite"]) == 2
    assert "unknown target 'tflite'" in complaint()


def test_a_missing_extra_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing, find = ("onnx", "onnxscript", "onnxruntime"), importlib.util.find_spec
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in missing else find(name, *rest))
    with pytest.raises(OdeumError, match=r"needs onnx, onnxscript, onnxruntime; `pip install odeum\[export\]`"):
        write_graph(built("parallel", "images"), tmp_path, "onnx")


@pytest.mark.slow
def test_eight_bit_weights_answer_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_onnx()
    run, out = str(tmp_path / "run"), tmp_path / "out"
    small = ["--model.width", "32", "--model.depth", "1", "--train.steps", "60"]
    assert main(["train", "digits", "--architecture", "parallel", *small, "--out", run]) == 0
    assert main(["export", run, str(out), "--to", "onnx"]) == 0
    assert load_script("examples/int8.py").main(out) > 0.8
    assert (out / "model.int8.onnx").stat().st_size < (out / "model.onnx").stat().st_size
