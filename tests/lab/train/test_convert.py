"""Pretrained and trained weights under other architectures and solvers; and training that begins with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers as T

from odeum import build, load
from odeum.fields.roles import by_role
from odeum.lab.cli import main
from odeum.lab.study.refining import Sweep, count_evaluations
from odeum.lab.testing import perturbed
from odeum.lab.train.conversion import convert, deviation
from odeum.lab.train.origin import copy_weights
from odeum.models import assemble
from odeum.models.saved import load_model
from odeum.registry.spelling import parse

SIZES = {"width": 16, "heads": 2, "depth": 4, "hidden": 24, "vocabulary": 19, "length": 12}


def scrambled(architecture: str) -> torch.nn.Module:
    model = build(architecture, "language_small", **SIZES)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_macaron_and_back_is_the_same_model(activation: str) -> None:
    """The halves of a feed-forward are a macaron layer whose two steps add up to its one."""
    source = build("sequential", "language_small", **SIZES, activation=activation).eval()
    there = convert(source, parse("macaron"))
    assert not there.new and there.derived
    back = convert(there.model, parse("sequential"))
    for a, b in zip(source.state_dict().values(), back.model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)
    assert deviation(source, back.model).logits < 1e-5


@pytest.mark.parametrize(
    ("architecture", "exact"), [("parallel", True), ("rk4", True), ("strang", True), ("parallel:norm=shared", False)]
)
def test_weights_go_by_role(architecture: str, exact: bool) -> None:
    source = scrambled("sequential")
    found = convert(source, parse(architecture))
    assert not found.new and bool(found.derived) != exact
    assert deviation(source, convert(source, parse("sequential")).model).logits == 0
    assert len(deviation(source, found.model).layers) == 4


def test_layers_that_become_one_get_their_mean_and_spread_again() -> None:
    source = scrambled("sequential")
    shared = convert(source, parse("sequential:independent=2"))
    assert not shared.new
    qkv = "flows.{}.field.fields.attention.field.qkv.weight"
    own, theirs = shared.model.stack.state_dict(), source.stack.state_dict()
    torch.testing.assert_close(own[qkv.format(1)], (theirs[qkv.format(2)] + theirs[qkv.format(3)]) / 2)
    first = convert(source, parse("sequential:independent=2"), "first").model.stack.state_dict()
    assert torch.equal(first[qkv.format(1)], theirs[qkv.format(2)])
    again = convert(shared.model, parse("sequential"))
    assert deviation(shared.model, again.model).logits < 1e-6


@pytest.mark.parametrize("between", ["constant", "linear", "cubic"])
def test_weights_over_time_get_those_of_their_layers(between: str) -> None:
    """A constant piece for each layer is the model itself; two knots are the first and the last one, or means."""
    source = scrambled("parallel")
    whole = convert(source, parse(f"parallel:weights=knots,knots=4,between={between}"))
    assert not whole.new and (between != "constant" or deviation(source, whole.model).logits < 1e-5)
    two = convert(source, parse(f"parallel:weights=knots,knots=2,between={between}"))
    own, theirs = by_role(two.model), by_role(source)
    name = "stack.layers.{}.attention.qkv.weight"
    rows = [theirs[name.format(layer)] for layer in range(4)]
    expected = [(rows[0] + rows[1]) / 2, (rows[2] + rows[3]) / 2] if between == "constant" else [rows[0], rows[3]]
    for knot, row in enumerate(expected):
        torch.testing.assert_close(own[f"stack.layers.0.attention.knots.{knot}.qkv.weight"], row)


@pytest.mark.parametrize("kind", ["hyper", "adaln"])
def test_one_field_over_time_gets_the_mean_of_all_layers(kind: str) -> None:
    source = scrambled("parallel")
    found, shared = (convert(source, parse(f"parallel:{rest}")) for rest in (f"weights={kind}", "independent=1"))
    own, theirs = by_role(found.model), by_role(shared.model)
    knot = "knots.0." if kind == "hyper" else ""
    for rest in ("attention.{}qkv.weight", "feedforward.{}norm.weight"):
        torch.testing.assert_close(
            own["stack.layers.0." + rest.format(knot)], theirs["stack.layers.0." + rest.format("")]
        )
    assert kind == "hyper" or deviation(shared.model, found.model).logits < 1e-5


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ALBERT with a vocabulary, imported."""
    folder = tmp_path_factory.mktemp("albert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 6, "num_attention_heads": 2, "intermediate_size": 20}
    config = T.AlbertConfig(vocab_size=12, embedding_size=8, max_position_embeddings=16, **sizes)
    T.AlbertForMaskedLM(config).save_pretrained(folder / "theirs")
    (folder / "theirs" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n")
    (folder / "lines.txt").write_text("\n".join(["a b c d a b", "b c d a", "a a b b c c d"] * 8))
    assert main(["import", str(folder / "theirs"), "--out", str(folder / "run")]) == 0
    return folder


@pytest.mark.slow
def test_import_refine_convert_and_train(albert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = albert / "run"
    ((best, *_),) = load(run).predict(["a [MASK] c"], top=2)[0]
    assert best[0] in "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d" or best[0].startswith("<unused")
    assert (
        main(
            [
                "refine",
                str(run),
                str(albert / "lines.txt"),
                "--out",
                str(albert / "out"),
                "--save",
                str(albert / "fine"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "has no small-step limit" in shown and "refused: rk4" in shown and "cheapest" in shown
    rows = json.loads((albert / "out" / "refine.json").read_text())["rows"]
    by_name = {row["variant"]: row for row in rows}
    assert by_name["lie-trotter, 3 steps over [0, 6]"]["evaluations"] == 3
    assert by_name["lie-trotter, 12 steps over [0, 12]"]["evaluations"] == 12
    assert (albert / "out" / "refine.svg").read_text().startswith("<?xml")
    assert load_model(albert / "fine") is not None
    assert main(["convert", str(run), "--architecture", "post-norm:independent=2", "--out", str(albert / "two")]) == 0
    assert "relative change of logits: 0\n" in capsys.readouterr().out  # the same layer twice
    words = ["train", str(albert / "lines.txt"), "--from", str(albert / "two"), "--train.steps", "2"]
    assert main([*words, "--out", str(albert / "tuned")]) == 0
    tuned, start = load(albert / "tuned"), load_model(albert / "two")
    assert tuned.task.tokens.size == 12 and len(tuned.model.stack.flows) == 2
    far = (tuned.model.embedding.weight - start.embedding.weight).abs().max()
    assert 0 < far < 0.1  # it began there, and moved
    assert tuned.evaluate("test")["loss"] > 0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("parallel:weights=knots,knots=2", "parallel:weights=knots,knots=3"),  # a line through its middle
        ("parallel:weights=knots,knots=2,between=constant", "parallel:weights=knots,knots=4,between=constant"),
        ("parallel:weights=knots,knots=2,between=constant", "parallel:independent=2"),
        ("sequential:weights=knots,knots=3,between=cubic", "sequential"),
        ("parallel:norm=shared,weights=knots,knots=3", "looped:norm=shared,method=euler,repeats=1"),
        ("sequential:weights=hyper,rank=2", "sequential"),
    ],
)
def test_weights_over_time_are_taken_as_they_are_at_their_time(before: str, after: str) -> None:
    """More knots, and a layer for each step, are the same model: no knot is taken by its name from another time."""
    source = perturbed(build(before, "language_small", **SIZES)).eval()
    found = convert(source, parse(after))
    ids = torch.randint(19, (2, 7))
    torch.testing.assert_close(found.model(ids).logits, source(ids).logits, rtol=0, atol=1e-11)
    assert not found.new


def test_what_a_network_of_the_time_adds_is_no_knot() -> None:
    source = perturbed(build("parallel:weights=hyper,rank=2", "language_small", **SIZES))
    found = convert(source, parse("parallel:weights=knots,knots=3"))
    first, other = source.stack.flows[0].field.fields["attention"], found.model.stack.flows[0].field  # ty: ignore
    for time, knot in zip((0.0, 2.0, 4.0), other.fields["attention"].knots, strict=True):
        torch.testing.assert_close(knot.field.qkv.weight, first.weights(time)["field.qkv.weight"])


def test_unit_steps_are_the_model_itself() -> None:
    """One interval of as many unit steps is the row of layers that share their weights."""
    model = build("sequential:independent=1", "language_small", **SIZES).eval()
    sweep = Sweep(model, task=None)  # ty: ignore[invalid-argument-type]
    first, *others = sweep.variants()
    ids = torch.randint(19, (2, 7))
    torch.testing.assert_close(sweep.built(first)(ids).logits, model(ids).logits)
    counts = {v.label: count_evaluations(sweep.built(v)) for v in others}
    assert counts["rk4, 8 steps over [0, 4]"] == 32 and counts["lie-trotter, 2 steps over [0, 4]"] == 2
    finer = sweep.built(next(v for v in others if v.label == "rk4, 8 steps over [0, 4]"))
    coarse = sweep.built(next(v for v in others if v.label == "rk4, 4 steps over [0, 4]"))
    same = (finer(ids).logits - coarse(ids).logits).norm() / coarse(ids).logits.norm()
    assert same < 0.1  # a pre-norm flow has a limit


@pytest.mark.parametrize("architecture", ["sequential:independent=1", "parallel:independent=1,interval=0.5,steps=2"])
def test_every_variant_of_a_shared_layer_can_be_a_run(architecture: str) -> None:
    """Four steps over six layers are four layers that are half as long again: what is saved is what was measured."""
    model = build(architecture, "language_small", **{**SIZES, "depth": 6}).eval()
    sweep = Sweep(model, task=None)  # ty: ignore[invalid-argument-type]
    variants = sweep.variants()
    ids = torch.randint(19, (2, 7))
    torch.testing.assert_close(sweep.built(variants[0])(ids).logits, model(ids).logits)
    assert any(variant.steps % 6 and variant.end == 6 for variant in variants)
    for variant in variants:
        assert variant.saved is not None
        saved = assemble(*variant.saved).eval()
        copy_weights(saved, by_role(model))
        torch.testing.assert_close(saved(ids).logits, sweep.built(variant)(ids).logits, msg=variant.label)
